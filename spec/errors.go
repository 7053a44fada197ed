package spec

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
)

// Code names a mistake in a definition. The names are the kernel's own and stable: scripts may
// match them.
type Code string

// The codes that text alone can raise, and those that need the system and come
// through ErrorAt.
const (
	BadMaxactType   Code = "BAD_MAXACT_TYPE"
	BadMaxact       Code = "BAD_MAXACT"
	MaxactTooBig    Code = "MAXACT_TOO_BIG"
	BadProbeAddr    Code = "BAD_PROBE_ADDR"
	NonUniqSymbol   Code = "NON_UNIQ_SYMBOL"
	BadRetprobe     Code = "BAD_RETPROBE"
	BadAddrSuffix   Code = "BAD_ADDR_SUFFIX"
	NoGroupName     Code = "NO_GROUP_NAME"
	GroupTooLong    Code = "GROUP_TOO_LONG"
	BadGroupName    Code = "BAD_GROUP_NAME"
	NoEventName     Code = "NO_EVENT_NAME"
	EventTooLong    Code = "EVENT_TOO_LONG"
	BadEventName    Code = "BAD_EVENT_NAME"
	EventExist      Code = "EVENT_EXIST"
	DiffProbeType   Code = "DIFF_PROBE_TYPE"
	DiffArgType     Code = "DIFF_ARG_TYPE"
	SameProbe       Code = "SAME_PROBE"
	BadInsnBndry    Code = "BAD_INSN_BNDRY"
	FailRegProbe    Code = "FAIL_REG_PROBE"
	TooManyArgs     Code = "TOO_MANY_ARGS"
	TooManyEargs    Code = "TOO_MANY_EARGS"
	RetvalOnProbe   Code = "RETVAL_ON_PROBE"
	NoRetval        Code = "NO_RETVAL"
	BadStackNum     Code = "BAD_STACK_NUM"
	BadArgNum       Code = "BAD_ARG_NUM"
	ArgIdx2Big      Code = "ARGIDX_2BIG"
	BadVar          Code = "BAD_VAR"
	BadRegName      Code = "BAD_REG_NAME"
	BadMemAddr      Code = "BAD_MEM_ADDR"
	BadImm          Code = "BAD_IMM"
	ImmStrNoClose   Code = "IMMSTR_NO_CLOSE"
	FileOnKprobe    Code = "FILE_ON_KPROBE"
	SymOnUprobe     Code = "SYM_ON_UPROBE"
	BadFileOffs     Code = "BAD_FILE_OFFS"
	DerefNeedBrace  Code = "DEREF_NEED_BRACE"
	BadDerefOffs    Code = "BAD_DEREF_OFFS"
	DerefOpenBrace  Code = "DEREF_OPEN_BRACE"
	CommCantDeref   Code = "COMM_CANT_DEREF"
	TooManyOps      Code = "TOO_MANY_OPS"
	BadFetchArg     Code = "BAD_FETCH_ARG"
	ArrayNoClose    Code = "ARRAY_NO_CLOSE"
	BadArraySuffix  Code = "BAD_ARRAY_SUFFIX"
	BadArrayNum     Code = "BAD_ARRAY_NUM"
	ArrayTooBig     Code = "ARRAY_TOO_BIG"
	BadType         Code = "BAD_TYPE"
	BadString       Code = "BAD_STRING"
	BadSymString    Code = "BAD_SYMSTRING"
	NeedStringType  Code = "NEED_STRING_TYPE"
	BadType4Str     Code = "BAD_TYPE4STR"
	BadBitfield     Code = "BAD_BITFIELD"
	ArgNameTooLong  Code = "ARG_NAME_TOO_LONG"
	NoArgName       Code = "NO_ARG_NAME"
	BadArgName      Code = "BAD_ARG_NAME"
	UsedArgName     Code = "USED_ARG_NAME"
	NoArgBody       Code = "NO_ARG_BODY"
	ArgTooLong      Code = "ARG_TOO_LONG"
	NoSupBtfArg     Code = "NOSUP_BTFARG"
	NoBtfArg        Code = "NO_BTFARG"
	NoBtfEntry      Code = "NO_BTF_ENTRY"
	NoBtfField      Code = "NO_BTF_FIELD"
	BadBtfTid       Code = "BAD_BTF_TID"
	NoPtrStrct      Code = "NO_PTR_STRCT"
	NoSupDatArg     Code = "NOSUP_DAT_ARG"
	BadHyphen       Code = "BAD_HYPHEN"
	BadVarArgs      Code = "BAD_VAR_ARGS"
	DoubleArgs      Code = "DOUBLE_ARGS"
	NoFentryArgs    Code = "NOFENTRY_ARGS"
	Args2Long       Code = "ARGS_2LONG"
	FileNotFound    Code = "FILE_NOT_FOUND"
	NoRegularFile   Code = "NO_REGULAR_FILE"
	BadUprobeOffs   Code = "BAD_UPROBE_OFFS"
	BadRefcnt       Code = "BAD_REFCNT"
	RefcntOpenBrace Code = "REFCNT_OPEN_BRACE"
	BadRefcntSuffix Code = "BAD_REFCNT_SUFFIX"
	EventTooBig     Code = "EVENT_TOO_BIG"
	BadAccessFmt    Code = "BAD_ACCESS_FMT"
	BadAccessType   Code = "BAD_ACCESS_TYPE"
	BadAccessLen    Code = "BAD_ACCESS_LEN"
	BadAccessAddr   Code = "BAD_ACCESS_ADDR"
	BadCondition    Code = "BAD_CONDITION"
)

// Codes of our own, for definitions that the kernel refuses with an errno and nothing in error_log.
// They too leave no entry there: Log gives "".
const (
	BadCommand Code = "BAD_COMMAND" // no definition of this dialect
	NoPlace    Code = "NO_PLACE"    // the place is missing
	NoEvent    Code = "NO_EVENT"    // nothing to remove under that name
)

// catalogue holds each code's message and errno. Where a kernel was seen to say it, the message is
// the kernel's, because programs read error_log; the others are our own words. The errno is that of
// a write of the definition, unless the cause brings its own (ErrorAt).
var catalogue = map[Code]struct {
	message string
	errno   syscall.Errno
}{
	BadMaxactType:   {"Maxactive is not for kprobe", syscall.EINVAL},
	BadMaxact:       {"Invalid maxactive number", syscall.EINVAL},
	MaxactTooBig:    {"Maxactive is too big", syscall.EINVAL},
	BadProbeAddr:    {"Invalid probed address or symbol", syscall.EINVAL},
	NonUniqSymbol:   {"Several places have this symbol", syscall.EADDRNOTAVAIL},
	BadRetprobe:     {"Retprobe address must be an function entry", syscall.EINVAL},
	BadAddrSuffix:   {"Only %return may follow the place", syscall.EINVAL},
	NoGroupName:     {"Group name is missing", syscall.EINVAL},
	GroupTooLong:    {"Group name is too long", syscall.EINVAL},
	BadGroupName:    {"Group name must be an identifier, hyphens allowed", syscall.EINVAL},
	NoEventName:     {"Event name is missing", syscall.EINVAL},
	EventTooLong:    {"Event name is too long", syscall.EINVAL},
	BadEventName:    {"Event name must follow the same rules as C identifiers", syscall.EINVAL},
	EventExist:      {"Another kind of event has this name", syscall.EEXIST},
	DiffProbeType:   {"Event of this name is of another kind (p, r or w)", syscall.EEXIST},
	DiffArgType:     {"Argument differs in name or type from the event of this name", syscall.EEXIST},
	SameProbe:       {"There is already the exact same probe event", syscall.EEXIST},
	BadInsnBndry:    {"Probe point is not an instruction boundary", syscall.EILSEQ},
	FailRegProbe:    {"Failed to register probe event", syscall.EINVAL},
	TooManyArgs:     {"More arguments than an event can have", syscall.E2BIG},
	TooManyEargs:    {"More arguments to keep from the entry than there is room for", syscall.ENOSPC},
	RetvalOnProbe:   {"$retval is not available on probe", syscall.EINVAL},
	NoRetval:        {"Function returns nothing, hence no $retval", syscall.ENOENT},
	BadStackNum:     {"Stack slot number is out of range", syscall.EINVAL},
	BadArgNum:       {"Argument number is out of range", syscall.EINVAL},
	ArgIdx2Big:      {"Function has fewer arguments", syscall.EINVAL},
	BadVar:          {"Invalid $-variable specified", syscall.EINVAL},
	BadRegName:      {"Invalid register name", syscall.EINVAL},
	BadMemAddr:      {"Neither an address nor a symbol follows @", syscall.EINVAL},
	BadImm:          {"Immediate is not a number", syscall.EINVAL},
	ImmStrNoClose:   {`String is not closed with '"'`, syscall.EINVAL},
	FileOnKprobe:    {"File offset has no meaning in a kernel probe", syscall.EINVAL},
	SymOnUprobe:     {"Symbol has no meaning in a file offset probe", syscall.EINVAL},
	BadFileOffs:     {"File offset is not a number", syscall.EINVAL},
	DerefNeedBrace:  {"Dereference needs a parenthesis after its offset", syscall.EINVAL},
	BadDerefOffs:    {"Invalid dereference offset", syscall.EINVAL},
	DerefOpenBrace:  {"Dereference brace is not closed", syscall.EINVAL},
	CommCantDeref:   {"Text is no address to dereference", syscall.EINVAL},
	TooManyOps:      {"Argument takes too many steps to fetch", syscall.EINVAL},
	BadFetchArg:     {"Invalid fetch argument", syscall.EINVAL},
	ArrayNoClose:    {"Array is not closed with ']'", syscall.EINVAL},
	BadArraySuffix:  {"Nothing may follow the array", syscall.EINVAL},
	BadArrayNum:     {"Array length must be a positive number", syscall.EINVAL},
	ArrayTooBig:     {"Array number is too big", syscall.EINVAL},
	BadType:         {"Unknown type is specified", syscall.EINVAL},
	BadString:       {"String accepts only memory argument", syscall.EINVAL},
	BadSymString:    {"Only an address can be printed as a symbol", syscall.EINVAL},
	NeedStringType:  {"Text has type string, and is no array", syscall.EINVAL},
	BadType4Str:     {"Variable of this type is no string", syscall.EINVAL},
	BadBitfield:     {"Invalid bitfield", syscall.EINVAL},
	ArgNameTooLong:  {"Argument name is too long", syscall.EINVAL},
	NoArgName:       {"Argument name is missing before =", syscall.EINVAL},
	BadArgName:      {"Argument name must be a C identifier", syscall.EINVAL},
	UsedArgName:     {"This argument name is already used", syscall.EINVAL},
	NoArgBody:       {"Nothing to fetch after =", syscall.EINVAL},
	ArgTooLong:      {"Argument is too long", syscall.E2BIG},
	NoSupBtfArg:     {"Type information is needed and there is none", syscall.EOPNOTSUPP},
	NoBtfArg:        {"Function has no variable of this name", syscall.ENOENT},
	NoBtfEntry:      {"Type information does not know this function", syscall.ENOENT},
	NoBtfField:      {"Structure has no field of this name", syscall.ENOENT},
	BadBtfTid:       {"Type information is damaged here", syscall.EINVAL},
	NoPtrStrct:      {"Not a pointer to a structure", syscall.EINVAL},
	NoSupDatArg:     {"Dot on a variable is not supported, only ->", syscall.EOPNOTSUPP},
	BadHyphen:       {"Hyphen without > after it", syscall.EINVAL},
	BadVarArgs:      {"$arg* stands alone, without name, type and dereference", syscall.EINVAL},
	DoubleArgs:      {"$arg* can be given only once", syscall.EINVAL},
	NoFentryArgs:    {"Arguments are known only at a function's entry", syscall.EINVAL},
	Args2Long:       {"Definition becomes too long with $arg* expanded", syscall.EINVAL},
	FileNotFound:    {"File is not there", syscall.ENOENT},
	NoRegularFile:   {"Not a regular file", syscall.EINVAL},
	BadUprobeOffs:   {"Offset in the file is not a number", syscall.EINVAL},
	BadRefcnt:       {"Reference counter offset is not a number", syscall.EINVAL},
	RefcntOpenBrace: {"Reference counter brace is not closed", syscall.EINVAL},
	BadRefcntSuffix: {"Nothing may follow the reference counter", syscall.EINVAL},
	EventTooBig:     {"Event's record becomes too big", syscall.E2BIG},

	BadAccessFmt:  {"Data to watch is ACCESS@ADDRESS", syscall.EINVAL},
	BadAccessType: {"This access cannot be watched for", syscall.EINVAL},
	BadAccessLen:  {"Data of this length cannot be watched", syscall.EINVAL},
	BadAccessAddr: {"Data at this address cannot be watched", syscall.EINVAL},

	BadCondition: {"Condition is no expression", syscall.EINVAL},

	BadCommand: {"Not a definition of this kind of probe", syscall.EINVAL},
	NoPlace:    {"Where to probe is missing", syscall.EINVAL},
	NoEvent:    {"No such event", syscall.ENOENT},
}

// Message is the code's one-line text, as error_log shows it.
func (c Code) Message() string {
	if e, ok := catalogue[c]; ok {
		return e.message
	}
	return string(c)
}

// errno is the code's errno for a refused write.
func (c Code) errno() syscall.Errno {
	if e, ok := catalogue[c]; ok {
		return e.errno
	}
	return syscall.EINVAL
}

// SyntaxError is a refused definition. errors.Is finds its Errno, and through Err the cause that
// the caller of ErrorAt gave.
type SyntaxError struct {
	Code   Code
	Offset int    // bytes into Line; up to len(Line)+1, where something is missing
	Line   string // the definition, re-joined with single blanks
	Errno  syscall.Errno
	Err    error // the cause, or nil
}

// Error names the mistake in one line, its place and its code.
func (e *SyntaxError) Error() string {
	where := "at its end"
	if e.Offset < len(e.Line) {
		near, _, _ := strings.Cut(e.Line[e.Offset:], " ")
		where = fmt.Sprintf("at %q", near)
	}
	text := fmt.Sprintf("%s: %q, column %d, %s (%s)", e.Code.Message(), e.Line, e.Offset+1, where, e.Code)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap gives the errno and the cause.
func (e *SyntaxError) Unwrap() []error {
	if e.Err == nil {
		return []error{e.Errno}
	}
	return []error{e.Errno, e.Err}
}

// Part is a piece of a definition, for ErrorAt.
type Part int

// The parts that every definition has. One that was not written stands where
// the definition begins.
const (
	PartCommand Part = iota // the whole: its first byte
	PartGroup
	PartEvent
	PartPlace
	PartData // a watchpoint's address; of others the place
	PartIf   // the condition
	partArg  // and up: see below
)

// Parts of arguments are numbered partArg + kind + argKinds*(index + maxParts*field).
const (
	wholeArg = iota
	argBody
	argType
	argField
	argKinds
	maxParts = 1 << 16
)

// PartArg is argument i, from its name on. An index past the last argument is
// where the next one would stand.
func PartArg(i int) Part { return partArg + wholeArg + Part(argKinds*i) }

// PartFetch is the fetch of argument i, behind its name.
func PartFetch(i int) Part { return partArg + argBody + Part(argKinds*i) }

// PartType is argument i's type; where none is written, PartFetch.
func PartType(i int) Part { return partArg + argType + Part(argKinds*i) }

// PartField is the name of field j of argument i's member accesses.
func PartField(i, j int) Part { return partArg + argField + Part(argKinds*(i+maxParts*j)) }

// source is the text of a Spec: the re-joined line, and where its parts begin in it.
type source struct {
	line         string
	group, event int
	place, data  int
	cond         int
	args         []argSource
}

type argSource struct {
	at, body, typ int
	fields        []int

	// text is the body as written; canon is how print.go would write what was
	// read from it. While the two still agree with the Arg, the text is printed:
	// the kernel gives arguments back letter by letter ("+0x10(%di)").
	text, canon string
}

// offset finds where a part begins.
func (src *source) offset(p Part) int {
	switch p {
	case PartCommand:
		return 0
	case PartGroup:
		return src.group
	case PartEvent:
		return src.event
	case PartPlace:
		return src.place
	case PartData:
		return src.data
	case PartIf:
		return src.cond
	}
	n := int(p - partArg)
	kind, i, field := n%argKinds, n/argKinds%maxParts, n/argKinds/maxParts
	if i >= len(src.args) {
		return len(src.line) + 1 // behind the blank that would follow
	}
	a := &src.args[i]
	switch {
	case kind == argBody, kind == argField && field >= len(a.fields):
		return a.body
	case kind == argType:
		return a.typ
	case kind == argField:
		return a.fields[field]
	}
	return a.at
}

// ErrorAt makes the error for what only the system can know: an unknown
// symbol, a place that is no instruction boundary, a name that is taken. The
// caret stands at the part. err is the cause, and its errno, where it has one,
// takes precedence over the code's; it may be nil.
//
// As in the kernel, an unknown symbol of an argument (@SYM) is BadProbeAddr at
// PartPlace.
func (s *Spec) ErrorAt(code Code, part Part, err error) *SyntaxError {
	src := s.src
	if src == nil {
		src = sourceOf(s)
	}
	e := &SyntaxError{Code: code, Offset: src.offset(part), Line: src.line, Errno: code.errno(), Err: err}
	var errno syscall.Errno
	if errors.As(err, &errno) {
		e.Errno = errno
	}
	return e
}

// sourceOf gives a definition that was made by hand the text it would have had.
func sourceOf(s *Spec) *source {
	line := s.String()
	anyReg := func(string) bool { return true }
	read, err := Options{Dialect: Process, IsReg: anyReg, Types: true, Source: true}.Parse(line)
	if err != nil || read == nil { // its fields make no definition: point at the whole
		return &source{line: line}
	}
	return read.src
}
