//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package tracee

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/internal/seccomp"
)

// CallInput is the input for a call that is about to be made with these registers.
func (a *ABI) CallInput(r *Registers) *seccomp.Input {
	in := new(seccomp.Input)
	in.Word[seccomp.Call], in.Word[seccomp.Machine] = uint32(r.number()), a.Audit
	put := func(i int, v uint64) {
		b := binary.NativeEndian.AppendUint64(nil, v)
		in.Word[i], in.Word[i+1] = binary.NativeEndian.Uint32(b), binary.NativeEndian.Uint32(b[4:])
	}
	put(2, r.PC()+a.callLen)
	for i, reg := range a.Args(r) {
		put(seccomp.Args+2*i, *reg)
	}
	return in
}

// UnmapInput is the input for unmapping memory some time, from wherever.
func (a *ABI) UnmapInput(addr arch.Addr, size int) *seccomp.Input {
	var r Registers
	r.BeginCall(a.Munmap)
	regs := a.Args(&r)
	*regs[0], *regs[1] = uint64(addr), uint64(size)
	in := a.CallInput(&r)
	in.Unknown = append(in.Unknown, 2, 3)
	for i := seccomp.Args + 2*2; i < len(in.Word); i++ {
		in.Unknown = append(in.Unknown, i)
	}
	return in
}

// ReturnInput is the input for the return from a signal handler, wherever and with
// whatever in the registers: the lifeline's handler must be able to return, and a task
// that makes a call for us, should we die.
func (a *ABI) ReturnInput() *seccomp.Input {
	in := new(seccomp.Input)
	in.Word[seccomp.Call], in.Word[seccomp.Machine] = uint32(a.sigreturn), a.Audit
	for i := seccomp.Machine + 1; i < len(in.Word); i++ {
		in.Unknown = append(in.Unknown, i)
	}
	return in
}
