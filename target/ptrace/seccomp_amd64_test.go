//go:build linux && amd64

package ptrace

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"
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
	mmap := abi64.callInput(&registers{unix.PtraceRegs{Rax: unix.SYS_MMAP, Rip: 0x1000, Rdx: unix.PROT_READ | unix.PROT_EXEC}})
	const protection = inputArgs + 2*2 // low word of the third argument
	for _, c := range []struct {
		name string
		f    filter
		in   *filterInput
		want bool
	}{
		{"everything", filter{ret(retAllow)}, mmap, true},
		{"everything, and it is logged", filter{ret(retLog)}, mmap, true},
		{"nothing", filter{ret(retKill)}, mmap, false},
		{"an error", filter{ret(retErrno)}, mmap, false},
		{"no program", nil, mmap, false},
		{"a list with it", filter{load(inputCall), jump(unix.BPF_JEQ, unix.SYS_MMAP, 0, 1), ret(retAllow), ret(retKill)}, mmap, true},
		{"a list without it", filter{load(inputCall), jump(unix.BPF_JEQ, unix.SYS_READ, 0, 1), ret(retAllow), ret(retKill)}, mmap, false},
		{"not executable", filter{load(protection), jump(unix.BPF_JSET, unix.PROT_EXEC, 1, 0), ret(retAllow), ret(retKill)}, mmap, false},
		{"not writable", filter{load(protection), jump(unix.BPF_JSET, unix.PROT_WRITE, 1, 0), ret(retAllow), ret(retKill)}, mmap, true},
		{"this machine", filter{load(inputMachine), jump(unix.BPF_JEQ, abi64.audit, 1, 0), ret(retKill), ret(retAllow)}, mmap, true},
		{"from this address", filter{load(2), jump(unix.BPF_JEQ, 0x1002, 1, 0), ret(retKill), ret(retAllow)}, mmap, true},
		{"an argument that is not known", filter{load(protection), ret(retAllow)}, abi64.returnInput(), false},
		{"what it computes", filter{load(inputCall), {Code: unix.BPF_ALU | unix.BPF_ADD, K: 7}, {Code: unix.BPF_MISC},
			{Code: unix.BPF_LD | unix.BPF_IMM, K: 22}, {Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_X, Jt: 0, Jf: 1}, ret(retAllow), ret(retKill)}, abi64.returnInput(), true},
		{"what it remembers", filter{load(inputCall), {Code: unix.BPF_ST, K: 3}, {Code: unix.BPF_LD | unix.BPF_IMM},
			{Code: unix.BPF_LDX | unix.BPF_MEM, K: 3}, {Code: unix.BPF_MISC | unix.BPF_TXA}, jump(unix.BPF_JEQ, unix.SYS_RT_SIGRETURN, 1, 0), ret(retKill), ret(retAllow)}, abi64.returnInput(), true},
		{"over a part", filter{jump(unix.BPF_JA, 1, 0, 0), ret(retKill), ret(retAllow)}, mmap, true},
		{"past its end", filter{jump(unix.BPF_JA, 9, 0, 0), ret(retAllow)}, mmap, false},
		{"by zero", filter{{Code: unix.BPF_ALU | unix.BPF_DIV}, ret(retAllow)}, mmap, false},
	} {
		if got := c.f.allows(c.in); got != c.want {
			t.Errorf("%s: allowed is %v", c.name, got)
		}
	}
}

// Whatever the kernel hands out, the answer comes, and says no where it does not
// end in a verdict.
func FuzzFilter(f *testing.F) {
	f.Add([]byte{0x20, 0, 0, 0, 0, 0, 0, 0, 0x15, 0, 0, 1, 9, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0xff, 0x7f, 6, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{5, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p filter
		for ; len(b) >= 8; b = b[8:] {
			p = append(p, unix.SockFilter{Code: binary.LittleEndian.Uint16(b), Jt: b[2], Jf: b[3], K: binary.LittleEndian.Uint32(b[4:])})
		}
		if p.allows(abi64.returnInput()) && len(p) == 0 {
			t.Error("no program allows something")
		}
	})
}
