package x86

import (
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	"kprobe/internal/segment"
)

// readHelpers are the helpers that read memory, in the order of their code. Whose an address is, that
// itself says where a helper does not: the kernel has the upper half.
var readHelpers = []struct {
	id   int32
	text bool
	user func(*inject.Readers) arch.Addr
	own  func(*inject.Readers) arch.Addr
}{
	{bpf.FnProbeRead, false, userReader, kernelReader},
	{bpf.FnProbeReadUser, false, userReader, nil},
	{bpf.FnProbeReadKernel, false, nil, kernelReader},
	{bpf.FnProbeReadStr, true, userTextReader, kernelTextReader},
	{bpf.FnProbeReadUserStr, true, userTextReader, nil},
	{bpf.FnProbeReadKernelStr, true, nil, kernelTextReader},
}

func kernelReader(r *inject.Readers) arch.Addr     { return r.Kernel }
func kernelTextReader(r *inject.Readers) arch.Addr { return r.KernelText }
func userReader(r *inject.Readers) arch.Addr       { return r.User }
func userTextReader(r *inject.Readers) arch.Addr   { return r.UserText }

// stackContext is Machine.StackContext.
const stackContext = 1<<WordFP | 1<<WordIP | 1<<WordSP | 1<<15 - 1

// readersX86 is Machine.readers.
func readersX86(r *inject.Readers, base, keep arch.Addr) (code []byte, at map[int32]arch.Addr) {
	a := NewAsm(base, false)
	at = make(map[int32]arch.Addr)
	for _, h := range readHelpers {
		at[h.id] = a.Here()
		called, failed, done := inject.NewLabel(), inject.NewLabel(), inject.NewLabel()
		a.Registers(x86.OpXchg, arch.DX, arch.SI) // source, size
		a.Put(x86.AppendPush(nil, x86.RDI)...)
		a.Put(x86.AppendPush(nil, x86.RDX)...)
		a.test(arch.SI)
		user := inject.NewLabel()
		switch {
		case h.own == nil:
			a.call(h.user(r))
		case h.user == nil:
			a.call(h.own(r))
		default:
			a.Jcc(x86.CondNS, user)
			a.call(h.own(r))
			a.jmp(called)
			a.Place(user)
			a.call(h.user(r))
		}
		a.Place(called)
		a.Put(x86.AppendPop(nil, x86.RCX)...)
		a.Put(x86.AppendPop(nil, x86.RDI)...)
		a.test(arch.AX)
		a.Jcc(x86.CondS, failed)
		if h.text {
			// Some kernels count an empty text of a task without its end.
			a.Jcc(x86.CondNE, done)
			a.Insn(8, x86.OpUnary, x86.Reg(x86.Neg), x86.In(x86.RCX))
			a.aluImm(8, x86.Adc, x86.In(x86.RAX), 0)
		}
		a.Place(done)
		a.Ret()
		a.Place(failed)
		a.Insn(4, x86.Xor.ToRM(), x86.RAX, x86.In(x86.RAX))
		a.Put(0xf3, 0xaa) // rep stosb
		a.Put(x86.AppendImm(x86.Append(nil, 8, x86.OpStoreImm, 0, x86.In(x86.RAX)), 4, efault)...)
		a.Ret()
		a.align()
	}
	if r.Stack != 0 {
		at[bpf.FnGetStackid] = a.Here()
		a.readStack(r, keep)
		a.align()
	}
	a.Finish()
	return a.Code, at
}

// align goes on where a routine may begin.
func (a *Asm) align() {
	for len(a.Code)%16 != 0 {
		a.Put(x86.ByteInt3)
	}
}

// readStack is get_stackid(context, map, flags).
func (a *Asm) readStack(r *inject.Readers, keep arch.Addr) {
	const (
		kernelCS  = 0x10
		userStack = 1 << 8 // BPF_F_USER_STACK
		regsSize  = 8 * (wordSS + 1)
	)
	invalid, others := inject.NewLabel(), inject.NewLabel()
	a.Put(x86.AppendTestImm(nil, 8, x86.RDX, int32(^(inject.StackSkip | inject.StackFlags)))...)
	a.Jcc(x86.CondNE, invalid)
	a.Put(x86.AppendTestImm(nil, 4, x86.RDX, userStack)...)
	a.Jcc(x86.CondNE, others)
	for _, kept := range []x86.Reg{x86.RBX, x86.RSI, x86.RDX} {
		a.Put(x86.AppendPush(nil, kept)...)
	}
	// The context says that it is a program's.
	a.Lea(arch.SP, arch.SP, -regsSize)
	a.Mov(arch.BX, arch.SI)
	a.Mov(arch.SI, arch.DI)
	a.Mov(arch.DI, arch.SP)
	a.MovConst(arch.CX, regsSize/8)
	a.Put(0xf3, 0x48, 0xa5) // rep movsq
	a.StoreConst(arch.SP, 8*WordCS, kernelCS)

	a.Insn(4, x86.OpMovzx8, x86.RCX, x86.In(x86.RDX)) // those to be skipped
	a.load32(arch.DX, arch.BX, int(layout.HdrValueSize))
	a.shr32(arch.DX, 3)
	a.Lea(arch.SI, arch.R12, segment.StateTrace)
	a.Mov(arch.DI, arch.SP)
	a.call(r.Stack)
	a.Insn(4, x86.OpStore, x86.RAX, x86.In(x86.R11))
	a.Lea(arch.SP, arch.SP, regsSize)
	a.Put(x86.AppendPop(nil, x86.R8)...)
	a.Put(x86.AppendPop(nil, x86.RSI)...)
	a.Put(x86.AppendJmp(nil, int32(keep-a.Here()-x86.JmpLen))...)

	a.Place(invalid)
	a.Put(x86.AppendImm(x86.Append(nil, 8, x86.OpStoreImm, 0, x86.In(x86.RAX)), 4, -bpf.EINVAL)...)
	a.Ret()
	a.Place(others) // the program's stack, which the kernel does not follow
	a.Put(x86.AppendImm(x86.Append(nil, 8, x86.OpStoreImm, 0, x86.In(x86.RAX)), 4, efault)...)
	a.Ret()
}

const efault = -bpf.EFAULT
