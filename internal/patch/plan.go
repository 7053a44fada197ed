package patch

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Slot is memory in an arena that a displaced instruction runs in.
type Slot struct {
	Addr  arch.Addr
	Code  []byte     // the bytes to be written there
	Marks []isa.Mark // from an offset in Code to the program's own state

	// BreakAt is the offset of the trap that ends a slot made for
	// post-handlers, and Next the PC that the program has then. -1 for a slot
	// that goes on by itself.
	BreakAt int
	Next    arch.Addr

	// Exits are the slot's traps whose server sends the thread on: see isa.Verdict.
	Exits []isa.Exit
}

// Exit is the address that the trap at a PC inside the slot leads to, if one there stands for a
// jump.
func (s *Slot) Exit(pc arch.Addr) (to arch.Addr, ok bool) {
	for _, e := range s.Exits {
		if pc == s.Addr+arch.Addr(e.Off) {
			return e.To, true
		}
	}
	return 0, false
}

// Mark finds the program's state for a PC inside the slot.
func (s *Slot) Mark(pc arch.Addr) (isa.Mark, bool) {
	off := int(pc - s.Addr)
	i, ok := slices.BinarySearchFunc(s.Marks, off, func(m isa.Mark, off int) int { return m.Off - off })
	if !ok {
		return isa.Mark{}, false
	}
	return s.Marks[i], true
}

// Site is the plan for one probe point.
type Site struct {
	Addr     arch.Addr
	Insn     isa.Insn
	Original []byte // the instruction
	Break    []byte // the bytes that replace its first ones
	Kind     isa.Kind
	Reason   string
	Emulate  func(r *arch.Regs, m arch.Memory) error
	Native   bool  // a slot can run it, even if Kind is Emulate
	Boost    *Slot // runs the instruction and goes on; nil where none can
	Step     *Slot // runs it and traps, for post-handlers; nil until one is needed
}

// Refusal is why no probe can be placed at an address.
type Refusal struct {
	Addr   arch.Addr
	Reason string
}

func (e *Refusal) Error() string {
	return fmt.Sprintf("the instruction at %v cannot be probed: %s", e.Addr, e.Reason)
}

// Analyse plans the probe point for the instruction at the start of code,
// which stands at addr; near is an address that slots for it will be near.
// No slot is given out yet. Errors: *Refusal; isa.ErrUnknown.
func Analyse(m isa.ISA, code []byte, addr, near arch.Addr) (*Site, error) {
	in, err := m.Decode(code, addr)
	if err != nil {
		return nil, err
	}
	v, err := m.Place(code, addr, near)
	if err != nil {
		return nil, err
	}
	if v.Kind == isa.Refuse {
		return nil, &Refusal{addr, v.Reason}
	}
	return &Site{
		Addr: addr, Insn: in, Original: bytes.Clone(code[:in.Len]),
		Break: m.Arch().Break, Kind: v.Kind, Reason: v.Reason, Emulate: v.Emulate,
		Native: len(v.Code) > 0,
	}, nil
}

// HasRun tells of a thread with registers r that stands where it would behind the trap here,
// whether it has executed the instruction rather than the trap. It is not known of one that is no
// longer than a trap, unless it has left something to see.
func (s *Site) HasRun(a *arch.Arch, r *arch.Regs, mem arch.Reader) (run, known bool) {
	if a.BreakPC == 0 || s.Insn.Len > len(s.Break) {
		return false, true
	}
	word := make([]byte, a.PtrSize)
	if !s.Insn.Pushes || mem.ReadAt(r.Addr(a.SP), word) != nil {
		return false, false
	}
	return a.Word(word) == r[s.Insn.Pushed], true
}

// NeedsBoost tells whether a slot to run the instruction in is still to be given out. Emulated
// instructions get one too: threads go there when no controller is left to emulate.
func (s *Site) NeedsBoost() bool { return s.Native && s.Boost == nil }

// NeedsStep tells whether post-handlers need a slot that traps.
func (s *Site) NeedsStep() bool { return s.Emulate == nil && s.Step == nil }

// PlanBoost fills a slot at the address given that goes on by itself.
func (s *Site) PlanBoost(m isa.ISA, at arch.Addr) error {
	v, err := s.place(m, at)
	if err != nil {
		return err
	}
	s.Boost = &Slot{Addr: at, Code: v.Code, Marks: v.Marks, Exits: v.Exits, BreakAt: -1}
	return nil
}

// PlanStep fills a slot at the address given that traps after the instruction. The
// trap hides the first byte of the jump back, no more: so one byte, written while
// the program runs, makes the slot go on by itself (package lifeline).
func (s *Site) PlanStep(m isa.ISA, at arch.Addr) error {
	v, err := s.place(m, at)
	if err != nil {
		return err
	}
	if v.Body == len(v.Code) {
		return &Refusal{s.Addr, "it leaves its slot by itself, so nothing can run after it"}
	}
	var marks []isa.Mark
	for _, mk := range v.Marks {
		if mk.Off <= v.Body {
			marks = append(marks, mk)
		}
	}
	s.Step = &Slot{
		Addr: at, Code: slices.Concat(v.Code[:v.Body], s.Break, v.Code[v.Body+len(s.Break):]), Marks: marks,
		BreakAt: v.Body, Next: s.Addr + arch.Addr(s.Insn.Len),
	}
	return nil
}

func (s *Site) place(m isa.ISA, at arch.Addr) (isa.Verdict, error) {
	v, err := m.Place(s.Original, s.Addr, at)
	if err == nil && v.Kind == isa.Refuse {
		err = &Refusal{s.Addr, v.Reason}
	}
	return v, err
}

// String prints the plan as `kprobe plan` does.
func (s *Site) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v  % x  %s", s.Addr, s.Original, s.Kind)
	if s.Reason != "" {
		fmt.Fprintf(&b, " (%s)", s.Reason)
	}
	for _, sl := range []*Slot{s.Boost, s.Step} {
		if sl == nil {
			continue
		}
		fmt.Fprintf(&b, "\n  slot %v  % x", sl.Addr, sl.Code)
		for _, m := range sl.Marks {
			fmt.Fprintf(&b, "\n    +%-2d pc %v", m.Off, m.PC)
			if m.SP != 0 {
				fmt.Fprintf(&b, " sp %+d", m.SP)
			}
		}
	}
	return b.String()
}

// Write is a change of some bytes: the bytes that must be there before, and those that are there
// afterwards.
type Write struct {
	Addr     arch.Addr
	Old, New []byte
}

// Undo is the write that takes this one back.
func (w Write) Undo() Write { return Write{w.Addr, w.New, w.Old} }

// Span is a run of writes that are near enough to be one transfer.
type Span struct {
	Addr   arch.Addr
	Len    int
	Writes []Write
}

// Spans sorts writes by address and joins those that lie on the same page:
// one read and one write a page is a hundred times cheaper than one a probe.
// Writes that overlap are a mistake of the caller.
func Spans(ws []Write, page arch.Addr) []Span {
	ws = slices.Clone(ws)
	slices.SortFunc(ws, func(a, b Write) int {
		if a.Addr < b.Addr {
			return -1
		}
		return 1
	})
	var spans []Span
	for i, w := range ws {
		end := w.Addr + arch.Addr(len(w.New))
		if i > 0 {
			prev := ws[i-1]
			if prev.Addr+arch.Addr(len(prev.New)) > w.Addr {
				panic(fmt.Sprintf("patch: writes at %v and %v overlap", prev.Addr, w.Addr))
			}
			s := &spans[len(spans)-1]
			if s.Addr&^(page-1) == (end-1)&^(page-1) {
				s.Len = int(end - s.Addr)
				s.Writes = append(s.Writes, w)
				continue
			}
		}
		spans = append(spans, Span{Addr: w.Addr, Len: len(w.New), Writes: []Write{w}})
	}
	return spans
}

// Without takes writes out of spans, which are in order.
func Without(spans []Span, ws []Write) []Span {
	for _, w := range ws {
		i, found := slices.BinarySearchFunc(spans, w.Addr, func(s Span, a arch.Addr) int { return cmp.Compare(s.Addr, a) })
		if !found {
			i--
		}
		if i >= 0 {
			spans[i].Writes = slices.DeleteFunc(spans[i].Writes, func(o Write) bool { return o.Addr == w.Addr })
		}
	}
	return slices.DeleteFunc(spans, func(s Span) bool { return len(s.Writes) == 0 })
}

// Check compares a span's bytes in memory with those that its writes expect.
func (s *Span) Check(have []byte) error {
	for _, w := range s.Writes {
		at := have[w.Addr-s.Addr:][:len(w.Old)]
		if !bytes.Equal(at, w.Old) {
			return &Mismatch{w.Addr, bytes.Clone(at), w.Old}
		}
	}
	return nil
}

// Apply puts the new bytes into those that were read.
func (s *Span) Apply(b []byte) {
	for _, w := range s.Writes {
		copy(b[w.Addr-s.Addr:], w.New)
	}
}

// Mismatch tells that memory is not as planned: others have changed it.
type Mismatch struct {
	Addr       arch.Addr
	Have, Want []byte
}

func (e *Mismatch) Error() string {
	return fmt.Sprintf("memory at %v holds % x instead of % x: somebody else has changed it", e.Addr, e.Have, e.Want)
}
