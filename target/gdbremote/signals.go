package gdbremote

// GDB numbers signals its own way (its include/gdb/signals.def), which agrees
// with Linux's up to 15, more or less.
const (
	gdbINT  = 2
	gdbTRAP = 5
)

// gdbNumbers are GDB's numbers of Linux's signals 1 to 31; 0 where it has none.
var gdbNumbers = [32]int{
	1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6,
	7:  10, // SIGBUS
	8:  8,
	9:  9,
	10: 30, // SIGUSR1
	11: 11,
	12: 31, // SIGUSR2
	13: 13, 14: 14, 15: 15,
	17: 20, // SIGCHLD
	18: 19, // SIGCONT
	19: 17, // SIGSTOP
	20: 18, // SIGTSTP
	21: 21, 22: 22,
	23: 16, // SIGURG
	24: 24, 25: 25, 26: 26, 27: 27, 28: 28,
	29: 23, // SIGIO
	30: 32, // SIGPWR
	31: 12, // SIGSYS
}

// Real-time signals: Linux's 33 to 63 are GDB's 45 to 75, then 32 is 77 and 64 is 78.
const (
	firstRealtime, lastRealtime = 33, 63
	realtimeOffset              = 45 - firstRealtime
	gdbRealtime32               = 77
	gdbRealtime64               = 78
	gdbUnknown                  = 143
)

// gdbSignal is GDB's number of one of Linux's signals.
func gdbSignal(n int) int {
	switch {
	case n >= firstRealtime && n <= lastRealtime:
		return n + realtimeOffset
	case n == 32:
		return gdbRealtime32
	case n == 64:
		return gdbRealtime64
	case n > 0 && n < len(gdbNumbers) && gdbNumbers[n] != 0:
		return gdbNumbers[n]
	}
	return gdbUnknown
}

// linuxSignal is its reverse; 0 for what Linux does not have.
func linuxSignal(n int) int {
	for l := 1; l <= 64; l++ {
		if gdbSignal(l) == n && n != gdbUnknown {
			return l
		}
	}
	return 0
}
