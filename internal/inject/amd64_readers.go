package inject

import (
	"kprobe/arch"
	"kprobe/bpf"
)

// Readers are functions of a kernel that read memory which may not be there, without any
// harm: called as f(destination, source, size) by the rules of C, they answer less than 0 where
// they could not. Those for text answer its length, with the zero that ends it.
//
// A fault of ours would be the kernel's own, with no table to mend it by; theirs are in its table.
type Readers struct{ Kernel, KernelText, User, UserText arch.Addr }

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

// code is these helpers, to stand at an address, and where each begins.
func (r *Readers) code(base arch.Addr) (code []byte, at map[int32]arch.Addr) {
	a := newAsm(base, false)
	at = make(map[int32]arch.Addr)
	for _, h := range readHelpers {
		at[h.id] = a.here()
		called, failed, done := newLabel(), newLabel(), newLabel()
		a.put(0x48, 0x87, 0xf2) // xchg rsi, rdx: source, size
		a.put(0x57)             // push rdi
		a.put(0x52)             // push rdx
		a.put(0x48, 0x85, 0xf6) // test rsi, rsi
		user := newLabel()
		switch {
		case h.own == nil:
			a.call(h.user(r))
		case h.user == nil:
			a.call(h.own(r))
		default:
			a.jcc(ccNS, user)
			a.call(h.own(r))
			a.jmp(called)
			a.place(user)
			a.call(h.user(r))
		}
		a.place(called)
		a.put(0x59)             // pop rcx
		a.put(0x5f)             // pop rdi
		a.put(0x48, 0x85, 0xc0) // test rax, rax
		a.jcc(ccS, failed)
		if h.text {
			// Some kernels count an empty text of a task without its end.
			a.jcc(ccNE, done)
			a.put(0x48, 0xf7, 0xd9)       // neg rcx
			a.put(0x48, 0x83, 0xd0, 0x00) // adc rax, 0
		}
		a.place(done)
		a.put(0xc3)
		a.place(failed)
		a.put(0x31, 0xc0)                                            // xor eax, eax
		a.put(0xf3, 0xaa)                                            // rep stosb
		a.put(0x48, 0xc7, 0xc0, byte(efault&0xff), 0xff, 0xff, 0xff) // mov rax, -EFAULT
		a.put(0xc3)
		for len(a.code)%16 != 0 {
			a.put(0xcc)
		}
	}
	a.finish()
	return a.code, at
}

const efault = -bpf.EFAULT
