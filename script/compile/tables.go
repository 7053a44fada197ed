package compile

import (
	"kprobe/bpf"
	"kprobe/script/types"
)

// What the language has beside the library: operators, and registers.

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
