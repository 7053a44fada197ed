package inject

import (
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/internal/asm/x86"
	"kprobe/internal/segment"
)

// readHelpers are the helpers that read memory, in the order of their code. Whose an address is, that
// itself says where a helper does not: the kernel has the upper half.
var readHelpers = []struct {
	id   int32
	text bool
	user func(*Readers) arch.Addr
	own  func(*Readers) arch.Addr
}{
	{bpf.FnProbeRead, false, userReader, kernelReader},
	{bpf.FnProbeReadUser, false, userReader, nil},
	{bpf.FnProbeReadKernel, false, nil, kernelReader},
	{bpf.FnProbeReadStr, true, userTextReader, kernelTextReader},
	{bpf.FnProbeReadUserStr, true, userTextReader, nil},
	{bpf.FnProbeReadKernelStr, true, nil, kernelTextReader},
}

func kernelReader(r *Readers) arch.Addr     { return r.Kernel }
func kernelTextReader(r *Readers) arch.Addr { return r.KernelText }
func userReader(r *Readers) arch.Addr       { return r.User }
func userTextReader(r *Readers) arch.Addr   { return r.UserText }

// StackContext are the words of the context that Stack may want: a kernel's table of callers counts from any register.
const StackContext = 1<<wordFP | 1<<wordIP | 1<<wordSP | 1<<15 - 1

// readersX86 is Machine.readers.
func readersX86(r *Readers, base, keep arch.Addr) (code []byte, at map[int32]arch.Addr) {
	a := newAsm(base, false)
	at = make(map[int32]arch.Addr)
	for _, h := range readHelpers {
		at[h.id] = a.here()
		called, failed, done := newLabel(), newLabel(), newLabel()
		a.registers(x86.OpXchg, arch.DX, arch.SI) // source, size
		a.put(x86.AppendPush(nil, x86.RDI)...)
		a.put(x86.AppendPush(nil, x86.RDX)...)
		a.test(arch.SI)
		user := newLabel()
		switch {
		case h.own == nil:
			a.call(h.user(r))
		case h.user == nil:
			a.call(h.own(r))
		default:
			a.jcc(x86.CondNS, user)
			a.call(h.own(r))
			a.jmp(called)
			a.place(user)
			a.call(h.user(r))
		}
		a.place(called)
		a.put(x86.AppendPop(nil, x86.RCX)...)
		a.put(x86.AppendPop(nil, x86.RDI)...)
		a.test(arch.AX)
		a.jcc(x86.CondS, failed)
		if h.text {
			// Some kernels count an empty text of a task without its end.
			a.jcc(x86.CondNE, done)
			a.insn(8, x86.OpUnary, x86.Reg(x86.Neg), x86.In(x86.RCX))
			a.aluImm(8, x86.Adc, x86.In(x86.RAX), 0)
		}
		a.place(done)
		a.ret()
		a.place(failed)
		a.insn(4, x86.Xor.ToRM(), x86.RAX, x86.In(x86.RAX))
		a.put(0xf3, 0xaa) // rep stosb
		a.put(x86.AppendImm(x86.Append(nil, 8, x86.OpStoreImm, 0, x86.In(x86.RAX)), 4, efault)...)
		a.ret()
		a.align()
	}
	if r.Stack != 0 {
		at[bpf.FnGetStackid] = a.here()
		a.readStack(r, keep)
		a.align()
	}
	a.finish()
	return a.code, at
}

// align goes on where a routine may begin.
func (a *asm) align() {
	for len(a.code)%16 != 0 {
		a.put(x86.ByteInt3)
	}
}

// readStack is get_stackid(context, map, flags).
func (a *asm) readStack(r *Readers, keep arch.Addr) {
	const (
		kernelCS  = 0x10
		userStack = 1 << 8 // BPF_F_USER_STACK
		regsSize  = 8 * (wordSS + 1)
	)
	invalid, others := newLabel(), newLabel()
	a.put(x86.AppendTestImm(nil, 8, x86.RDX, int32(^(stackSkip | stackFlags)))...)
	a.jcc(x86.CondNE, invalid)
	a.put(x86.AppendTestImm(nil, 4, x86.RDX, userStack)...)
	a.jcc(x86.CondNE, others)
	for _, kept := range []x86.Reg{x86.RBX, x86.RSI, x86.RDX} {
		a.put(x86.AppendPush(nil, kept)...)
	}
	// The context says that it is a program's.
	a.lea(arch.SP, arch.SP, -regsSize)
	a.mov(arch.BX, arch.SI)
	a.mov(arch.SI, arch.DI)
	a.mov(arch.DI, arch.SP)
	a.movConst(arch.CX, regsSize/8)
	a.put(0xf3, 0x48, 0xa5) // rep movsq
	a.storeConst(arch.SP, 8*wordCS, kernelCS)

	a.insn(4, x86.OpMovzx8, x86.RCX, x86.In(x86.RDX)) // those to be skipped
	a.load32(arch.DX, arch.BX, int(layout.HdrValueSize))
	a.shr32(arch.DX, 3)
	a.lea(arch.SI, arch.R12, segment.StateTrace)
	a.mov(arch.DI, arch.SP)
	a.call(r.Stack)
	a.insn(4, x86.OpStore, x86.RAX, x86.In(x86.R11))
	a.lea(arch.SP, arch.SP, regsSize)
	a.put(x86.AppendPop(nil, x86.R8)...)
	a.put(x86.AppendPop(nil, x86.RSI)...)
	a.put(x86.AppendJmp(nil, int32(keep-a.here()-x86.JmpLen))...)

	a.place(invalid)
	a.put(x86.AppendImm(x86.Append(nil, 8, x86.OpStoreImm, 0, x86.In(x86.RAX)), 4, -bpf.EINVAL)...)
	a.ret()
	a.place(others) // the program's stack, which the kernel does not follow
	a.put(x86.AppendImm(x86.Append(nil, 8, x86.OpStoreImm, 0, x86.In(x86.RAX)), 4, efault)...)
	a.ret()
}

const efault = -bpf.EFAULT
