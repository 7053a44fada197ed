package patch

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// A jump to a detour takes more bytes than most instructions have. The instructions under it must
// run elsewhere. A thread may come to an instruction under the jump other than through the first:
// by an unknown branch, by a signal handler that returns, or as a goroutine that was interrupted.
// Then it meets the jump's displacement instead. So the displacement is chosen, by way of the
// detour's address, such that each instruction in there begins with a byte that traps (isa.Guard):
// the thread is then sent on to the displaced copy. Branches that are known are never led into such
// a trap, because a trap is slow.
//
// Where the following instructions must stay as they are, they can: the jump's displacement reads
// over their bytes, and its low bytes only, or none, are left to choose. The detour then goes where
// that leads.

// Body is a function's code, decoded.
type Body struct {
	Part
	After []byte // the bytes behind it: the next function, perhaps
	Insns []Step // in order

	m    isa.ISA
	flow *Flow
}

// Step is one instruction of a Body.
type Step struct {
	Off int
	isa.Insn
}

// NewBody decodes a function; decoding ends at bytes that are no instruction. after has the bytes
// behind the function, as many as the longest instruction has. flow is its module's; nil where
// nothing is known of that: code that belongs to no file may be rewritten by its maker at any time,
// so it gets no jumps.
func NewBody(m isa.ISA, fn Part, after []byte, flow *Flow) *Body {
	const usual = 3 // bytes of an instruction: few are shorter on average
	b := &Body{Part: fn, After: after, m: m, flow: flow, Insns: make([]Step, 0, len(fn.Code)/usual+1)}
	for off := 0; off < len(fn.Code); {
		in, err := m.Decode(fn.Code[off:], fn.Addr+arch.Addr(off))
		if err != nil {
			break
		}
		b.Insns = append(b.Insns, Step{off, in})
		off += in.Len
	}
	return b
}

// index is the index of the instruction at an offset.
func (b *Body) index(off int) (int, bool) {
	return slices.BinarySearchFunc(b.Insns, off, func(s Step, off int) int { return s.Off - off })
}

// filler counts the bytes from an offset on, limit at most, that only fill
// space and that nothing is known to lead to.
func (b *Body) filler(off, limit int) int {
	code := append(b.Code[min(off, len(b.Code)):len(b.Code):len(b.Code)], b.After...)
	start := b.Addr + arch.Addr(off)
	n := 0
	for n < limit {
		in, err := b.m.Decode(code[n:], start+arch.Addr(n))
		if err != nil || !in.Nop && in.Flow != isa.Break {
			break
		}
		n += in.Len
	}
	n = min(n, limit)
	if to, ok := b.flow.Known(start, start+arch.Addr(n)); ok {
		n = int(to - start)
	}
	return n
}

// Tactic is the way in which the bytes for a jump are won.
type Tactic uint8

const (
	Whole   Tactic = iota // the instruction, with filler behind it, is long enough
	Guarded               // others move with it; where they were, bytes trap
	Pun                   // the displacement's last bytes are the following bytes of the text, unchanged
	Moved                 // others move with it, and where they were no byte traps (Flow.Unguarded)
	Ahead                 // others in front of it move, and have the jump (PlanAhead)
	Behind                // a landing pad stays, and the instruction behind it has the jump
)

var tacticNames = [...]string{"whole", "guarded", "pun", "moved", "ahead", "behind"}

func (t Tactic) String() string { return tacticNames[t] }

// Way is one possibility to put a jump at a site.
type Way struct {
	Tactic
	Reach           // where the detour may be
	Displaced int   // bytes of instructions that run in the detour
	Inner     []int // where under the jump instructions began: offsets from the site
	Own       int   // how many bytes of the jump are new; the rest is there already

	lead int // bytes before the jump's opcode: prefixes; of Behind, the landing pad
}

// JumpAt is the offset of the jump itself in the bytes that are written.
func (w *Way) JumpAt() int {
	if w.Tactic == Behind {
		return w.lead
	}
	return 0
}

// Jump is all that is known about putting a jump at a site.
type Jump struct {
	Addr   arch.Addr
	Ahead  int    // how far behind it the probed instruction is: PlanAhead
	Ways   []Way  // the best first; empty: it stays with the trap
	Reason string // why there is no better way

	m         isa.ISA
	code      []byte // from Addr on: all bytes that a Way displaces or reads
	known     bool   // something is known to lead there
	unguarded bool
}

// PlanJump tells how the instruction at addr can be replaced by a jump. The caller checks, by Span,
// whether anything else is in the way there: other probes, or places that must not be probed.
func (b *Body) PlanJump(addr arch.Addr) *Jump {
	j := &Jump{Addr: addr, m: b.m}
	form := b.m.JumpForm()
	off := int(addr - b.Addr)
	first, ok := b.index(off)
	switch {
	case form == nil:
		j.Reason = "how this machine's jumps are written is not known"
		return j
	case b.flow == nil:
		j.Reason = "the code belongs to no file: who writes it may change it"
		return j
	case !ok:
		j.Reason = "it is not the start of an instruction"
		return j
	}
	size := form.Len()
	_, j.known = b.flow.Known(addr, addr+1)
	j.unguarded = b.flow.Unguarded
	j.code = append(b.Code[off:len(b.Code):len(b.Code)], b.After...)

	// One instruction more at a time moves into the detour, until the jump has
	// room or something is in the way. The stretches that are too short are ways
	// too: they leave the bytes behind them as they are.
	var inner []int
	taken, end := 0, false
	for _, in := range b.Insns[first:] {
		if taken >= size || end {
			break
		}
		if taken > 0 {
			inner = append(slices.Clip(inner), taken)
		}
		if form.KeepsLandings && in.Landing && !b.flow.Unpadded {
			j.behind(b, first)
			break
		}
		if j.Reason = b.obstacle(addr, taken, in); j.Reason != "" {
			break
		}
		next := taken + in.Len
		if v, err := b.m.Displace(j.code[:next], addr, addr); err != nil || v.Kind == isa.Refuse {
			j.Reason = v.Reason
			break
		}
		taken = next
		free := taken
		switch in.Flow {
		case isa.Call, isa.IndirectCall:
			end = true
			j.Reason = "a call comes back to what follows it"
		case isa.Jump, isa.IndirectJump, isa.Return, isa.Undefined:
			end = true
			free += b.filler(off+taken, size-min(size, taken))
			j.Reason = "the instruction leaves, and others come to what follows it"
		}
		j.Ways = append(j.ways(form, taken, min(free, size), inner), j.Ways...)
	}
	switch {
	case len(j.Ways) > 0 && j.Ways[0].Tactic != Pun:
		j.Reason = ""
	case j.Reason == "":
		j.Reason = "the function ends"
	}
	return j
}

// behind plans a jump behind a landing pad, the i-th instruction, which stays. A thread that comes
// through the jump has come by the pad, for nothing else leads there. The detour takes the pad's
// effect back, and does it again with the displaced instructions. So the code that runs in between
// sees the state at the pad.
func (j *Jump) behind(b *Body, i int) {
	pad, size := b.Insns[i], b.m.JumpForm().Len()
	switch {
	case i+1 == len(b.Insns) || b.Insns[i+1].Off != pad.Off+pad.Len:
		j.Reason = "the function ends"
		return
	case b.Insns[i+1].Landing:
		j.Reason = "indirect branches may lead to what is behind it, too"
		return
	}
	w := Way{Tactic: Behind, Displaced: pad.Len + b.Insns[i+1].Len, Inner: []int{pad.Len}, Own: pad.Len + size, lead: pad.Len}
	next := j.Addr + arch.Addr(pad.Len)
	if to, ok := b.flow.Known(next, j.Addr+arch.Addr(w.Displaced)); ok {
		j.Reason = fmt.Sprintf("something leads, or refers, to +%d, behind the landing pad", to-j.Addr)
		return
	}
	if v, err := b.m.Displace(j.code[:w.Displaced], j.Addr, j.Addr); err != nil || v.Kind == isa.Refuse {
		j.Reason = v.Reason
		return
	}
	w.Reach = anywhere(next + arch.Addr(size))
	j.Ways = []Way{w}
}

// Passed tells that there is no way but with bytes that are given (Pun), and that nothing is known
// to lead to the site but the code in front of it: then a jump ahead of it is better.
func (j *Jump) Passed() bool { return !j.known && len(j.Ways) > 0 && j.Ways[0].Tactic == Pun }

// PlanAlone is PlanJump where nothing is known but the instruction itself. If that has
// room for a jump, it is all that need be known.
func PlanAlone(m isa.ISA, code []byte, addr arch.Addr) *Jump {
	j := &Jump{Addr: addr, m: m, code: code}
	form := m.JumpForm()
	if form == nil {
		j.Reason = "how this machine's jumps are written is not known"
		return j
	}
	if len(code) < form.Len() {
		j.Reason = fmt.Sprintf("the instruction has %d bytes, a jump %d", len(code), form.Len())
		return j
	}
	if v, err := m.Displace(code, addr, addr); err != nil || v.Kind == isa.Refuse {
		j.Reason = v.Reason
		return j
	}
	if in, err := m.Decode(code, addr); form.KeepsLandings && (err != nil || in.Landing) {
		j.Reason = "indirect branches may lead to it, which must not find a jump there"
		return j
	}
	j.Ways = j.ways(form, len(code), form.Len(), nil)
	return j
}

// obstacle says why an instruction, taken bytes from the site, cannot move with it.
func (b *Body) obstacle(site arch.Addr, taken int, in Step) string {
	start := b.Addr + arch.Addr(in.Off)
	end := min(start+arch.Addr(in.Len), site+arch.Addr(b.m.JumpForm().Len()))
	if taken == 0 {
		start++ // to lead to the site itself is no harm
	}
	if to, ok := b.flow.Known(start, end); ok {
		return fmt.Sprintf("something leads, or refers, to +%d", to-site)
	}
	return ""
}

// ways are the ways to write a jump at the site with the first free bytes at our
// disposal, of which instructions of taken bytes run in the detour.
func (j *Jump) ways(form *isa.JumpForm, taken, free int, inner []int) []Way {
	w := Way{Displaced: taken, Inner: inner, Own: free}
	if free == form.Len() {
		w.Tactic = Whole
		if len(inner) > 0 {
			w.Tactic = Guarded
		}
		if len(inner) > 0 && j.unguarded {
			w.Tactic = Moved
		}
		w.Reach = j.reach(form, 0, free, inner)
		return []Way{w}
	}
	if j.unguarded {
		return nil // a kernel has memory for us in one place: displacements cannot be chosen so
	}
	// The more prefixes, the fewer bytes of the displacement are free. But they
	// are others, and may lead where there is memory to be had.
	var ways []Way
	for lead := 0; lead < free && (len(inner) == 0 || lead < inner[0]); lead++ {
		if len(j.code) < lead+form.Len() {
			break
		}
		w.Tactic, w.lead = Pun, lead
		w.Reach = j.reach(form, lead, free, inner)
		ways = append(ways, w)
	}
	return ways
}

// reach gives the possible values of the displacement's bytes.
func (j *Jump) reach(form *isa.JumpForm, lead, free int, inner []int) Reach {
	r := anywhere(j.Addr + arch.Addr(lead+form.Len()))
	if form.Whole > 0 {
		return r // as far as the machine reaches: Detours gives nothing beyond that
	}
	for i := range form.Rel {
		switch at := lead + 1 + i; {
		case at >= free:
			r.Bytes[i] = Choice(j.code[at])
		case slices.Contains(inner, at) && !j.unguarded:
			r.Bytes[i] = Trapping
		}
	}
	return r
}

// String prints the ways, one a line, and the reason that there is no better one.
func (j *Jump) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v", j.Addr)
	for i := range j.Ways {
		w := &j.Ways[i]
		fmt.Fprintf(&b, "\n  %-7s displaces % x", w.Tactic, j.code[:w.Displaced])
		for _, off := range w.Inner {
			fmt.Fprintf(&b, ", instruction at +%d", off)
		}
		if j.m.JumpForm().Whole > 0 {
			continue
		}
		fmt.Fprintf(&b, "\n          writes %d of %x%02x%v", w.Own, bytes.Repeat([]byte{j.m.JumpForm().Prefix}, w.lead), j.m.JumpForm().Opcode, w.Reach.String())
	}
	if j.Reason != "" {
		fmt.Fprintf(&b, "\n  no more: %s", j.Reason)
	}
	return b.String()
}

// LongestSpan is more than any way's: a jump with prefixes, or the instructions under one.
const LongestSpan = 20

// Beside leaves out the ways that depend on places which are taken. It may be nil.
func (j *Jump) Beside(taken func(arch.Addr) bool) *Jump {
	return j.Without(func(span arch.Range) string {
		for a := span.Start + 1; a < span.End; a++ {
			if taken(a) {
				return "another probe is in the way"
			}
		}
		return ""
	})
}

// Without leaves out the ways that something speaks against. It may be nil.
func (j *Jump) Without(against func(span arch.Range) string) *Jump {
	if j == nil {
		return nil
	}
	left := *j
	left.Ways = nil
	for i := range j.Ways {
		if why := against(j.Span(&j.Ways[i])); why == "" {
			left.Ways = append(left.Ways, j.Ways[i])
		} else {
			left.Reason = why
		}
	}
	return &left
}

// Span is the range of bytes that a way depends on: it covers them, or reads them. No other probe
// may be there, and nothing that must not be probed.
func (j *Jump) Span(w *Way) arch.Range {
	n := max(w.Displaced, w.lead+j.m.JumpForm().Len())
	return arch.Range{Start: j.Addr, End: j.Addr + arch.Addr(n)}
}

// Write is the jump to a detour, or to a stub that leads there, and the trap that it may be ahead
// of. It is as long as Span, so that its writer sees first that all of these bytes are still as
// planned.
func (j *Jump) Write(w *Way, to arch.Addr) Write {
	form, span := j.m.JumpForm(), j.Span(w)
	b := j.bytes(form, w, to)
	old := bytes.Clone(j.code[:span.End-span.Start])
	b = append(b[:w.Own:w.Own], old[w.Own:]...)
	if j.Ahead > 0 {
		copy(b[j.Ahead:], j.m.Arch().Break)
	}
	return Write{Addr: j.Addr, Old: old, New: b}
}

// bytes are the bytes of the jump.
func (j *Jump) bytes(form *isa.JumpForm, w *Way, to arch.Addr) []byte {
	if form.Whole > 0 {
		b, err := j.m.Jump(j.Addr+arch.Addr(w.lead), to)
		if err != nil {
			panic(fmt.Sprintf("patch: a detour was put out of reach: %v", err))
		}
		return append(slices.Clip(j.code[:w.lead]), b...)
	}
	b := bytes.Repeat([]byte{form.Prefix}, w.lead)
	b = append(b, form.Opcode)
	for i := range form.Rel {
		b = append(b, byte((to-w.From)>>(8*i)))
	}
	return b
}

// Emit makes the displaced instructions as they run at an address, followed by
// the way back. Errors: in words, where something of theirs is out of reach.
func (j *Jump) Emit(w *Way, at arch.Addr) (*Slot, error) {
	v, err := j.m.Displace(j.code[:w.Displaced], j.Addr, at)
	if err == nil && v.Kind == isa.Refuse {
		err = &Refusal{j.Addr, v.Reason}
	}
	if err != nil {
		return nil, err
	}
	return &Slot{Addr: at, Code: v.Code, Marks: v.Marks, BreakAt: -1}, nil
}

// Undoing is the beginning of a detour whose jump is behind a landing pad: code that takes back the
// pad's effect, in the state that the pad has left. nil where the pad has done nothing, or there is
// none.
func (j *Jump) Undoing(w *Way, at arch.Addr) *Slot {
	if w.Tactic != Behind {
		return nil
	}
	code := j.m.JumpForm().Undo(j.code[:w.lead])
	if len(code) == 0 {
		return nil
	}
	return &Slot{Addr: at, Code: code, Marks: []isa.Mark{{PC: j.Addr + arch.Addr(w.lead)}}, BreakAt: -1}
}

// Copy finds where in a slot a thread goes on that, to the program, stands at
// the start of one of the instructions displaced there.
func (s *Slot) Copy(pc arch.Addr) (arch.Addr, bool) {
	for _, m := range s.Marks {
		if m.PC == pc && m.SP == 0 && !m.HasLink {
			return s.Addr + arch.Addr(m.Off), true
		}
	}
	return 0, false
}

// CopyOfCall is Copy for a thread that is in a system call, and stands at the instruction after it:
// right behind the call's copy. The kernel steps back from there to make the call again.
func (s *Slot) CopyOfCall(next arch.Addr) (arch.Addr, bool) {
	for _, m := range s.Marks {
		if m.PC == next && m.SP == 0 {
			return s.Addr + arch.Addr(m.Off), true
		}
	}
	return 0, false
}
