package spec

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// refusal is a definition with a caret before the byte that the error points
// at, as in the kernel's own tests of its syntax errors. The first caret counts.
type refusal struct {
	code  Code
	in    string
	errno syscall.Errno
	opts  Options
}

var (
	kprobes = Options{Dialect: Kprobes}
	uprobes = Options{Dialect: Uprobes}
	process = Options{Dialect: Process}
	withBTF = Options{Dialect: Kprobes, Types: true}
)

func long(n int) string { return strings.Repeat("a", n) }

func manyArgs(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, " a%d=%%ax", i)
	}
	return b.String()
}

func nest(n int, inner string) string {
	return strings.Repeat("+0(", n) + inner + strings.Repeat(")", n)
}

var refusals = []refusal{
	{BadMaxactType, "p^7 f", syscall.EINVAL, kprobes},
	{BadMaxactType, "r^7 /bin/x:1", syscall.EINVAL, uprobes},
	{BadMaxact, "r^1x f", syscall.EINVAL, kprobes},
	{BadMaxact, "r^0 f", syscall.EINVAL, kprobes},
	{BadMaxact, "r^x f", syscall.EINVAL, kprobes},
	{BadMaxact, "r^99999999999:e f", syscall.EINVAL, process},
	{MaxactTooBig, "r^4097 f", syscall.EINVAL, kprobes},
	{MaxactTooBig, "r^99999 f", syscall.EINVAL, process},

	{BadProbeAddr, "p ^a-b", syscall.EINVAL, kprobes},
	{BadProbeAddr, "p ^a-5", syscall.EINVAL, process},
	{BadProbeAddr, "p ^a+1-1", syscall.EINVAL, kprobes},
	{BadProbeAddr, "p ^a+1-1", syscall.EINVAL, process},
	{BadProbeAddr, "p ^a+", syscall.EINVAL, process},
	{BadProbeAddr, "p ^a+0x100000000", syscall.EINVAL, kprobes},
	{BadProbeAddr, "p ^0x1g", syscall.ENOENT, kprobes},
	{BadProbeAddr, "p ^0x1g", syscall.EINVAL, process},
	{BadProbeAddr, "p ^a*", syscall.ENOENT, kprobes},
	{BadProbeAddr, "p ^libc.so.6:", syscall.EINVAL, process},
	{BadProbeAddr, "p:^libc.so.6:", syscall.EINVAL, process},
	{BadProbeAddr, "p ^memcpy@", syscall.EINVAL, process},
	{BadProbeAddr, `p ^"a b"c`, syscall.EINVAL, process},
	{BadProbeAddr, `p ^"":f`, syscall.EINVAL, process},
	{BadProbeAddr, `p ^a"b`, syscall.EINVAL, process},
	{BadAddrSuffix, "p f^%x", syscall.EINVAL, kprobes},
	{BadAddrSuffix, "p f^%", syscall.EINVAL, process},
	{BadAddrSuffix, "p libc.so.6:f+4^%returns", syscall.EINVAL, process},
	{BadAddrSuffix, "p /bin/x:1^%x", syscall.EINVAL, uprobes},

	{NoGroupName, "p:^/e f", syscall.EINVAL, kprobes},
	{NoGroupName, "-:^/e", syscall.EINVAL, kprobes},
	{GroupTooLong, "p:^" + long(64) + "/e f", syscall.EINVAL, kprobes},
	{BadGroupName, "p:^a.b/e f", syscall.EINVAL, kprobes},
	{BadGroupName, "p:^-a/e f", syscall.EINVAL, process},
	{NoEventName, "p:^ f", syscall.EINVAL, kprobes},
	{NoEventName, "-:^", syscall.EINVAL, kprobes},
	{EventTooLong, "p:g/^" + long(64) + " f", syscall.EINVAL, kprobes},
	{BadEventName, "p:g/^1e f", syscall.EINVAL, kprobes},
	{BadEventName, "p:^a:b f", syscall.EINVAL, kprobes},
	{BadEventName, "p:g.^e-e f", syscall.EINVAL, process},

	{TooManyArgs, "p f ^" + manyArgs(129)[1:], syscall.E2BIG, kprobes},
	{TooManyArgs, "p:c:f ^" + manyArgs(129)[1:], syscall.E2BIG, process},
	{NoArgName, "p f ^=%ax", syscall.EINVAL, kprobes},
	{ArgNameTooLong, "p f ^" + long(33) + "=%ax", syscall.EINVAL, kprobes},
	{BadArgName, "p f ^a.b=%ax", syscall.EINVAL, kprobes},
	{BadArgName, "p f ^var.1=%ax", syscall.EINVAL, process},
	{UsedArgName, "p f a=%ax ^a=%bx", syscall.EINVAL, kprobes},
	{UsedArgName, "p f arg2=%ax ^%bx", syscall.EINVAL, kprobes},
	{UsedArgName, "p f ^__probe_ip=%bx", syscall.EINVAL, kprobes},
	{UsedArgName, "r f ^__probe_func=%bx", syscall.EINVAL, process},
	{NoArgBody, "p f a=^", syscall.EINVAL, kprobes},
	{ArgTooLong, `p f a=^\"` + long(61) + `"`, syscall.E2BIG, kprobes},
	{ArgTooLong, `p f a=^\"` + long(1022) + `"`, syscall.E2BIG, process},

	{RetvalOnProbe, "p f ^$retval", syscall.EINVAL, kprobes},
	{RetvalOnProbe, "p f +0(^$retval)", syscall.EINVAL, process},
	{BadStackNum, "p f ^$stack2049", syscall.EINVAL, kprobes},
	{BadStackNum, "p f ^$stack65", syscall.EINVAL, Options{MaxStack: 64}},
	{BadArgNum, "p f ^$arg0", syscall.EINVAL, kprobes},
	{BadArgNum, "p f ^$arg2049", syscall.EINVAL, process},
	{BadVar, "p f ^$zzz", syscall.EINVAL, kprobes},
	{BadVar, "p f ^$", syscall.EINVAL, kprobes},
	{BadVar, "p f ^$stackp", syscall.EINVAL, kprobes},
	{BadVar, "p f ^$stack0+10", syscall.EINVAL, kprobes},
	{BadVar, "p f ^$stack1-10", syscall.EINVAL, process},
	{BadVar, "p f ^$retvals", syscall.EINVAL, process},
	{BadVar, "p /bin/x:1 ^$arg1", syscall.EINVAL, uprobes},
	{BadRegName, "p f ^%zzz", syscall.EINVAL, kprobes},
	{BadRegName, "p f ^%rax", syscall.EINVAL, kprobes},
	{BadRegName, "p f a=+8(^%)", syscall.EINVAL, process},
	{BadMemAddr, "p f ^@12xyz", syscall.EINVAL, kprobes},
	{BadMemAddr, "p f ^@", syscall.EINVAL, kprobes},
	{BadMemAddr, "p f ^@f*5", syscall.EINVAL, kprobes},
	{BadMemAddr, "p f ^@f/5", syscall.EINVAL, kprobes},
	{BadMemAddr, "p f ^@f%5", syscall.EINVAL, kprobes},
	{BadMemAddr, "p f ^@f&5", syscall.EINVAL, process},
	{BadMemAddr, "p f ^@f|5", syscall.EINVAL, process},
	{BadMemAddr, "p f ^@f+x", syscall.EINVAL, process},
	{BadImm, `p f a=\^x`, syscall.EINVAL, kprobes},
	{BadImm, `p f \^`, syscall.EINVAL, kprobes},
	{BadImm, `p f \^99999999999999999999`, syscall.EINVAL, process},
	{ImmStrNoClose, `p f a=\"abc^`, syscall.EINVAL, kprobes},
	{ImmStrNoClose, `p f a=\"abc^ b=%ax`, syscall.EINVAL, kprobes},
	{ImmStrNoClose, `p f a=\"^`, syscall.EINVAL, process},
	{FileOnKprobe, "p f ^@+1", syscall.EINVAL, kprobes},
	{SymOnUprobe, "p /bin/x:16 ^@f", syscall.EINVAL, uprobes},
	{BadFileOffs, "p /bin/x:16 ^@+zz", syscall.EINVAL, uprobes},
	{BadFileOffs, "p c:f ^@+", syscall.EINVAL, process},
	{DerefNeedBrace, "p f ^+8", syscall.EINVAL, kprobes},
	{DerefNeedBrace, "p f a=^-", syscall.EINVAL, process},
	{BadDerefOffs, "p f ^+a(%ax)", syscall.EINVAL, kprobes},
	{BadDerefOffs, "p f ^+(%ax)", syscall.EINVAL, kprobes},
	{BadDerefOffs, "p f ^-(%ax)", syscall.EINVAL, kprobes},
	{BadDerefOffs, "p f ^+u(%ax)", syscall.EINVAL, process},
	{BadDerefOffs, "p f ^+-5(%ax)", syscall.EINVAL, process},
	{DerefOpenBrace, "p f +8(%ax^", syscall.EINVAL, kprobes},
	// The last brace closes the outermost one.
	{DerefOpenBrace, "p f +8(-u4(%ax^):u8", syscall.EINVAL, process},
	{DerefOpenBrace, "p f +8(%ax^ b=%bx", syscall.EINVAL, process},
	{CommCantDeref, "p f +0(^$comm)", syscall.EINVAL, kprobes},
	{CommCantDeref, "p f +10(^$COMM)", syscall.EINVAL, process},
	{CommCantDeref, `p f +0(^\"a")`, syscall.EINVAL, kprobes},
	{TooManyOps, "p f +0(^" + nest(14, "%ax") + ")", syscall.EINVAL, kprobes},
	{TooManyOps, "p f +0(+0(^" + nest(12, "@f") + "))", syscall.EINVAL, kprobes},
	{TooManyOps, "p f ^" + nest(14, "%ax") + ":b1@0/8", syscall.EINVAL, process},
	{TooManyOps, "p f ^" + nest(13, "%ax") + ":string[2]", syscall.EINVAL, process},
	{BadFetchArg, "p f ^&1", syscall.EINVAL, kprobes},
	{BadFetchArg, "p f ^foo", syscall.EINVAL, kprobes},
	{BadFetchArg, "p f a=^b=%ax", syscall.EINVAL, kprobes},
	{BadFetchArg, "p f ^(%ax)", syscall.EINVAL, kprobes},
	{BadFetchArg, "p f ^(%ax+10)", syscall.EINVAL, process},
	{BadFetchArg, "p f +0(^)", syscall.EINVAL, process},
	{BadFetchArg, "p f +0(%ax)^+10", syscall.EINVAL, kprobes},
	{BadFetchArg, "p f ^:u8", syscall.EINVAL, kprobes},

	{ArrayNoClose, "p f +0(%ax):u8[4^", syscall.EINVAL, kprobes},
	{ArrayNoClose, "p f +0(%ax):u8[^", syscall.EINVAL, process},
	{BadArraySuffix, "p f +0(%ax):u8[4]^x", syscall.EINVAL, kprobes},
	{BadArrayNum, "p f +0(%ax):u8[^a]", syscall.EINVAL, kprobes},
	{BadArrayNum, "p f +0(%ax):u8[^0]", syscall.EINVAL, kprobes},
	{BadArrayNum, "p f +0(%ax):u8[^-1]", syscall.EINVAL, process},
	{ArrayTooBig, "p f +0(%ax):u8[^65]", syscall.EINVAL, kprobes},
	{BadType, "p f @1:^zz", syscall.EINVAL, kprobes},
	{BadType, "p f %ax:^", syscall.EINVAL, kprobes},
	{BadType, "p f %ax:^:x64", syscall.EINVAL, kprobes},
	{BadType, "p f u8:^%ax", syscall.EINVAL, kprobes},
	{BadType, "p f @1:^b4@0", syscall.EINVAL, kprobes},
	{BadType, "p f @1:^b4@0/24", syscall.EINVAL, kprobes},
	{BadType, "p f +0(%ax):^[4]", syscall.EINVAL, kprobes},
	{BadType, "p /bin/x:1 %ax:^symbol", syscall.EINVAL, uprobes},
	{BadType, "p /bin/x:1 %ax:^symstr", syscall.EINVAL, uprobes},
	{BadType, "p f %di:^%pd", syscall.EINVAL, process},
	{BadType, "p f $arg1:^%pD", syscall.EINVAL, process},
	{BadString, "p f $stack0:^string", syscall.EINVAL, kprobes},
	{BadString, "p f $stack:^string", syscall.EINVAL, kprobes},
	{BadString, "p f %ax:^ustring", syscall.EINVAL, process},
	{BadString, "p f %ax:^u8[4]", syscall.EINVAL, kprobes},
	{BadSymString, `p f \1:^symstr`, syscall.EINVAL, kprobes},
	{NeedStringType, "p f $comm:^x64", syscall.EINVAL, kprobes},
	{NeedStringType, "p f $comm:^string[2]", syscall.EINVAL, kprobes},
	{NeedStringType, `p f \"a":^u8`, syscall.EINVAL, process},
	{BadBitfield, "p f @1:^b9@z/16", syscall.EINVAL, kprobes},
	{BadBitfield, "p f @1:^b0@0/16", syscall.EINVAL, kprobes},
	{BadBitfield, "p f @1:^b8@9/16", syscall.EINVAL, kprobes},
	{BadBitfield, "p f @1:^b/16", syscall.EINVAL, process},

	{NoSupBtfArg, "p f ^foo", syscall.EOPNOTSUPP, process},
	{NoSupBtfArg, "p f a=^foo->bar", syscall.EOPNOTSUPP, process},
	{NoSupBtfArg, "r f ^$retval->x", syscall.EOPNOTSUPP, process},
	{NoSupBtfArg, "p f ^$arg*", syscall.EOPNOTSUPP, kprobes},
	{NoSupBtfArg, "p f ^$arg*", syscall.EOPNOTSUPP, process},
	{BadCondition, "p f ^if", syscall.EINVAL, process},
	{BadCondition, "p f a=%di if a > ^3x", syscall.EINVAL, process},
	{NoSupDatArg, "p f foo.^bar", syscall.EOPNOTSUPP, withBTF},
	{BadHyphen, "p f foo^-bar", syscall.EINVAL, withBTF},
	{BadHyphen, "p f foo->a^-", syscall.EINVAL, withBTF},
	{NoBtfField, "p f foo->^", syscall.ENOENT, withBTF},
	{NoBtfField, "r f $retval->a.^1", syscall.ENOENT, withBTF},
	{BadVarArgs, "p f a=^$arg*", syscall.EINVAL, withBTF},
	{BadVarArgs, "p f +0(^$arg*)", syscall.EINVAL, withBTF},
	{BadVarArgs, "p f ^$arg*:u8", syscall.EINVAL, process},
	{DoubleArgs, "p f $arg* ^$arg*", syscall.EINVAL, withBTF},
	{NoFentryArgs, "p f+4 ^$arg*", syscall.EINVAL, withBTF},
	{NoFentryArgs, "p f+4 ^$arg1", syscall.EINVAL, kprobes},
	{NoFentryArgs, "p f+4 +0(^$arg1)", syscall.EINVAL, process},

	{BadUprobeOffs, "p /bin/x:^1z", syscall.EINVAL, uprobes},
	{BadUprobeOffs, "p x:^1z", syscall.EINVAL, process},
	{BadUprobeOffs, `p "a b":^1z`, syscall.EINVAL, process},
	{BadRefcnt, "p /bin/x:1(^z)", syscall.EINVAL, uprobes},
	{BadRefcnt, "p /bin/x:1(^)", syscall.EINVAL, process},
	{RefcntOpenBrace, "p /bin/x:1(2^", syscall.EINVAL, uprobes},
	{BadRefcntSuffix, "p /bin/x:1(2)^%return", syscall.EINVAL, uprobes},
	{BadRefcntSuffix, "p x:1(2)^3", syscall.EINVAL, process},

	// The first of each kind come from the kernel's own test of these errors.
	{BadAccessFmt, "w ^symbol", syscall.EINVAL, process},
	{BadAccessFmt, "w:^libc.so.6:environ", syscall.EINVAL, process},
	{BadAccessType, "w ^a@symbol", syscall.EINVAL, process},
	{BadAccessType, "w ^wr@symbol:8", syscall.EINVAL, process},
	{BadAccessAddr, "w w@jiffies^+offset", syscall.EINVAL, process},
	{BadAccessAddr, "w w@^", syscall.EINVAL, process},
	{BadAccessAddr, "w @^counter*:4", syscall.EINVAL, process},
	{BadAccessAddr, "w @^counter%return", syscall.EINVAL, process},
	{BadAccessAddr, `w @^"a b":8:4`, syscall.EINVAL, process},
	{BadAccessAddr, "w @counter^+0x100000000:4", syscall.EINVAL, process},
	{BadAccessLen, "w w@jiffies:^100", syscall.EINVAL, process},
	{BadAccessLen, "w w@jiffies:^3", syscall.EINVAL, process},
	{BadAccessLen, "w rw@libc.so.6:environ+8:^0", syscall.EINVAL, process},
	{BadAccessLen, "w @0x1000:^4x", syscall.EINVAL, process},
	{BadVar, "w w@jiffies ^$arg1", syscall.EINVAL, process},
	{BadVar, "w w@jiffies ^$retval", syscall.EINVAL, process},
	{BadVar, "w w@jiffies a=^$addrs", syscall.EINVAL, process},
	{BadVar, "w w@jiffies ^$arg*", syscall.EINVAL, process},
	{BadVar, "p f ^$addr", syscall.EINVAL, process},
	{BadMaxactType, "w^8:e w@jiffies", syscall.EINVAL, process},
	{BadString, "w w@jiffies $addr:^string", syscall.EINVAL, process},
	{NoPlace, "w:e^", syscall.EINVAL, process},
	{BadCommand, "w^x w@jiffies", syscall.EINVAL, process},
	{BadCommand, "^w w@jiffies", syscall.EINVAL, kprobes},
	{BadCommand, "^w w@jiffies", syscall.EINVAL, uprobes},

	{BadCommand, "^x f", syscall.EINVAL, process},
	{BadCommand, "p^x f", syscall.EINVAL, process},
	{BadCommand, "^-x", syscall.EINVAL, kprobes},
	{BadCommand, "^-", syscall.EINVAL, process},
	{BadCommand, "p ^/bin/x:1", syscall.EINVAL, kprobes},
	{BadCommand, "p ^vfs_read", syscall.EINVAL, uprobes},
	{BadCommand, "p ^/bin/x", syscall.EINVAL, uprobes},
	{BadCommand, "p ^/bin/x:main", syscall.EINVAL, uprobes},
	{NoPlace, "p^", syscall.EINVAL, kprobes},
	{NoPlace, "r8:g/e^", syscall.EINVAL, process},
	{NoPlace, "p:getenv ^name=+0(%di):string", syscall.EINVAL, process},
}

func TestRefusedByText(t *testing.T) {
	for _, c := range refusals {
		at := strings.IndexByte(c.in, '^')
		line := c.in[:at] + c.in[at+1:]
		s, err := c.opts.Parse(line)
		var e *SyntaxError
		switch {
		case !errors.As(err, &e):
			t.Errorf("%s: %v, %v; want %s", line, s, err, c.code)
		case e.Code != c.code || e.Offset != at:
			t.Errorf("%s\n%*s want %s at %d\n%v", line, at+1, "^", c.code, at, err)
		case !errors.Is(err, c.errno) || e.Errno != c.errno:
			t.Errorf("%s: errno %v, want %v", line, e.Errno, c.errno)
		case e.Line != line || strings.Contains(err.Error(), "\n"):
			t.Errorf("%q: %q is no one line about it", line, err)
		}
	}
}

// The codes that only the system can find reason for, and where their carets go.
func TestRefusedBySystem(t *testing.T) {
	cause := errors.New("cause")
	covered := map[Code]bool{}
	for _, c := range []struct {
		code  Code
		in    string
		part  Part
		err   error
		errno syscall.Errno
	}{
		{BadProbeAddr, "p:g/e ^nosuch a=%ax", PartPlace, syscall.ENOENT, syscall.ENOENT},
		{BadProbeAddr, "p:^libc.so.6:nosuch a=%ax", PartPlace, fmt.Errorf("x: %w", syscall.ENOENT), syscall.ENOENT},
		{BadProbeAddr, "-:e ^nosuch", PartPlace, nil, syscall.EINVAL},
		{BadAccessAddr, "w:e w@^nosuch:4 a=%ax", PartData, syscall.ENOENT, syscall.ENOENT},
		{BadAccessType, "w ^r@counter:4", PartPlace, syscall.ENOTSUP, syscall.ENOTSUP},
		{NonUniqSymbol, "p ^dup", PartData, nil, syscall.EADDRNOTAVAIL},
		{NonUniqSymbol, "p ^dup", PartPlace, nil, syscall.EADDRNOTAVAIL},
		{BadRetprobe, "r ^f+16", PartPlace, cause, syscall.EINVAL},
		{BadInsnBndry, "p ^f+3", PartPlace, nil, syscall.EILSEQ},
		{FailRegProbe, "p ^f", PartPlace, syscall.EBUSY, syscall.EBUSY},
		{FileNotFound, "p ^/bin/x:16", PartPlace, nil, syscall.ENOENT},
		{NoRegularFile, "p ^/bin/x:16", PartPlace, nil, syscall.EINVAL},
		{EventExist, "^p:g/e f", PartCommand, nil, syscall.EEXIST},
		{EventExist, "p:g/^e f", PartEvent, nil, syscall.EEXIST},
		{EventExist, "p:^g/e f", PartGroup, nil, syscall.EEXIST},
		{DiffProbeType, "^r:g/e f", PartCommand, nil, syscall.EEXIST},
		{DiffArgType, "p:g/e f a=%ax ^b=%bx", PartArg(1), nil, syscall.EEXIST},
		{DiffArgType, "p:g/e f a=%ax ^", PartArg(1), nil, syscall.EEXIST},
		{SameProbe, "^p:g/e f", PartCommand, nil, syscall.EEXIST},
		{TooManyEargs, "r f ^$arg1", PartArg(0), nil, syscall.ENOSPC},
		{NoRetval, "r f a=%ax b=^$retval:u8", PartFetch(1), nil, syscall.ENOENT},
		{ArgIdx2Big, "p f a=^$arg9", PartFetch(0), nil, syscall.EINVAL},
		{BadType4Str, "p f a=foo:^string", PartType(0), nil, syscall.EINVAL},
		{BadType4Str, "p f a=^foo", PartType(0), nil, syscall.EINVAL},
		{NoBtfArg, "p f a=^foo", PartFetch(0), nil, syscall.ENOENT},
		{NoBtfEntry, "p f ^foo", PartFetch(0), nil, syscall.ENOENT},
		{NoBtfField, "p f x=%ax a=foo->bar.^baz", PartField(1, 1), nil, syscall.ENOENT},
		{NoPtrStrct, "p f x=%ax a=+0(foo->^bar)", PartField(1, 0), nil, syscall.EINVAL},
		{BadBtfTid, "p f a=^foo", PartField(0, 0), nil, syscall.EINVAL},
		{Args2Long, "p f ^$arg*", PartArg(0), nil, syscall.EINVAL},
		{EventTooBig, "^p f", PartCommand, nil, syscall.E2BIG},
		{NoEvent, "-:g/^e", PartEvent, nil, syscall.ENOENT},
	} {
		at := strings.IndexByte(c.in, '^')
		line := strings.TrimRight(c.in[:at]+c.in[at+1:], " ")
		s, err := Options{Types: true}.Parse(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		e := s.ErrorAt(c.code, c.part, c.err)
		if e.Offset != at || e.Line != line || e.Code != c.code {
			t.Errorf("%s: %d in %q, want %d", line, e.Offset, e.Line, at)
		}
		if e.Errno != c.errno || !errors.Is(e, c.errno) || c.err != nil && !errors.Is(e, c.err) {
			t.Errorf("%s: %v is not %v and %v", line, e, c.errno, c.err)
		}
		covered[c.code] = true

		// A definition made by hand points into the text it is printed as.
		made := *s
		made.src = nil
		text := made.String()
		if e := made.ErrorAt(c.code, c.part, nil); e.Line != text || e.Offset > len(text)+1 {
			t.Errorf("%s: %q at %d", line, e.Line, e.Offset)
		} else if c.part == PartPlace && !strings.HasPrefix(text[e.Offset:], s.Place.text()) {
			t.Errorf("%s: caret at %q", line, text[e.Offset:])
		}
	}
	for _, c := range refusals {
		covered[c.code] = true
	}
	for code := range catalogue {
		if !covered[code] {
			t.Errorf("no test raises %s", code)
		}
	}
}

// The arguments of the kernel's selftest that are to be accepted.
func TestAcceptedArguments(t *testing.T) {
	for _, arg := range []string{
		"%ax", "@f", "@0x1234", "@f+10", "@f-10", "$stack", "$stack0", "$stack1", "$comm",
		"+0(%ax)", "-0(%ax)", "+10($stack)", "+10(@f-10)", "+10(+10(+10(%ax)))",
		"name=%ax", "%ax:x16", "$comm:string", "+0($stack):string",
		// The rest comes from the catalogue: definitions that stand right beside a refusal.
		"+u8(%di):ustring", "-u8(%di)", `\42`, `\-1:s8`, `\0xffffffffffffffff`, `\"text"`, `\"a:b":string`, `\1:string`,
		"+0(%ax):string[1]", "+0(%ax):u8[64]", "@f:b8@8/16", "+0(%ax):char[4]", "$stack0:symstr", "%ip:symbol",
		"$arg1:u32", "$COMM", "$stack2048", long(32) + "=%ax", nest(14, "%ax"), nest(12, "@f"), nest(13, "%si") + ":x8[4]", nest(13, "%di") + ":b1@0/8",
		`a=\"` + long(60) + `"`, "$arg2048",
	} {
		for _, d := range []Dialect{Kprobes, Process} {
			s, err := Parse("p f "+arg, d)
			if err != nil {
				t.Errorf("%v", err)
				continue
			}
			roundTrip(t, s, Options{Dialect: d})
		}
	}
	for _, c := range []struct {
		o    Options
		line string
	}{
		{uprobes, "p /bin/x:1 @+0x10:u8 $stack9999 +u0(%di):string"},
		{process, "p c:f @+0x10:u8 $stack9999 @std::cout:u64 @net/http.DefaultClient @ns::v+8"},
		{process, "r8:libc.so.6:malloc $arg1 $retval"},
		{process, "w:e @counter %ax $stack $stack2 +0($stack):string $comm $addr:u64 +0($addr):u32 @counter:u32"},
		{process, `p f a=\"hello  world" b=%ax # and a comment`},
		{withBTF, "p f $arg* x=%ax foo a=foo->bar.baz b=+8(foo):u8"},
		{withBTF, "r f $retval->a.b"},
		{kprobes, "p f $arg1:%pd %di:%pD"},
		{Options{IsReg: func(s string) bool { return s == "x0" }, WordSize: 4}, "p f %x0"},
	} {
		s, err := c.o.Parse(c.line)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		roundTrip(t, s, c.o)
	}
}
