package inject

import (
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/layout"
	"kprobe/internal/asm/x86"
)

// Readers are functions of a kernel that read memory which may not be there, without any
// harm: called as f(destination, source, size) by the rules of C, they answer less than 0 where
// they could not. Those for text answer its length, with the zero that ends it.
//
// A fault of ours would be the kernel's own, with no table to mend it by; theirs are in its table.
//
// Stack, 0 where there is none, walks a stack: called as f(registers, addresses, most, skipped) with a struct pt_regs, it
// answers how many there are. It knows the kernel's table of callers, and what the kernel has put in the place of return
// addresses itself.
type Readers struct{ Kernel, KernelText, User, UserText, Stack arch.Addr }

// ReaderStack is how much of the private stack they may take, with the kernel's own way through
// a fault: it is served on the stack that it finds.
const ReaderStack = 8 << 10

// SetReaders has programs read memory by a kernel's functions. Areas planned before do not
// know of it.
func (s *Segment) SetReaders(r Readers) { s.readers = &r }

// readHelpers are the helpers that read memory, in the order of their code. Whose an address is, that
// itself says where a helper does not: the kernel has the upper half.
var readHelpers = []struct {
	id   int32
	text bool
	user func(*Readers) arch.Addr
	own  func(*Readers) arch.Addr
}{
	{bpf.FnProbeRead, false, (*Readers).user, (*Readers).kernel},
	{bpf.FnProbeReadUser, false, (*Readers).user, nil},
	{bpf.FnProbeReadKernel, false, nil, (*Readers).kernel},
	{bpf.FnProbeReadStr, true, (*Readers).userText, (*Readers).kernelText},
	{bpf.FnProbeReadUserStr, true, (*Readers).userText, nil},
	{bpf.FnProbeReadKernelStr, true, nil, (*Readers).kernelText},
}

func (r *Readers) kernel() arch.Addr     { return r.Kernel }
func (r *Readers) kernelText() arch.Addr { return r.KernelText }
func (r *Readers) user() arch.Addr       { return r.User }
func (r *Readers) userText() arch.Addr   { return r.UserText }

// StackContext are the words of the context that Stack may want: a kernel's table of callers counts from any register.
const StackContext = 1<<wordFP | 1<<wordIP | 1<<wordSP | 1<<15 - 1

// code is these helpers, to stand at an address, and where each begins. keep is the routine that makes a stack an element.
func (r *Readers) code(base, keep arch.Addr) (code []byte, at map[int32]arch.Addr) {
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
		r.stack(a, keep)
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

// stack is get_stackid(context, map, flags).
func (r *Readers) stack(a *asm, keep arch.Addr) {
	const (
		kernelCS  = 0x10
		userStack = 1 << 8 // BPF_F_USER_STACK
		regsSize  = 8 * (wordSS + 1)
	)
	invalid, others := newLabel(), newLabel()
	a.put(x86.AppendTestImm(nil, 8, x86.RDX, int32(^(names["STACK_SKIP"] | names["STACK_FLAGS"])))...)
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
	a.lea(arch.SI, arch.R12, stateTrace)
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
