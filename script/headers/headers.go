// Package headers has a table of the constants that the kernel's interface to programs, and the C library beside it, define. The
// headers themselves need not be there.
package headers

import (
	_ "embed"
	"strconv"
	"strings"

	"kprobe/script/calls"
)

// constants has a line for each: its name and its number on x86-64.
// Source: the headers that it names; see constants_test.go, which makes it.
//
//go:embed constants.txt
var constants string

// states of tasks, which programs do not see.
// Source: Linux, include/linux/sched.h.
var states = map[string]uint64{"TASK_RUNNING": 0, "TASK_INTERRUPTIBLE": 1, "TASK_UNINTERRUPTIBLE": 2, "__TASK_STOPPED": 4, "__TASK_TRACED": 8,
	"EXIT_DEAD": 0x10, "EXIT_ZOMBIE": 0x20, "TASK_PARKED": 0x40, "TASK_DEAD": 0x80, "TASK_WAKEKILL": 0x100, "TASK_NOLOAD": 0x400, "TASK_IDLE": 0x402, "TASK_NEW": 0x800}

// others are the numbers that differ on other machines, by their names in messages.
// Source: Linux, arch/arm64/include/uapi/asm/fcntl.h and signal.h.
var others = map[string]map[string]uint64{"aarch64": {
	"O_DIRECTORY": 0o40000, "O_NOFOLLOW": 0o100000, "O_DIRECT": 0o200000, "O_LARGEFILE": 0o400000, "O_TMPFILE": 0o20040000,
	"MINSIGSTKSZ": 5120, "SIGSTKSZ": 16384,
}}

// alone are the beginnings of names that x86-64 alone has.
var alone = []string{"MAP_32BIT", "MAP_ABOVE4G", "PTRACE_GETREGS", "PTRACE_SETREGS", "PTRACE_GETFPREGS", "PTRACE_SETFPREGS", "PTRACE_GETFPXREGS",
	"PTRACE_SETFPXREGS", "PTRACE_GET_THREAD_AREA", "PTRACE_SET_THREAD_AREA", "PTRACE_ARCH_PRCTL", "SA_RESTORER", "ARCH_", "REG_"}

// Constant is the number of a name on a machine; false: no header that is known defines it.
func Constant(name, machine string) (n uint64, ok bool) {
	for _, prefix := range []string{"__NR_", "SYS_"} {
		if call, is := strings.CutPrefix(name, prefix); is {
			n := calls.Number(call)
			return uint64(n), n >= 0 && machine == "x86_64"
		}
	}
	if n, ok = states[name]; ok {
		return n, true
	}
	if machine != "x86_64" {
		if n, ok = others[machine][name]; ok {
			return n, true
		}
		for _, prefix := range alone {
			if strings.HasPrefix(name, prefix) {
				return 0, false
			}
		}
	}
	_, rest, found := strings.Cut(constants, "\n"+name+" ")
	if !found {
		return 0, false
	}
	text, _, _ := strings.Cut(rest, "\n")
	v, err := strconv.ParseInt(text, 10, 64)
	return uint64(v), err == nil
}
