package compile

import (
	"kprobe/bpf"
	"kprobe/script/macro"
	"kprobe/script/plan"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// What the language names: providers, values, types and functions.

// value is a name that is a value, with or without parentheses behind it. What a script sees of it is decided by its type: package output
// shows each kind of types in one way.
type value struct {
	typ   *types.Type                               // of what is there everywhere
	check func(*checker, *syntax.Ident) *types.Type // of what is not: refuses it, or has its type
	leave func(*generator, *syntax.Ident)           // its word in R0; nil: what is more than a word is put where it is wanted (generator.memory)
}

// values are all names that are values but for those of arguments, arg0 and the like.
var values map[string]*value

// function is all there is to a function of the language.
type function struct {
	least, most int                                                // arguments
	check       func(*checker, *syntax.Call) *types.Type           // refuses what is wrong, and has its type
	number      func(*generator, *syntax.Call)                     // leaves its word in R0
	memory      func(*generator, *syntax.Call, place, *types.Type) // writes what is more than a word
	act         func(*generator, *syntax.Call)                     // does what a statement asks for; then it is no value
	gathers     bool                                               // it stands for nothing but what a map gathers
}

// functions are all of the language, by their names.
var functions map[string]*function

func numbered(least, most int, check func(*checker, *syntax.Call) *types.Type, leave func(*generator, *syntax.Call)) *function {
	return &function{least: least, most: most, check: check, number: leave}
}

func written(least, most int, check func(*checker, *syntax.Call) *types.Type, write func(*generator, *syntax.Call, place, *types.Type)) *function {
	return &function{least: least, most: most, check: check, memory: write}
}

func acting(least, most int, check func(*checker, *syntax.Call) *types.Type, act func(*generator, *syntax.Call)) *function {
	return &function{least: least, most: most, check: check, act: act}
}

func gathered(least, most int, check func(*checker, *syntax.Call) *types.Type) *function {
	return &function{least: least, most: most, check: check, gathers: true}
}

// refused has bpftrace's names that are missing here.
func refused(least, most int, why string) *function {
	return &function{least: least, most: most, check: notHere(why)}
}

func init() { // what they are checked by asks for them
	values = map[string]*value{
		"pid":       {typ: types.Uint32, leave: (*generator).identity},
		"tid":       {typ: types.Uint32, leave: (*generator).identity},
		"uid":       {typ: types.Uint64, leave: (*generator).identity},
		"gid":       {typ: types.Uint64, leave: (*generator).identity},
		"username":  {typ: &types.Type{Kind: types.User, Size: 8}, leave: (*generator).identity},
		"comm":      {typ: types.StringOf(16)},
		"cpu":       {typ: types.Uint64, leave: helped(bpf.FnGetSmpProcessorID)},
		"rand":      {typ: types.Uint32, leave: helped(bpf.FnGetPrandomU32)},
		"nsecs":     {typ: types.Uint64, leave: helped(bpf.FnKtimeGetBootNs)},
		"elapsed":   {typ: types.Uint64, leave: (*generator).elapsed},
		"jiffies":   {typ: types.Uint64, leave: (*generator).jiffies},
		"ncpus":     {check: (*checker).ncpus, leave: known(func(g *generator) uint64 { return g.cpus() })},
		"numaid":    {check: (*checker).numaid, leave: known(func(*generator) uint64 { return 0 })},
		"cpid":      {check: (*checker).cpid, leave: known(func(g *generator) uint64 { return uint64(g.opts.CPID) })},
		"has_cpid":  {typ: types.BoolT, leave: known(func(g *generator) uint64 { return types.Word(g.opts.CPID != 0) })},
		"usermode":  {typ: types.Uint8, leave: known(func(g *generator) uint64 { return types.Word(!g.opts.Kernel) })},
		"cgroup":    {check: (*checker).cgroup, leave: (*generator).cgroup},
		"curtask":   {check: (*checker).curtask, leave: helped(bpf.FnGetCurrentTask)},
		"ustack":    {check: (*checker).wholeStack, leave: (*generator).wholeStack},
		"kstack":    {check: (*checker).wholeStack, leave: (*generator).wholeStack},
		"ctx":       {check: (*checker).ctxHere, leave: known(func(*generator) uint64 { return ctxAddress })},
		"args":      {check: (*checker).args},
		"retval":    {check: (*checker).retval, leave: (*generator).retval},
		"func":      {check: (*checker).function, leave: (*generator).function},
		"probe":     {check: (*checker).probe, leave: (*generator).probeNumber},
		"probetype": {check: (*checker).probeType},
	}

	functions = map[string]*function{
		"count":   gathered(0, 0, is(&types.Type{Kind: types.Count, Size: 8})),
		"sum":     gathered(1, 1, gathers(types.Sum)),
		"avg":     gathered(1, 1, gathers(types.Avg)),
		"stats":   gathered(1, 1, gathers(types.Stats)),
		"min":     gathered(1, 1, gathers(types.Min)),
		"max":     gathered(1, 1, gathers(types.Max)),
		"hist":    gathered(1, 2, (*checker).hist),
		"lhist":   gathered(4, 4, (*checker).lhist),
		"tseries": gathered(3, 4, (*checker).tseries),

		"printf":        acting(1, 64, (*checker).printf, formatted(plan.Printf)),
		"errorf":        acting(1, 64, (*checker).printf, formatted(plan.Errorf)),
		"warnf":         acting(1, 64, (*checker).printf, formatted(plan.Warnf)),
		"debugf":        acting(1, 4, (*checker).printf, nothing),
		"system":        acting(1, 64, (*checker).printf, formatted(plan.System)),
		"cat":           acting(1, 64, (*checker).printf, formatted(plan.Cat)),
		"time":          acting(0, 1, (*checker).clock, (*generator).clock),
		"print":         acting(1, 3, (*checker).print, (*generator).print),
		"clear":         acting(1, 1, (*checker).wholeMap, ofMap(plan.Clear)),
		"zero":          acting(1, 1, (*checker).wholeMap, ofMap(plan.Zero)),
		"exit":          acting(0, 1, (*checker).exit, (*generator).exit),
		"override":      acting(1, 1, (*checker).override, (*generator).override),
		"static_assert": acting(1, 2, (*checker).staticAssert, nothing),
		"fail":          acting(1, 64, (*checker).fail, nothing),
		"assert":        acting(1, 2, (*checker).assert, (*generator).assert),
		"assert_str":    acting(1, 1, (*checker).assertText, nothing),
		"signal":        acting(1, 1, (*checker).signal, (*generator).signal),
		"signal_thread": acting(1, 1, (*checker).signal, (*generator).signal),
		"join":          acting(1, 2, (*checker).join, (*generator).join),
		"unwatch":       acting(1, 1, (*checker).unwatch, (*generator).unwatch),

		"delete":     numbered(1, 2, (*checker).deletes, (*generator).deletes),
		"has_key":    numbered(2, 2, (*checker).hasKey, (*generator).hasKey),
		"find":       numbered(3, 3, (*checker).findKey, (*generator).find),
		"len":        numbered(1, 1, (*checker).length, (*generator).length),
		"write_user": numbered(2, 2, (*checker).writeUser, (*generator).writeUser),

		"nsecs":        numbered(0, 1, (*checker).nsecs, (*generator).nsecs),
		"pid":          numbered(0, 1, (*checker).pidOf, (*generator).identityOf),
		"tid":          numbered(0, 1, (*checker).pidOf, (*generator).identityOf),
		"ustack":       numbered(0, 2, (*checker).stack, (*generator).stackOf),
		"kstack":       numbered(0, 2, (*checker).stack, (*generator).stackOf),
		"reg":          numbered(1, 1, (*checker).reg, (*generator).reg),
		"kaddr":        numbered(1, 1, (*checker).kaddr, (*generator).kaddr),
		"uaddr":        numbered(1, 1, (*checker).uaddr, (*generator).uaddr),
		"percpu_kaddr": numbered(1, 2, (*checker).percpuKaddr, (*generator).percpu),
		"cgroupid":     numbered(1, 1, (*checker).cgroupID, (*generator).cgroupID),
		"macaddr":      numbered(1, 1, (*checker).macaddr, (*generator).macaddr),
		"is_err":       numbered(1, 1, (*checker).isErr, (*generator).isErr),
		"bswap":        numbered(1, 1, (*checker).bswap, (*generator).bswap),

		"usym":         numbered(1, 1, addressed(types.USym), (*generator).last),
		"ksym":         numbered(1, 1, addressed(types.KSym), (*generator).last),
		"strerror":     numbered(1, 1, worded(""), (*generator).last),
		"signal_name":  numbered(1, 1, worded("signal"), (*generator).last),
		"syscall_name": numbered(1, 1, worded("syscall"), (*generator).last),
		"strftime":     numbered(2, 2, (*checker).strftime, (*generator).last),
		"cgroup_path":  numbered(1, 2, (*checker).cgroupPath, (*generator).first),
		"kptr":         numbered(1, 1, (*checker).space, (*generator).first),
		"uptr":         numbered(1, 1, (*checker).space, (*generator).first),

		"str":         written(1, 2, (*checker).str, (*generator).str),
		"buf":         written(1, 2, (*checker).buf, (*generator).buffer),
		"ntop":        written(1, 2, (*checker).ntop, (*generator).inet),
		"pton":        written(1, 1, (*checker).pton, (*generator).pton),
		"typeinfo":    written(1, 1, (*checker).typeinfo, (*generator).typeinfo),
		"getopt":      written(1, 3, (*checker).getopt, (*generator).getopt), // a number is a constant
		"strlen":      numbered(1, 1, (*checker).strlen, (*generator).strlen),
		"strcap":      numbered(1, 1, (*checker).strlen, (*generator).strcap),
		"strncmp":     numbered(3, 3, (*checker).strncmp, (*generator).strncmp),
		"strcontains": numbered(2, 2, (*checker).strcontains, (*generator).search),
		"strstr":      numbered(2, 2, (*checker).strcontains, (*generator).search),
		"memcmp":      numbered(3, 3, (*checker).memcmp, (*generator).memcmp),

		// What they are is a constant.
		"sizeof":              numbered(1, 1, (*checker).sizeof, (*generator).constantNumber),
		"offsetof":            numbered(2, 2, (*checker).offsetof, nil),
		"is_scalar":           numbered(1, 1, (*checker).question, nil),
		"is_integer":          numbered(1, 1, (*checker).question, nil),
		"is_unsigned_integer": numbered(1, 1, (*checker).question, nil),
		"is_str":              numbered(1, 1, (*checker).question, nil),
		"is_ptr":              numbered(1, 1, (*checker).question, nil),
		"is_array":            numbered(1, 1, (*checker).question, nil),
		"is_literal":          numbered(1, 1, (*checker).question, nil),
		"kfunc_exist":         numbered(1, 1, (*checker).kernelFunction, nil),
		"kfunc_allowed":       numbered(1, 1, (*checker).kernelFunction, nil),
		"default_str_length":  numbered(0, 0, (*checker).defaultLength, nil),
		"container_of":        numbered(3, 3, nil, nil), // written otherwise: see package macro

		"path":          refused(1, 2, "path() is for what the kernel calls while it holds a file"),
		"skboutput":     refused(4, 4, "packets of the network are none of what a probe here sees"),
		"socket_cookie": refused(1, 1, "sockets are none of what a probe here sees"),
		"globmatch":     refused(2, 2, "patterns are not matched in a probe yet: strcontains and strncmp are there"),
	}
}

// ptRegs is what ctx points to at functions: Linux's struct pt_regs on x86-64.
var ptRegs = func() *types.Type {
	t := &types.Type{Kind: types.Record, Name: "struct pt_regs", Len: 8}
	for _, name := range []string{"r15", "r14", "r13", "r12", "bp", "bx", "r11", "r10", "r9", "r8", "ax", "cx", "dx", "si", "di",
		"orig_ax", "ip", "cs", "flags", "sp", "ss"} {
		t.Fields = append(t.Fields, types.Field{Name: name, Type: types.Uint64, Offset: t.Size})
		t.Size += 8
	}
	return t
}()

// savedAt is where struct pt_regs has what programs pass.
// Source: Linux, arch/x86/include/asm/ptrace.h.
var savedAt = map[string]int32{"r10": 56, "r9": 64, "r8": 72, "rdx": 96, "rsi": 104, "rdi": 112}

// named is what a call of what is a name too stands for; nil where it is none.
func named(x syntax.Expr) syntax.Expr { return macro.Value(x, isValue) }

func isValue(name string) bool {
	v := values[name]
	return v != nil && functions[name] == nil && name != "args" && name != "ctx"
}

// takes tells whether a function of the library takes so many arguments.
func takes(name string, n int) bool {
	f := functions[macro.Plain(name)]
	return f != nil && f.least <= n && n <= f.most
}

// comparisons by operator: unsigned and signed.
var comparisons = map[string][2]uint8{
	"==": {bpf.Jeq, bpf.Jeq}, "!=": {bpf.Jne, bpf.Jne}, "<": {bpf.Jlt, bpf.Jslt}, "<=": {bpf.Jle, bpf.Jsle},
	">": {bpf.Jgt, bpf.Jsgt}, ">=": {bpf.Jge, bpf.Jsge},
}

// operations by operator.
var operations = map[string]uint8{"+": bpf.Add, "-": bpf.Sub, "*": bpf.Mul, "/": bpf.Div, "%": bpf.Mod, "&": bpf.And, "|": bpf.Or, "^": bpf.Xor, "<<": bpf.Lsh, ">>": bpf.Rsh}

// signed has the operators that depend on their operands' sign, and a word for what each does.
var signed = map[string]string{"==": "comparison of", "!=": "comparison of", "<": "comparison of", ">": "comparison of", "<=": "comparison of", ">=": "comparison of",
	"+": "arithmetic on", "-": "arithmetic on", "*": "arithmetic on", "/": "arithmetic on", "%": "arithmetic on"}

// gathering are examples of what maps gather by.
var gathering = map[types.Kind]string{types.Count: "count()", types.Sum: "sum(retval)", types.Min: "min(retval)", types.Max: "max(retval)", types.Avg: "avg(retval)",
	types.Hist: "hist(retval)", types.LHist: "lhist(rand %10, 0, 10, 1)", types.TSeries: "tseries(rand %10, 10s, 1)", types.Stats: "stats(arg2)"}
