package arm64

import (
	"encoding/binary"
	"fmt"

	"kprobe/arch"
	"kprobe/internal/asm/a64"
	"kprobe/internal/inject"
	"kprobe/internal/segment"
)

// Detours of arm64. A probe that only counts does so of all threads in one word, by a load and a store
// exclusive, which every processor has. No flag is touched, nothing is asked of the thread, and its stack is
// used as the calls of C use it: what is below the stack pointer is nobody's, but in Go (Detour.RedZone).
//
//	        b from the probe
//	Before  stp x0, x1; str x2
//	        ldr x0, the counter's address, which stands behind the code
//	again   ldxr x1; add; stxr w2; cbnz w2, again
//	After   ldr x2; ldp x0, x1
//	        the displaced instruction; b back
//
// A single step or a breakpoint between the two exclusives would have the store fail, again and again: so no
// thread is led through here in steps. Where one must not be seen here, its count is taken back and it is
// put before the instruction, to come again (Standing.Counted).
//
// One with programs finds the thread's state, by the thread pointer, and counts there, with plain
// instructions: no signal handler of the thread's runs meanwhile, since whoever is stopped for a signal
// in here is put back or led out first. See doc.go for the phases.

// StatusReg tells whether a store exclusive has failed.
const StatusReg arch.Reg = 2

// The words, and what goes into their fields.
const (
	A64SaveTwo  = 0xa98007e0                    // stp x0, x1, [sp, #field*8]!
	a64Save     = a64.STR | 31<<5 | 2           // str x2, [sp, #field*8]
	a64LoadHere = 0x58000000                    // ldr x0, pc+field*4
	a64LoadExcl = 0xc85f7c01                    // ldxr x1, [x0]
	a64Increase = a64.AddImm | 1<<10 | 1<<5 | 1 // add x1, x1, #1
	a64StorExcl = 0xc8027c01                    // stxr w2, x1, [x0]
	a64Again    = 0x35ffffa2                    // cbnz w2, three words before it
	a64Restore  = a64.LDR | 31<<5 | 2           // ldr x2, [sp, #field*8]
	A64BackTwo  = 0xa8c007e0                    // ldp x0, x1, [sp], #field*8

	a64SaveLink    = 0xa9017be2 // stp x2, x30, [sp, #16]
	a64RestoreLink = 0xa9417be2 // ldp x2, x30, [sp, #16]
	a64Reach       = 0xf84003ff // ldur xzr, [sp, #field]

	a64Load      = a64.LDR                                // ldr x, [base, #field*8]
	a64Store     = a64.STR                                // str x, [base, #field*8]
	a64Store32   = a64.Store | 2<<30                      // str w, [base, #field*4]
	a64LoadByte  = a64.Load                               // ldrb w, [base, #field]
	a64StoreByte = a64.Store                              // strb w, [base, #field]
	a64AddImm    = a64.AddImm                             // add x, x, #field; of sp, too
	A64SubImm    = a64.SubImm                             // sub x, x, #field
	a64Add       = a64.Add | a64.Wide                     // add x, x, x
	a64Sub       = a64.Sub | a64.Wide                     // sub x, x, x
	a64Mul       = a64.Madd | a64.Wide | 31<<10           // mul x, x, x
	a64Move      = a64.Orr | a64.Wide | 31<<5             // mov x, x
	a64ADR       = a64.ADR                                // adr x, pc+field
	a64CBZ       = a64.CBZ | a64.Wide                     // cbz x, pc+field*4
	a64CBNZ      = a64.CBNZ | a64.Wide                    // cbnz x, pc+field*4
	a64CBNZ32    = a64.CBNZ                               // cbnz w, pc+field*4
	a64B         = a64.B                                  // b pc+field*4
	a64BL        = a64.BL                                 // bl pc+field*4
	a64BR        = a64.BR                                 // br x
	a64GetTP     = 0xd53bd040                             // mrs x, tpidr_el0
	a64GetFlags  = 0xd53b4200                             // mrs x, nzcv
	a64SetFlags  = 0xd51b4200                             // msr nzcv, x
	a64One       = 0x52800020                             // mov w, #1
	a64Hash      = 0xd340fc00 | segment.HashShift64<<16   // lsr x, x, #HashShift64
	a64HashMask  = 0x121c0000 | (segment.TableBits-1)<<10 // and w, w, #HashMask

	a64NOP = a64.NOP
)

// a64Flags are N, Z, C and V.
const a64Flags = 0xf << 28

// The registers that a detour with programs works with, and others of a meaning.
const (
	a64Tmp   uint32 = 0
	a64State uint32 = 1 // the thread's state, once found
	a64Other uint32 = 2
	a64FP    uint32 = 29
	a64Link  uint32 = 30
	a64SP    uint32 = 31
	a64Zero  uint32 = 31
)

// a64BackAt is where, from the private stack's beginning, a program's detour has the address to go on at.
const a64BackAt = 8

// armBuilder writes one detour.
type armBuilder struct {
	*inject.Output
	d    *inject.Detour
	m    *inject.Machine
	cold []func() // code for what seldom happens, put behind the rest
	refs []a64Ref
	ends bool // what is written serves an Exit
}

// a64Ref is a word with a field of n bits at a place that leads to a label.
type a64Ref struct {
	off   int
	to    *inject.Label
	n, at int
}

func (b *armBuilder) word(w uint32) {
	b.Put(binary.LittleEndian.AppendUint32(nil, w)...)
}

// buildARM64 makes a detour of arm64. Errors: of Tail; what detours here do not do.
func buildARM64(d *inject.Detour, silent bool) (*inject.Generated, error) {
	g := inject.NewGenerated(d, silent)
	b := &armBuilder{Output: g.Output, d: d, m: d.Area.Of.Machine}
	if err := b.serves(); err != nil {
		return nil, err
	}
	var err error
	if d.Head != nil {
		if g.Head, err = d.Head(d.At); err != nil {
			return nil, err
		}
		g.Code = append(g.Code, g.Head.Code...)
	}
	address := -1
	if d.Together() {
		address = b.count()
	} else if err := b.serve(); err != nil {
		return nil, err
	}
	g.TailAt = len(g.Code)
	g.Out = g.TailAt
	if g.Tail, err = d.Tail(g.Here()); err != nil {
		return nil, err
	}
	g.Code = append(g.Code, g.Tail.Code...)
	for i := 0; i < len(b.cold); i++ {
		b.cold[i]()
	}
	if err := b.finish(); err != nil {
		return nil, err
	}
	if address < 0 {
		return g, nil
	}
	for g.Here()%8 != 0 {
		g.Code = binary.LittleEndian.AppendUint32(g.Code, a64NOP)
	}
	field := uint32(len(g.Code)-address) / 4
	binary.LittleEndian.PutUint32(g.Code[address:], a64LoadHere|field<<5)
	g.Code = binary.LittleEndian.AppendUint64(g.Code, uint64(d.Area.Of.Segment.Everyone(d.Hits)))
	return g, nil
}

// serves tells what cannot be done.
func (b *armBuilder) serves() error {
	d := b.d
	if d.Return != nil || d.Gate || d.Cond != 0 {
		return fmt.Errorf("detours for arm64 count, run programs, and watch calls at the function's exits: not so that of %v", d.Site)
	}
	for _, p := range d.Programs {
		if p.Override {
			return fmt.Errorf("detours for arm64 do not override a function: not so that of %v", d.Site)
		}
	}
	return nil
}

// count is the whole of a probe that only counts; it answers where the instruction is that loads the
// counter's address.
func (b *armBuilder) count() (address int) {
	const third = 16 // from the stack pointer on, where x2 is
	frame := segment.RoundUp(third+8+b.d.RedZone, 16)
	now := &b.Now
	b.saveTwo(frame)
	b.word(a64Save | third/8<<10)
	now.Reg[2] = inject.Place{Kind: inject.OnStack, Off: third - frame}
	address = len(b.Code)
	b.word(a64LoadHere)
	b.word(a64LoadExcl)
	b.word(a64Increase)
	b.word(a64StorExcl)
	now.Phase, now.Tried = inject.After, true
	b.word(a64Again)
	now.Tried = false
	b.word(a64Restore | third/8<<10)
	now.Reg[2] = inject.Place{}
	b.backTwo(frame)
	return address
}

// saveTwo makes a frame on the program's stack and stores x0 and x1 there; backTwo ends that.
func (b *armBuilder) saveTwo(frame int) {
	b.Deepens()
	b.word(A64SaveTwo | uint32(-frame/8)&(1<<7-1)<<15)
	b.Now.SP = -frame
	b.Now.Reg[0], b.Now.Reg[1] = inject.Place{Kind: inject.OnStack, Off: -frame}, inject.Place{Kind: inject.OnStack, Off: 8 - frame}
}

func (b *armBuilder) backTwo(frame int) {
	b.word(A64BackTwo | uint32(frame/8)&(1<<7-1)<<15)
	b.Now.Reg[0], b.Now.Reg[1], b.Now.SP = inject.Place{}, inject.Place{}, 0
}

// reach makes sure that so much more of the program's own stack is there as routines take, as long as nothing has happened yet.
func (b *armBuilder) reach() {
	b.Deepens()
	b.word(a64Reach | uint32(-b.m.Depth)&(1<<9-1)<<12)
}

// serve is a detour with programs.
func (b *armBuilder) serve() error {
	const two = 16 // from the stack pointer on, where x2 and the link register are
	frame := segment.RoundUp(2*two+b.d.RedZone, 16)
	b.saveTwo(frame)
	b.word(a64SaveLink)
	b.Now.Reg[2], b.Now.Reg[a64Link] = inject.Place{Kind: inject.OnStack, Off: two - frame}, inject.Place{Kind: inject.OnStack, Off: two + 8 - frame}
	if len(b.d.Enters)+len(b.d.Exits) > 0 {
		b.reach()
	}
	if err := b.find(); err != nil {
		return err
	}
	missed, restored := inject.NewLabel(), inject.NewLabel()
	b.enter(missed)
	b.Now.More = len(b.d.Enters)+len(b.d.Exits) > 0
	if err := b.run(b.d.Programs, b.d.Hits, nil); err != nil {
		return err
	}
	if err := b.others(); err != nil {
		return err
	}
	b.access(a64StoreByte, a64Zero, a64State, segment.StateBusy)
	b.Now.Busy, b.Now.Phase = false, inject.After
	b.place(restored)
	b.word(a64RestoreLink)
	b.Now.Reg[2], b.Now.Reg[a64Link] = inject.Place{}, inject.Place{}
	b.backTwo(frame)
	b.later(missed, func() {
		b.reach()
		if b.d.Missed != inject.NoCounter {
			b.lose(b.d.Missed)
		}
		for _, e := range b.d.Enters {
			b.lose(e.Missed)
		}
		b.Now.Phase = inject.After
		b.branch(a64B, 0, restored)
	})
	return nil
}

// find leaves the thread's state in a64State. Whoever is not where the table has it, or is to be
// careful, asks the routine for it. See internal/segment/keys.go.
func (b *armBuilder) find() error {
	unknown, found := inject.NewLabel(), inject.NewLabel()
	if err := b.address(a64Other, b.d.Area.Addr); err != nil {
		return err
	}
	b.access(a64LoadByte, a64Tmp, a64Other, inject.AreaCareful)
	b.branch(a64CBNZ32, a64Tmp, unknown)
	b.word(a64GetTP | a64Tmp)
	b.branch(a64CBZ, a64Tmp, unknown)
	b.constant(a64State, segment.KeyFactor)
	b.word(a64Mul | a64State<<16 | a64Tmp<<5 | a64State)
	b.word(a64Hash | a64State<<5 | a64State)
	b.word(a64HashMask | a64State<<5 | a64State)
	b.access(a64Load, a64Other, a64Other, inject.AreaTable)
	b.word(a64Add | a64Other<<16 | a64State<<5 | a64State)
	b.access(a64Load, a64Other, a64State, 0)
	b.word(a64Sub | a64Tmp<<16 | a64Other<<5 | a64Other)
	b.branch(a64CBNZ, a64Other, unknown)
	b.access(a64Load, a64State, a64State, 8)
	b.branch(a64CBZ, a64State, unknown) // a handler that interrupts the routine which makes one
	b.place(found)
	b.Now.State = arch.Reg(a64State)
	routine := b.d.Area.Routine("identify")
	b.later(unknown, func() {
		b.reach()
		b.call(routine)
		b.Now.State = arch.Reg(a64State)
		b.branch(a64B, 0, found)
	})
	return nil
}

// enter makes sure that the controller is there, and that this thread is not inside a program
// already; from now on it is.
func (b *armBuilder) enter(missed *inject.Label) {
	b.address(a64Other, b.d.Area.Addr) // in reach, as find has seen
	b.access(a64Load, a64Other, a64Other, inject.AreaHead)
	b.access(a64LoadByte, a64Tmp, a64Other, segment.HeadDead)
	b.branch(a64CBNZ32, a64Tmp, missed)
	b.access(a64LoadByte, a64Tmp, a64State, segment.StateBusy)
	b.branch(a64CBNZ32, a64Tmp, missed)
	b.word(a64One | a64Tmp)
	b.access(a64StoreByte, a64Tmp, a64State, segment.StateBusy)
	b.Now.Busy = true
}

// increase counts one in a counter of the state; it changes a64Tmp and a64Other. Who has counted
// must not begin again.
func (b *armBuilder) increase(state uint32, n int) {
	base, off := state, segment.Counter(n)
	if off >= 8<<12 {
		b.constant(a64Other, uint64(off))
		b.word(a64Add | state<<16 | a64Other<<5 | a64Other)
		base, off = a64Other, 0
	}
	b.access(a64Load, a64Tmp, base, off)
	b.word(a64AddImm | 1<<10 | a64Tmp<<5 | a64Tmp)
	b.access(a64Store, a64Tmp, base, off)
	b.Now.Phase = max(b.Now.Phase, inject.Running)
}

// lose increases a counter of the thread's state. That may be the sink's state, which threads share.
func (b *armBuilder) lose(n int) {
	b.constant(a64Other, uint64(segment.Counter(n)))
	b.word(a64Add | a64State<<16 | a64Other<<5 | a64Other)
	b.call(b.d.Area.Routine("lose"))
	b.Now.Phase = max(b.Now.Phase, inject.Running)
}

// access loads or stores at a distance that the field holds.
func (b *armBuilder) access(op, r, base uint32, off int) {
	switch op {
	case a64Load, a64Store:
		off /= 8
	case a64Store32:
		off /= 4
	}
	b.word(op | uint32(off)<<10 | base<<5 | r)
}

// constant puts a value into a register.
func (b *armBuilder) constant(r uint32, v uint64) {
	for _, w := range a64.Constant(r, v) {
		b.word(w)
	}
}

// address puts an address in reach of adrp into a register. Errors: it is not.
func (b *armBuilder) address(r uint32, to arch.Addr) error {
	w, ok := a64.Page(r, b.Here(), to)
	if !ok {
		return fmt.Errorf("%v is out of reach of %v", to, b.Here())
	}
	b.word(w)
	b.word(a64.AddLow(r, to))
	return nil
}

// call is bl; false where that does not lead there.
func (b *armBuilder) call(to arch.Addr) bool {
	w, ok := a64.Branch(a64.BL, b.Here(), to)
	b.word(w)
	return ok
}

// branch adds a jump to a label, on a register if it is a conditional one.
func (b *armBuilder) branch(op, r uint32, to *inject.Label) {
	if op == a64B {
		b.refer(op, to, 26, 0)
		return
	}
	b.refer(op|r, to, 19, 5)
}

// refer adds a word that leads to a label; without bits of a field it is adr.
func (b *armBuilder) refer(w uint32, to *inject.Label, n, at int) {
	b.refs = append(b.refs, a64Ref{len(b.Code), to, n, at})
	if to.Off < 0 {
		to.Frame = b.Now
	}
	b.word(w)
}

func (b *armBuilder) place(l *inject.Label) { l.Off = len(b.Code) }

// later has code written behind everything else; what holds at the jump to l holds at its start.
func (b *armBuilder) later(l *inject.Label, f func()) {
	b.cold = append(b.cold, func() {
		b.place(l)
		b.Now = l.Frame
		f()
	})
}

// Finish fills in the jumps. Errors: one does not reach.
func (b *armBuilder) finish() error {
	for _, f := range b.refs {
		d, word := f.to.Off-f.off, b.Code[f.off:]
		w := binary.LittleEndian.Uint32(word)
		reach := 1 << 20 // adr
		if f.n == 0 {
			w |= a64.Near(int64(d))
		} else {
			w |= uint32(d/4) & (1<<f.n - 1) << f.at
			reach = 4 << (f.n - 1)
		}
		if d < -reach || d >= reach {
			return fmt.Errorf("the detour of %v is too long", b.d.Site)
		}
		binary.LittleEndian.PutUint32(word, w)
	}
	return nil
}

// joinARM64 makes the flags register of what it is now and of what was saved of it. That an indirect branch
// of ours has led here (BTYPE) is nothing to the program.
func joinARM64(f inject.FlagsAt, now, saved uint64) uint64 {
	const btype = 3 << 10
	now &^= btype
	if f != inject.FlagsInState {
		return now
	}
	return now&^a64Flags | saved&a64Flags
}
