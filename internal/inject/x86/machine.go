package x86

import (
	"maps"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/jit"
	"kprobe/internal/segment"
)

// The words of x86's context that have always one value: orig_rax, and the segments of code and
// stack.
const (
	wordOrigAX, WordCS, wordSS = 15, 17, 20

	notASyscall = ^uint64(0)
)

func fixedX86(names map[string]int64) map[int]uint64 {
	return map[int]uint64{wordOrigAX: notASyscall, WordCS: uint64(names["USER_CS"]), wordSS: uint64(names["USER_SS"])}
}

// What the routines of two machines are assembled with, besides names.
var (
	amd64Names = namesX86(map[string]int64{"SYS_GETTID": 186, "USER_CS": 0x33, "USER_SS": 0x2b}) // Linux's 64-bit programs'
	i386Names  = namesX86(map[string]int64{"SYS_GETTID": 224, "STATE_REGS": jit.StateRegs, "SCRATCH": segment.StateScratch, "USER_CS": 0x23, "USER_SS": 0x2b})
)

// namesX86 adds those that both have.
func namesX86(own map[string]int64) map[string]int64 {
	maps.Copy(own, map[string]int64{
		"CONTEXT_ORIG_AX": int64(word(wordOrigAX)), "CONTEXT_CS": int64(word(WordCS)), "CONTEXT_SS": int64(word(wordSS)),
		"CONTEXT_IP": WordIP, "CONTEXT_FP": WordFP, "CONTEXT_SP": WordSP,

		// Linux keeps the CPU's number in the limit of this segment: its low bits.
		"CPU_SEGMENT": 0x7b, "CPU_MASK": 0xfff,
	})
	return own
}

// The machines.
var (
	AMD64 = &inject.Machine{
		Machine: segment.Machine{Arch: arch.AMD64, Code: jit.AMD64, Fixed: fixedX86(amd64Names), BackAt: -8},
		Build:   buildX86, Join: joinX86, Key: keyReg, Scratch: scratchReg, Reading: readersX86, StackContext: stackContext,
		Leaving: leavesX86, Returns: true, Depth: 120,
		Runtime: amd64Runtime, Routines: amd64Routines, Faults: amd64Faults, Names: amd64Names,
	}
	I386 = &inject.Machine{
		Machine: segment.Machine{Arch: arch.I386, Code: jit.I386, Fixed: fixedX86(i386Names), BackAt: -4},
		Build:   buildX86, Join: joinX86, Key: keyReg, Scratch: scratchReg,
		Leaving: leavesX86, Returns: true, Depth: 60,
		Runtime: i386Runtime, Routines: i386Routines, Faults: i386Faults, Names: i386Names,
	}
)
