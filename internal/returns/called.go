package returns

import (
	"bytes"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// A swap takes what is on top of the stack at a function's first instruction for a return address. In code that is jumped or
// returned to it is something else (a count of arguments, a saved register), which the code would read changed. So each word is
// looked at before it is swapped. This is for hits that stop; code in the target does the same (package inject, the
// routine called), and what is said here holds there.

// Origin tells where a call may have come from, in one program.
type Origin struct {
	ISA  isa.ISA
	Read func(arch.Addr, []byte) error // the program's own bytes, without what probes have put there
	Code func(arch.Addr) bool          // there is memory that may be executed
	File func(arch.Addr) bool          // it is of a file
}

// longestCall is that of x86: prefixes, the opcode, and how its operand is told.
const longestCall = 9

// alignment is that of functions in files.
const alignment = 16

// restorers are what signal handlers return to: they end the signal by a system call, are found by these bytes by all
// unwinders, and no call is in front of them.
var restorers = map[int][][]byte{
	8: {
		{0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05}, // mov rax, 15 (rt_sigreturn); syscall
		{0xb8, 15, 0, 0, 0, 0x0f, 0x05},             // the same in eax
	},
	4: {
		{0x58, 0xb8, 119, 0, 0, 0, 0xcd, 0x80}, // pop eax; mov eax, 119 (sigreturn); int 0x80
		{0xb8, 173, 0, 0, 0, 0xcd, 0x80},       // rt_sigreturn
	},
}

// Called tells whether a word may be the return address of a call: it leads to code, behind a call, to what ends a signal,
// or in a file to where nothing comes from in front of it. That is where a context's function returns to, to another
// function or a part of one (makecontext), and no call is in front of these.
func (o *Origin) Called(word arch.Addr) bool {
	if !o.Code(word) {
		return false
	}
	call, end := o.inFront(word)
	if call || o.File(word) && (end || word%alignment == 0) {
		return true
	}
	for _, code := range restorers[o.ISA.Arch().PtrSize] {
		there := make([]byte, len(code))
		if o.Read(word, there) == nil && bytes.Equal(there, code) {
			return true
		}
	}
	return false
}

// inFront tells whether a call is in front of an address, or an instruction that never goes on there.
func (o *Origin) inFront(of arch.Addr) (call, end bool) {
	var b [longestCall]byte
	before := b[:]
	for o.Read(of-arch.Addr(len(before)), before) != nil {
		if before = before[1:]; len(before) == 0 { // a page begins in between, and there is none in front of it
			return false, false
		}
	}
	for ; len(before) > 0; before = before[1:] {
		in, err := o.ISA.Decode(before, of-arch.Addr(len(before)))
		if err != nil || in.Len != len(before) {
			continue
		}
		call = call || in.Flow == isa.Call || in.Flow == isa.IndirectCall
		end = end || in.Flow == isa.Return || in.Flow == isa.IndirectJump
	}
	return call, end
}
