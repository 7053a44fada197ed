package unwind

import (
	"encoding/binary"

	"kprobe/symbol"
)

// Regs are the registers that a walk begins with.
type Regs struct{ PC, SP, FP uint64 }

// End tells why a walk has ended.
type End uint8

const (
	AtBottom   End = iota // at the thread's first function
	AtLimit               // there are more frames than were asked for
	Unreadable            // the stack cannot be read there
	Downwards             // the supposed caller's frame lies below
	NotTold               // the code's tables tell of its caller by registers that are not followed, or it changes stacks
	NotKnown              // the code is in no file, and keeps no frame pointers
	FPLost                // the frame is told by the frame pointer, which is not known any more
	OursOpen              // a return probe has the return address, and is served by a handler
)

func (e End) String() string {
	return [...]string{
		AtBottom:   "",
		AtLimit:    "and more",
		Unreadable: "the stack cannot be read further",
		Downwards:  "the next frame would lie below this one",
		NotTold:    "the tables of this code do not say where its caller is",
		NotKnown:   "nothing tells where the caller of this code is",
		FPLost:     "the frame pointer is not known here",
		OursOpen:   "a return probe of kprobe's has the return address",
	}[e]
}

// Walk says how a stack is walked.
type Walk struct {
	Index Index

	// Read reads the target's memory. An error ends the walk.
	Read func(addr uint64, p []byte) error

	// Real answers where a return address leads that lies at a place on the stack: another one
	// where return probes have swapped it. False: it is known to be swapped, and not for what.
	Real func(place, ret uint64) (uint64, bool)

	// Limit is the number of frames that are wanted.
	Limit int
}

// lowest is below all code: runtimes put such an address where there is no caller.
const lowest = 4096

// From walks from a thread's registers: the first frame is its PC, all others are return addresses.
func (w *Walk) From(r Regs) (pcs []uint64, end End) {
	exact := true   // the PC is an instruction that comes next, not one that comes back
	fpKnown := true // r.FP is its frame's
	for {
		if len(pcs) == w.Limit {
			return pcs, AtLimit
		}
		pcs = append(pcs, r.PC)
		look := r.PC
		if !exact {
			look--
		}
		rule, known := w.Index.at(look)
		if back, ok := w.Index.at(r.PC); !exact && ok && back.base() == symbol.OfSignal {
			rule, known = back, true // the kernel's call, with nothing before it
		}
		if !known {
			rule = encode(symbol.FrameRule{CFA: symbol.LikelyFP, Off: 2 * wordSize, FP: symbol.InFrame, FPOff: -2 * wordSize})
		}
		if at, ok := interrupted[rule.base()]; ok {
			user, ok := w.interruption(&r, at, rule)
			if !ok {
				return pcs, Unreadable
			}
			if user {
				return pcs, AtBottom
			}
			exact, fpKnown = true, fpKnown || at.fp >= 0
			continue
		}
		cfa, end := w.frame(r, rule, fpKnown)
		if end != AtBottom || rule.base() == symbol.Outermost {
			return pcs, end
		}
		if cfa <= r.SP && rule.base() != symbol.FromSPPointer {
			return pcs, Downwards
		}
		ret, ok := w.word(cfa - wordSize)
		if !ok {
			return pcs, Unreadable
		}
		if w.Real != nil {
			if ret, ok = w.Real(cfa-wordSize, ret); !ok {
				return pcs, OursOpen
			}
		}
		likely := rule.base() == symbol.LikelyFP
		switch {
		case ret < lowest && likely: // it was no frame: the code that begins a thread says so by a frame pointer of 0
			return pcs, NotKnown
		case ret < lowest:
			return pcs, AtBottom
		}
		if _, known := w.Index.at(ret - 1); likely && !known && len(w.Index) > 0 && !w.mayBeCode(ret) {
			return pcs, NotKnown
		}
		switch rule.fp() {
		case symbol.InFrame:
			r.FP, ok = w.word(cfa + rule.fpOff())
			fpKnown = true
		case symbol.AtFP:
			r.FP, ok = w.word(r.FP)
		case symbol.Lost:
			fpKnown = false
		}
		if !ok {
			return pcs, Unreadable
		}
		r.PC, r.SP, exact = ret, cfa, false
	}
}

// registersAt are the offsets of the interrupted code's registers, -1 for a register that is not
// there.
type registersAt struct{ fp, sp, pc, cs int64 }

var interrupted = map[symbol.FrameBase]registersAt{
	symbol.OfSignal:    {fp: 120, sp: 160, pc: 168, cs: -1}, // ucontext_t, mcontext_t
	symbol.OfRegs:      {fp: 32, sp: 152, pc: 128, cs: 136}, // struct pt_regs
	symbol.OfInterrupt: {fp: -1, sp: 24, pc: 0, cs: 8},
}

// interruption makes r the registers of the code that was interrupted. user tells that it was a
// program, and a kernel's stack ends there.
func (w *Walk) interruption(r *Regs, at registersAt, rule Rule) (user, ok bool) {
	const ring = 3
	base := r.SP + rule.off()
	ok = true
	for _, v := range []struct {
		to *uint64
		at int64
	}{{&r.FP, at.fp}, {&r.SP, at.sp}, {&r.PC, at.pc}} {
		if v.at < 0 {
			continue
		}
		word, known := w.word(base + uint64(v.at))
		*v.to, ok = word, ok && known
	}
	if at.cs >= 0 {
		cs, known := w.word(base + uint64(at.cs))
		user, ok = cs&ring != 0, ok && known
	}
	return user, ok
}

// mayBeCode tells whether there is memory at an address that code without a file could be in.
func (w *Walk) mayBeCode(addr uint64) bool {
	var b [1]byte
	return w.Read(addr, b[:]) == nil
}

// frame is the CFA, if there is a caller.
func (w *Walk) frame(r Regs, rule Rule, fpKnown bool) (cfa uint64, end End) {
	switch rule.base() {
	case symbol.Outermost:
		return 0, AtBottom
	case symbol.FromSP:
		return r.SP + rule.off(), AtBottom
	case symbol.FromSPPointer:
		cfa, ok := w.word(r.SP)
		if !ok {
			return 0, Unreadable
		}
		return cfa + rule.off(), AtBottom
	case symbol.InPLT:
		cfa = r.SP + wordSize
		if r.PC&15 >= rule.plt() {
			cfa += wordSize
		}
		return cfa, AtBottom
	case symbol.FromFP, symbol.FromPointer, symbol.LikelyFP:
		if !fpKnown {
			return 0, FPLost
		}
		cfa = r.FP + rule.off()
		if rule.base() == symbol.FromPointer {
			var ok bool
			if cfa, ok = w.word(cfa); !ok {
				return 0, Unreadable
			}
		}
		if rule.base() == symbol.LikelyFP && (r.FP < r.SP || r.FP%wordSize != 0) {
			return 0, NotKnown
		}
		return cfa, AtBottom
	case symbol.NoFrame:
		return 0, NotKnown
	}
	return 0, NotTold
}

func (w *Walk) word(addr uint64) (uint64, bool) {
	var b [wordSize]byte
	if addr+wordSize < addr || w.Read(addr, b[:]) != nil {
		return 0, false
	}
	return binary.LittleEndian.Uint64(b[:]), true
}
