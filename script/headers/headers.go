// Package headers has the constants that scripts take from headers of C, which nobody reads here: those of a few that
// scripts include, by what Linux on x86-64 has.
package headers

import (
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/script/calls"
)

// families of addresses and kinds of sockets, of <sys/socket.h>: Linux's, wherever kprobe itself runs.
var families = map[string]uint64{"AF_UNSPEC": 0, "AF_UNIX": 1, "AF_LOCAL": 1, "AF_INET": 2, "AF_INET6": 10,
	"AF_NETLINK": 16, "AF_PACKET": 17, "AF_VSOCK": 40, "SOCK_STREAM": 1, "SOCK_DGRAM": 2, "SOCK_RAW": 3}

// states of tasks, of <linux/sched.h>.
var states = map[string]uint64{"TASK_RUNNING": 0, "TASK_INTERRUPTIBLE": 1, "TASK_UNINTERRUPTIBLE": 2, "__TASK_STOPPED": 4, "__TASK_TRACED": 8,
	"EXIT_DEAD": 0x10, "EXIT_ZOMBIE": 0x20, "TASK_PARKED": 0x40, "TASK_DEAD": 0x80, "TASK_WAKEKILL": 0x100, "TASK_NOLOAD": 0x400, "TASK_IDLE": 0x402, "TASK_NEW": 0x800}

// Constant is one that a header defines: "sys/socket.h". false: the header does not, or is not known.
func Constant(header, name string) (uint64, bool) {
	base := header[strings.LastIndexByte(header, '/')+1:]
	switch {
	case base == "socket.h" || base == "sock.h" || base == "in.h":
		n, ok := families[name]
		return n, ok
	case base == "sched.h":
		n, ok := states[name]
		return n, ok
	case runtime.GOOS != "linux" && (strings.HasPrefix(base, "errno") || base == "signal.h"):
		return 0, false // what is known here are another system's
	case strings.HasPrefix(base, "errno") && strings.HasPrefix(name, "E"):
		for n := range syscall.Errno(134) {
			if unix.ErrnoName(n) == name {
				return uint64(n), true
			}
		}
	case base == "signal.h" && strings.HasPrefix(name, "SIG"):
		n := unix.SignalNum(name)
		return uint64(n), n != 0
	case base == "syscall.h" || strings.HasPrefix(base, "unistd"):
		for _, prefix := range []string{"__NR_", "SYS_"} {
			if call, ok := strings.CutPrefix(name, prefix); ok {
				n := calls.Number(call)
				return uint64(n), n >= 0
			}
		}
	}
	return 0, false
}
