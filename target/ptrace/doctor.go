//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/internal/guardian"
	"kprobe/internal/proc"
	"kprobe/internal/tracee"
)

// tracerOf is the process that traces one; 0 for none.
func tracerOf(pid int) int {
	field, _ := statusField(pid, pid, "TracerPid") // it names the thread that traces
	thread, _ := strconv.Atoi(field)
	if thread == 0 {
		return 0
	}
	if field, err := statusField(thread, thread, "Tgid"); err == nil {
		if tracer, err := strconv.Atoi(field); err == nil {
			return tracer
		}
	}
	return thread
}

// restoring tells whether a guardian traces a process: the controller has died, and the process is
// being restored.
func restoring(pid int) bool {
	tracer := tracerOf(pid)
	return tracer != 0 && guardian.Is(proc.Process(tracer).Read)
}

// Diagnose looks at what ptrace(2) asks for ("Ptrace access mode checking")
// without touching the process.
func Diagnose(pid int) Diagnosis {
	var d Diagnosis
	add := func(name string, ok bool, format string, args ...any) {
		d = append(d, Check{name, ok, fmt.Sprintf(format, args...)})
	}
	state := taskState(pid, pid)
	switch {
	case state == 0:
		add("process", false, "there is no process %d", pid)
		return d
	case isOver(pid):
		add("process", false, "process %d is dead and waits for its parent", pid)
		return d
	}
	add("process", true, "process %d runs (state %c)", pid, state)
	if tgid, err := statusField(pid, pid, "Tgid"); err == nil && tgid != fmt.Sprint(pid) {
		add("thread", false, "%d is a thread of process %s: name that", pid, tgid)
	}
	if pid == os.Getpid() {
		add("self", false, "a process cannot trace itself: run the controller apart")
	}
	privileged := hasCapability(unix.CAP_SYS_PTRACE)
	if tracer := tracerOf(pid); restoring(pid) {
		add("tracer", false, "process %d puts back what a controller that died has left there: try again in a moment", tracer)
	} else if tracer != 0 {
		name, _ := proc.Process(tracer).Name()
		add("tracer", false, "process %d (%s) traces it already: end that first", tracer, name)
	} else {
		add("tracer", true, "no other tracer")
	}
	uids, err := statusField(pid, pid, "Uid")
	if err == nil {
		mine := fmt.Sprint(os.Getuid())
		same := true
		for _, u := range strings.Fields(uids)[:3] {
			same = same && u == mine
		}
		switch {
		case same:
			add("user", true, "it runs as this user (uid %s)", mine)
		case privileged:
			add("user", true, "it runs as uid %s, and CAP_SYS_PTRACE is held", strings.Fields(uids)[0])
		default:
			add("user", false, "it runs as uid %s and you are uid %s: run as that user, or with CAP_SYS_PTRACE", strings.Fields(uids)[0], mine)
		}
		if same && !privileged {
			if _, err := proc.Process(pid).Readlink("exe"); err != nil {
				add("dumpable", false, "it is not dumpable (set-uid, file capabilities or prctl PR_SET_DUMPABLE 0): CAP_SYS_PTRACE is needed")
			} else {
				add("dumpable", true, "it is dumpable")
			}
		}
	}
	add(yama(pid, privileged))
	if mode, err := statusField(pid, pid, "Seccomp"); err == nil {
		switch {
		case mode == "0":
			add("seccomp", true, "no seccomp filter")
		case mode == "2" && hasCapability(unix.CAP_SYS_ADMIN):
			add("seccomp", true, "it has a seccomp filter: probes are refused if that does not allow mmap, munmap, rt_sigaction and rt_sigreturn")
		default:
			add("seccomp", false, "it has a seccomp filter (mode %s): run with CAP_SYS_ADMIN, to see which system calls may be made in it to map memory for slots", mode)
		}
	}
	switch a, err := machineOf(pid); {
	case err != nil:
		add("machine", false, "%v", err)
	default:
		add("machine", true, "a %s program", tracee.ABIOf(a).Name)
	}
	if f, err := statusOf(pid, "x86_Thread_features"); err == nil && strings.Contains(f, "shstk") {
		add("shadow stack", true, "it has a shadow stack: return probes that swap the return address are refused")
	}
	return d
}

// yama looks at the Yama security module's ptrace_scope.
func yama(pid int, privileged bool) (name string, ok bool, format string) {
	name = "ptrace_scope"
	scope, err := yamaScope()
	if err != nil || scope == "0" {
		return name, true, "ptrace_scope does not restrict"
	}
	if scope == "3" {
		return name, false, "ptrace_scope is 3: nobody may trace until the next boot (kernel.yama.ptrace_scope)"
	}
	if privileged {
		return name, true, "ptrace_scope " + scope + ", and CAP_SYS_PTRACE is held"
	}
	if scope == "1" && descends(pid) {
		return name, true, "ptrace_scope 1, and it is a descendant of ours"
	}
	return name, false, "ptrace_scope is " + scope + ": start it under kprobe (kprobe trace ... -- PROGRAM), hold CAP_SYS_PTRACE, or set sysctl kernel.yama.ptrace_scope=0"
}

func yamaScope() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/yama/ptrace_scope")
	return strings.TrimSpace(string(b)), err
}

// descends tells whether a process is a descendant of this one.
func descends(pid int) bool {
	for range 64 {
		parent, err := statusField(pid, pid, "PPid")
		if err != nil || parent == "0" {
			return false
		}
		if parent == fmt.Sprint(os.Getpid()) {
			return true
		}
		fmt.Sscan(parent, &pid)
	}
	return false
}

func hasCapability(c int) bool {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&hdr, &data[0]) != nil {
		return false
	}
	return data[c/32].Effective&(1<<(c%32)) != 0
}
