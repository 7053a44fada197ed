package spec

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

// A real kernel's (6.1) answers. These tables are the measure: where they and any text about the
// interface disagree, they are right.

// complete fills in a definition as a kernel does before it shows it.
func complete(s *Spec) {
	if s.Kind == Return && s.MaxActive == 0 {
		s.MaxActive = 10
	}
}

func TestKernelShowsDefinitionsBack(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{"p:myp vfs_read", "p:kprobes/myp vfs_read"},
		{"p:myoff vfs_read+0x5", "p:kprobes/myoff vfs_read+5"},
		{"p:mid vfs_read+0x9", "p:kprobes/mid vfs_read+9"},
		{"r:myr vfs_read $retval", "r10:kprobes/myr vfs_read arg1=$retval"},
		{"r8:myr8 vfs_write ret=$retval:s64", "r8:kprobes/myr8 vfs_write ret=$retval:s64"},
		{"p:mygrp/args do_sys_openat2 dfd=%di:s32 file=+0($arg2):ustring how=+0(%dx):x64",
			"p:mygrp/args do_sys_openat2 dfd=%di:s32 file=+0($arg2):ustring how=+0(%dx):x64"},
		{`p:many vfs_write file=$arg1 buf=$arg2:x64 count=$arg3:u64 stack0=$stack0 stk=$stack comm=$comm sym=$arg1:symbol imm=\42 ip=@vfs_read:x64 b=%cx:b4@0/32 arr=+0($arg1):x8[4]`,
			`p:kprobes/many vfs_write file=$arg1 buf=$arg2:x64 count=$arg3:u64 stack0=$stack0 stk=$stack comm=$comm sym=$arg1:symbol imm=\42 ip=@vfs_read:x64 b=%cx:b4@0/32 arr=+0($arg1):x8[4]`},
		{"p ksys_read", "p:kprobes/p_ksys_read_0 ksys_read"},
		{"r ksys_read", "r10:kprobes/r_ksys_read_0 ksys_read"},
		{"p:ret2 vfs_open%return", "r10:kprobes/ret2 vfs_open"},
		{"p vfs_read+0x5", "p:kprobes/p_vfs_read_5 vfs_read+5"},
		{"p:grp-x/bad12 vfs_read", "p:grp-x/bad12 vfs_read"},
		{"p:bad24 nosuchmod:foo", "p:kprobes/bad24 nosuchmod:foo"},
		// Not captured (a kernel hashes the address), but of the same form.
		{"p:bad23 0x10", "p:kprobes/bad23 0x10"},
	} {
		for _, d := range []Dialect{Kprobes, Process} {
			s, err := Parse(c.in, d)
			if err != nil {
				t.Errorf("%s: %v", c.in, err)
				continue
			}
			complete(s)
			if got := s.String(); got != c.out {
				t.Errorf("%s\n got %s\nwant %s", c.in, got, c.out)
			}
		}
	}
}

func TestUprobesShownBack(t *testing.T) {
	for _, c := range []struct{ in, out string }{
		{"p /bin/bash:0x4245c0", "p:uprobes/p_bash_0x4245c0 /bin/bash:0x00000000004245c0"},
		{"r:ret /lib/libc.so.6:100 $retval", "r:uprobes/ret /lib/libc.so.6:0x0000000000000064 arg1=$retval"},
		{"p /lib/libc.so.6:100%return", "r:uprobes/p_libc_0x64 /lib/libc.so.6:0x0000000000000064"},
		{"p:g/e /bin/x:010(0x20) %ax @+0x10:u8", "p:g/e /bin/x:0x0000000000000008(0x20) arg1=%ax arg2=@+0x10:u8"},
	} {
		for _, d := range []Dialect{Uprobes, Process} {
			s, err := Parse(c.in, d)
			if err != nil {
				t.Errorf("%s: %v", c.in, err)
			} else if got := s.String(); got != c.out {
				t.Errorf("%s\n got %s\nwant %s", c.in, got, c.out)
			}
		}
	}
}

// Every definition of the capture that a kernel refused: its errno, and its
// entry in error_log. In part stands what only the system can tell.
func TestKernelErrorLog(t *testing.T) {
	const byText = Part(-1)
	for _, c := range []struct {
		command string
		errno   syscall.Errno
		message string // "" where error_log has no entry
		column  int    // of the caret: blanks in front of it
		code    Code
		part    Part
	}{
		{"p:bad1 nosuchfunction", syscall.ENOENT, "Invalid probed address or symbol", 18, BadProbeAddr, PartPlace},
		{"p:bad2 vfs_read+0x6", syscall.EILSEQ, "Probe point is not an instruction boundary", 18, BadInsnBndry, PartPlace},
		{"p:bad3 vfs_read+0x100000", syscall.EILSEQ, "Probe point is not an instruction boundary", 18, BadInsnBndry, PartPlace},
		{"p:bad4 exc_int3", syscall.EINVAL, "Failed to register probe event", 18, FailRegProbe, PartPlace},
		{"p:bad5 asm_exc_int3", syscall.EINVAL, "Failed to register probe event", 18, FailRegProbe, PartPlace},
		{"p:bad6 kprobe_int3_handler", syscall.EINVAL, "Failed to register probe event", 18, FailRegProbe, PartPlace},
		{"r:bad7 vfs_read+0x5", syscall.EINVAL, "Retprobe address must be an function entry", 18, BadRetprobe, PartPlace},
		{"p:bad8 vfs_read %zz", syscall.EINVAL, "Invalid register name", 27, BadRegName, byText},
		{"p:bad9 vfs_read foo=%di:q64", syscall.EINVAL, "Unknown type is specified", 35, BadType, byText},
		{"p:bad10 vfs_read foo", syscall.EINVAL, "Invalid fetch argument", 28, BadFetchArg, byText},
		{"p:bad-11 vfs_read", syscall.EINVAL, "Event name must follow the same rules as C identifiers", 13, BadEventName, byText},
		{"p:bad13 vfs_read a=%di a=%si", syscall.EINVAL, "This argument name is already used", 34, UsedArgName, byText},
		{"p:myp vfs_read", syscall.EEXIST, "There is already the exact same probe event", 11, SameProbe, PartCommand},
		{"p5:bad14 vfs_read", syscall.EINVAL, "Maxactive is not for kprobe", 12, BadMaxactType, byText},
		{"r0x:bad15 vfs_read", syscall.EINVAL, "Invalid maxactive number", 12, BadMaxact, byText},
		{"r100000:bad16 vfs_read", syscall.EINVAL, "Maxactive is too big", 12, MaxactTooBig, byText},
		{"p:bad17 vfs_read $retval", syscall.EINVAL, "$retval is not available on probe", 28, RetvalOnProbe, byText},
		{"p:bad18 vfs_read +foo(%di)", syscall.EINVAL, "Invalid dereference offset", 28, BadDerefOffs, byText},
		{"p:bad19 vfs_read +8(%di", syscall.EINVAL, "Dereference brace is not closed", 34, DerefOpenBrace, byText},
		{`p:bad20 vfs_read \"unterminated`, syscall.EINVAL, `String is not closed with '"'`, 42, ImmStrNoClose, byText},
		{"p:bad21", syscall.EINVAL, "", 0, NoPlace, byText},
		{"x:bad22 vfs_read", syscall.EINVAL, "", 0, BadCommand, byText},
		{"p:bad25 vfs_read a=%di:b33@0/32", syscall.EINVAL, "Invalid bitfield", 34, BadBitfield, byText},
		{"p:bad26 vfs_read a=%di:x8[65]", syscall.EINVAL, "Array number is too big", 37, ArrayTooBig, byText},
		{"p:bad27 vfs_read a=%di:string", syscall.EINVAL, "String accepts only memory argument", 34, BadString, byText},
		{"p:bad28 vfs_read $argX", syscall.EINVAL, "Invalid $-variable specified", 28, BadVar, byText},
		{"p:bad29 vfs_read $stackX", syscall.EINVAL, "Invalid $-variable specified", 28, BadVar, byText},
		{"p:bad30 vfs_read @badsym", syscall.ENOENT, "Invalid probed address or symbol", 19, BadProbeAddr, PartPlace},
		{"p:bad31 vfs_read+bad", syscall.EINVAL, "Invalid probed address or symbol", 19, BadProbeAddr, byText},
		{"p:bad32 vfs_read-5", syscall.EINVAL, "Invalid probed address or symbol", 19, BadProbeAddr, byText},
	} {
		s, err := Parse(c.command, Kprobes)
		if c.part != byText {
			if err != nil {
				t.Errorf("%s: refused by its text: %v", c.command, err)
				continue
			}
			err = s.ErrorAt(c.code, c.part, c.errno)
		}
		want := ""
		if c.message != "" {
			want = "trace_kprobe: error: " + c.message + "\n  Command: " + c.command + "\n" +
				strings.Repeat(" ", c.column) + "^\n"
		}
		var e *SyntaxError
		switch {
		case !errors.As(err, &e):
			t.Errorf("%s: %v", c.command, err)
		case e.Code != c.code || !errors.Is(err, c.errno):
			t.Errorf("%s: %s, %v; want %s, %v", c.command, e.Code, e.Errno, c.code, c.errno)
		case e.Log("trace_kprobe") != want:
			t.Errorf("got\n%swant\n%s", e.Log("trace_kprobe"), want)
		}
		if c.part == byText && s != nil {
			t.Errorf("%s: a definition beside the error", c.command)
		}
		// The user of a process gets the same answers, but for one: there a variable
		// by name wants type information.
		if _, err := Parse(c.command, Process); c.part == byText && c.code != BadFetchArg {
			if !errors.As(err, &e) || e.Code != c.code || e.Log("trace_kprobe") != want {
				t.Errorf("for a process: %s: %v", c.command, err)
			}
		}
	}
}

// The removals of the capture, in its order.
func TestKernelRemoval(t *testing.T) {
	var have []*Spec
	for _, line := range []string{
		"p:myp vfs_read", "p:myoff vfs_read+0x5", "p:mygrp/args do_sys_openat2 dfd=%di:s32", "p:many vfs_write", "p:myp vfs_open",
	} {
		s, err := Parse(line, Kprobes)
		if err == nil {
			err = Append(have, s)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		have = append(have, s)
	}
	for _, c := range []struct {
		line string
		left int
		err  error
	}{
		{"-:nosuchevent", 5, syscall.ENOENT},
		{"-:myoff", 4, nil},
		{"-:kprobes/many", 3, nil},
		{"-:mygrp/", 2, nil},
		{"-:mygrp/args", 2, syscall.ENOENT},
		{"-:myp vfs_write", 2, syscall.ENOENT},
		{"-:myp vfs_open", 1, nil},
		{"-:nogroup/myp", 1, syscall.ENOENT},
		{"-:myp", 0, nil},
	} {
		d, err := Parse(c.line, Kprobes)
		if err != nil {
			t.Fatalf("%s: %v", c.line, err)
		}
		have, err = Remove(have, d)
		if !errors.Is(err, c.err) || len(have) != c.left {
			t.Errorf("%s: %v, %d left; want %v, %d", c.line, err, len(have), c.err, c.left)
		}
		var e *SyntaxError
		if errors.As(err, &e) && e.Log("trace_kprobe") != "" {
			t.Errorf("%s: an entry in error_log, where the kernel has none", c.line)
		}
	}
}
