package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// WaitedFor tells whether a thread of this program waits for a process, or for any.
func WaitedFor(pid int) bool {
	tids, _ := Process(os.Getpid()).Threads()
	for _, tid := range tids {
		b, err := ReadFile(Thread(tid).File("syscall"), 1<<10) // "running", or the call's number, its arguments, and more
		words := strings.Fields(string(b))
		if err != nil || len(words) < 5 {
			continue
		}
		var call [5]uint64
		for i := range call {
			call[i], _ = strconv.ParseUint(words[i], 0, 64)
		}
		if waitsFor(call[0], call[1:], pid) {
			return true
		}
	}
	return false
}

// waitsFor tells whether a system call waits for a process.
func waitsFor(nr uint64, args []uint64, pid int) bool {
	switch nr {
	case unix.SYS_WAIT4:
		of := int(int32(args[0])) // below -1: a process group, which is not looked at
		return (of == pid || of == -1) && args[2]&unix.WNOTHREAD == 0
	case unix.SYS_WAITID:
		if args[3]&unix.WNOTHREAD != 0 {
			return false
		}
		switch args[0] {
		case unix.P_ALL:
			return true
		case unix.P_PID:
			return int(args[1]) == pid
		case unix.P_PIDFD:
			b, err := Process(os.Getpid()).Read(fmt.Sprintf("fdinfo/%d", args[1]))
			if err != nil {
				return false
			}
			of, err := Field(b, "Pid")
			return err == nil && of == fmt.Sprint(pid)
		}
	}
	return false
}
