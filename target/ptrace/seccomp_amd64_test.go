//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/internal/seccomp"
	"kprobe/internal/tracee"
)

const (
	retAllow = 0x7fff0000
	retLog   = 0x7ffc0000
	retErrno = 0x00050001
	retKill  = 0x80000000
)

func load(word uint32) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 4 * word}
}

func jump(how uint16, k uint32, yes, no uint8) unix.SockFilter {
	return unix.SockFilter{Code: unix.BPF_JMP | how, K: k, Jt: yes, Jf: no}
}

func ret(k uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET, K: k} }

func TestFilterVerdicts(t *testing.T) {
	mmap := tracee.ABI64.CallInput(&tracee.Registers{PtraceRegs: unix.PtraceRegs{Rax: unix.SYS_MMAP, Rip: 0x1000, Rdx: unix.PROT_READ | unix.PROT_EXEC}})
	const protection = seccomp.Args + 2*2 // low word of the third argument
	for _, c := range []struct {
		name string
		f    seccomp.Filter
		in   *seccomp.Input
		want bool
	}{
		{"everything", seccomp.Filter{ret(retAllow)}, mmap, true},
		{"everything, and it is logged", seccomp.Filter{ret(retLog)}, mmap, true},
		{"nothing", seccomp.Filter{ret(retKill)}, mmap, false},
		{"an error", seccomp.Filter{ret(retErrno)}, mmap, false},
		{"no program", nil, mmap, false},
		{"a list with it", seccomp.Filter{load(seccomp.Call), jump(unix.BPF_JEQ, unix.SYS_MMAP, 0, 1), ret(retAllow), ret(retKill)}, mmap, true},
		{"a list without it", seccomp.Filter{load(seccomp.Call), jump(unix.BPF_JEQ, unix.SYS_READ, 0, 1), ret(retAllow), ret(retKill)}, mmap, false},
		{"not executable", seccomp.Filter{load(protection), jump(unix.BPF_JSET, unix.PROT_EXEC, 1, 0), ret(retAllow), ret(retKill)}, mmap, false},
		{"not writable", seccomp.Filter{load(protection), jump(unix.BPF_JSET, unix.PROT_WRITE, 1, 0), ret(retAllow), ret(retKill)}, mmap, true},
		{"this machine", seccomp.Filter{load(seccomp.Machine), jump(unix.BPF_JEQ, tracee.ABI64.Audit, 1, 0), ret(retKill), ret(retAllow)}, mmap, true},
		{"from this address", seccomp.Filter{load(2), jump(unix.BPF_JEQ, 0x1002, 1, 0), ret(retKill), ret(retAllow)}, mmap, true},
		{"an argument that is not known", seccomp.Filter{load(protection), ret(retAllow)}, tracee.ABI64.ReturnInput(), false},
		{"what it computes", seccomp.Filter{load(seccomp.Call), {Code: unix.BPF_ALU | unix.BPF_ADD, K: 7}, {Code: unix.BPF_MISC},
			{Code: unix.BPF_LD | unix.BPF_IMM, K: 22}, {Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_X, Jt: 0, Jf: 1}, ret(retAllow), ret(retKill)}, tracee.ABI64.ReturnInput(), true},
		{"what it remembers", seccomp.Filter{load(seccomp.Call), {Code: unix.BPF_ST, K: 3}, {Code: unix.BPF_LD | unix.BPF_IMM},
			{Code: unix.BPF_LDX | unix.BPF_MEM, K: 3}, {Code: unix.BPF_MISC | unix.BPF_TXA}, jump(unix.BPF_JEQ, unix.SYS_RT_SIGRETURN, 1, 0), ret(retKill), ret(retAllow)}, tracee.ABI64.ReturnInput(), true},
		{"over a part", seccomp.Filter{jump(unix.BPF_JA, 1, 0, 0), ret(retKill), ret(retAllow)}, mmap, true},
		{"past its end", seccomp.Filter{jump(unix.BPF_JA, 9, 0, 0), ret(retAllow)}, mmap, false},
		{"by zero", seccomp.Filter{{Code: unix.BPF_ALU | unix.BPF_DIV}, ret(retAllow)}, mmap, false},
	} {
		if got := c.f.Allows(c.in); got != c.want {
			t.Errorf("%s: allowed is %v", c.name, got)
		}
	}
}

// For any filter that the kernel hands out, the answer comes, and says no where it does not end in
// a verdict.
func FuzzFilter(f *testing.F) {
	f.Add([]byte{0x20, 0, 0, 0, 0, 0, 0, 0, 0x15, 0, 0, 1, 9, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0xff, 0x7f, 6, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p seccomp.Filter
		for ; len(b) >= 8; b = b[8:] {
			p = append(p, unix.SockFilter{Code: binary.LittleEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.LittleEndian.Uint32(b[4:])})
		}
		if p.Allows(tracee.ABI64.ReturnInput()) && len(p) == 0 {
			t.Error("no program allows something")
		}
	})
}
