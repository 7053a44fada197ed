//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/target"
)

// dumping are the signals whose default action is to dump core (signal(7)). SIGTRAP is not among
// them: while there are probes the lifeline deals with it.
const dumping = 1<<(unix.SIGQUIT-1) | 1<<(unix.SIGILL-1) | 1<<(unix.SIGABRT-1) | 1<<(unix.SIGBUS-1) | 1<<(unix.SIGFPE-1) |
	1<<(unix.SIGSEGV-1) | 1<<(unix.SIGXCPU-1) | 1<<(unix.SIGXFSZ-1) | 1<<(unix.SIGSYS-1)

// Dumps tells whether a stopped thread's signal will end the process, core dumped: by
// default it does, but for the init process of a namespace.
func (p *Process) Dumps(th target.Thread, signal int) bool {
	ends, init := p.byDefault(th, signal)
	return ends && !init
}

// Outlives tells whether a stopped thread's fault will not end the process although it does by
// default. That is so of the init process of a namespace while it is traced (force_sig_info_to_task
// in kernel/signal.c): the kernel drops the signal, and the instruction faults again, for ever.
func (p *Process) Outlives(th target.Thread, signal int) bool {
	ends, init := p.byDefault(th, signal)
	return ends && init
}

// byDefault tells whether a signal ends a process, core dumped, and whether this is the init
// process of its namespace, which it does not end so easily.
func (p *Process) byDefault(th target.Thread, signal int) (ends, init bool) {
	if signal < 1 || signal > 64 || dumping>>(signal-1)&1 == 0 {
		return false, false
	}
	for _, set := range []string{"SigCgt", "SigIgn"} {
		if set, err := signalSet(p.pid, int(th), set); err != nil || set>>(signal-1)&1 != 0 {
			return false, false
		}
	}
	pids, err := statusField(p.pid, p.pid, "NStgid")
	ids := strings.Fields(pids)
	return err == nil && len(ids) > 0, len(ids) > 0 && ids[len(ids)-1] == "1"
}
