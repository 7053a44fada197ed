package samples

import "strconv"

// registers describes the registers in the samples of one machine.
type registers struct {
	mask uint64         // the registers to ask for, as linux/perf_event.h has them
	at   map[string]int // where each stands in a sample, by the name that struct pt_regs has in programs
	sp   string
}

// machines has the machines whose registers are known (asm/perf_regs.h).
var machines = map[string]*registers{
	// Of the segments cs and ss: of a 64-bit program the kernel has no others.
	"amd64": {0xff0fff, map[string]int{
		"rax": 0, "rbx": 1, "rcx": 2, "rdx": 3, "rsi": 4, "rdi": 5, "rbp": 6, "rsp": 7, "rip": 8, "eflags": 9, "cs": 10, "ss": 11,
		"r8": 12, "r9": 13, "r10": 14, "r11": 15, "r12": 16, "r13": 17, "r14": 18, "r15": 19,
	}, "rsp"},
	"arm64": {1<<33 - 1, arm64(), "sp"},
}

// arm64 is x0 to x30, sp and pc.
func arm64() map[string]int {
	at := map[string]int{"sp": 31, "pc": 32}
	for i := range 31 {
		at["x"+strconv.Itoa(i)] = i
	}
	return at
}
