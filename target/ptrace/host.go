//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"fmt"

	"golang.org/x/sys/unix"

	"kprobe/internal/lifeline"
	"kprobe/internal/tracee"
)

// DiagnoseHost tells what this user can do on this system at all, with any process.
func DiagnoseHost() Diagnosis {
	var d Diagnosis
	add := func(name string, ok bool, format string, args ...any) {
		d = append(d, Check{name, ok, fmt.Sprintf(format, args...)})
	}
	var u unix.Utsname
	unix.Uname(&u)
	add("system", true, "Linux %s on %s: processes of %s", unix.ByteSliceToString(u.Release[:]), tracee.ThisMachine, programsHere())
	if err := watchesHere(); err != nil {
		add("watchpoints", true, "none: %v", err)
	}
	switch scope, err := yamaScope(); {
	case err != nil || scope == "0":
		add("ptrace_scope", true, "processes of yours can be probed")
	case scope == "3":
		add("ptrace_scope", false, "ptrace_scope is 3: nobody may trace until the next boot (kernel.yama.ptrace_scope)")
	case hasCapability(unix.CAP_SYS_PTRACE):
		add("ptrace_scope", true, "ptrace_scope is %s, and CAP_SYS_PTRACE is held: all processes can be probed", scope)
	case scope == "1":
		add("ptrace_scope", true, "ptrace_scope is 1: programs that kprobe starts can be probed; processes that run already with CAP_SYS_PTRACE, or sysctl kernel.yama.ptrace_scope=0")
	default:
		add("ptrace_scope", false, "ptrace_scope is %s: CAP_SYS_PTRACE is needed", scope)
	}
	if hasCapability(unix.CAP_SYS_ADMIN) {
		add("seccomp", true, "processes with a seccomp filter too, where that allows what probes need (CAP_SYS_ADMIN is held)")
	} else {
		add("seccomp", true, "not those with a seccomp filter: to read it takes CAP_SYS_ADMIN")
	}
	if dir, err := lifeline.MakeDir(); err != nil {
		add("journals", false, "no place for journals, by which a killed controller's probes are taken back: %v", err)
	} else {
		add("journals", true, "in %s", dir)
	}
	return d
}
