// Package lifeline keeps a target alive that has lost its controller: code and tables that live in
// the target and need no other process. While a tracer is attached it takes every trap before the
// handler here could. When the tracer is dead, the handler sends each thread that meets a
// breakpoint to the slot with the displaced instruction, and each one that returns to the
// trampoline back to its caller. The program goes on as if unprobed until a recovery reads the
// tables and restores its text.
//
// Everything here is bytes and addresses.
package lifeline

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
	"kprobe/internal/asm/a64"
	"kprobe/internal/asm/ppc64"
	"kprobe/internal/asm/rv64"
	"kprobe/internal/asm/x86"
)

// Magic begins the header, so that a recovery knows what it has found.
const Magic = "KPROBE\x00\x01"

// The header, all of it 8-byte words in the target's order. testdata/*_trap.S have the same
// offsets.
const (
	offID       = 8
	offEntries  = 16
	offCount    = 24
	offReturn   = 32 // the return trampoline's trap, 0 while there is none
	offFrames   = 40
	offMask     = 48
	offOld      = 56 // the program's own sigaction for SIGTRAP, as the kernel has it
	offDefault  = 96 // a sigaction of zeros: SIG_DFL
	offDriven   = 128
	offCode     = 256
	headerSize  = offCode
	entrySize   = 24
	frameSize   = 16
	SigactSize  = 32 // handler, flags, restorer, mask
	handlerRoom = 512
)

// How the handler's code begins with all machines: where a signal handler returns
// to, and where the trampoline leads when its trap has been bypassed.
const (
	restorerAt = 0x140
	returnerAt = 0x150
)

// Dealt is the flag (RF) that a tracer sets in a thread's flags register with the same request that
// moves it on from a trap. Should the tracer die before it can let the thread go without the trap's
// signal, the handler, or the recovery, knows by it that nothing is left to do. The handler takes
// it off, since the thread may have been set back to that very trap. The processor clears it with
// the next instruction.
//
// Other machines have no need of a mark: the signal tells where the trap was, and the thread is not
// there any more. See Mark.
const Dealt = 1 << 16

// Mark is Dealt where a machine has it, else 0.
func Mark(a *arch.Arch) uint64 {
	switch a {
	case arch.AMD64, arch.I386:
		return Dealt
	}
	return 0
}

// Entry is one probe point: the trap at Addr has its instruction carried out
// at Slot, and the first Len of Original are the bytes that the trap replaced, or the
// jump that may stand there as well. Len is 0 for a trap within such a jump.
type Entry struct {
	Addr, Slot arch.Addr
	Original   [7]byte
	Len        byte
}

// IsJump tells whether code begins with a jump as they are put over instructions: on x86
// jmp rel32, with prefixes that mean nothing, and perhaps without its last bytes,
// which were there already.
func IsJump(a *arch.Arch, code []byte) bool {
	switch a {
	case arch.ARM64: // b
		return len(code) >= 4 && code[3]>>2 == 5
	case arch.PPC64LE, arch.RISCV64, arch.S390X:
		return false // none is put over instructions
	}
	return bytes.HasPrefix(bytes.TrimLeft(code, string(rune(x86.PrefixCS))), []byte{x86.ByteJmp})
}

// BypassLen is the length of what Bypass answers.
func BypassLen(a *arch.Arch) int {
	switch a {
	case arch.ARM64, arch.PPC64LE, arch.RISCV64:
		return 4
	case arch.S390X:
		return 6
	}
	return x86.JmpLen
}

// Bypass makes the trap at the end of a slot superfluous: bytes for its address,
// a jump to where the handler would have sent the thread. A slot has room for it,
// since one without post-handlers has the same instruction and such a jump. ok is
// false for the trap of a probe, and for one from which no jump reaches.
func (e Entry) Bypass(a *arch.Arch) (jump []byte, ok bool) {
	if !bytes.HasPrefix(e.Original[:e.Len], a.Break) {
		return nil, false
	}
	switch a {
	case arch.ARM64:
		w, ok := a64.Branch(a64.B, e.Addr, e.Slot)
		return binary.LittleEndian.AppendUint32(nil, w), ok
	case arch.PPC64LE:
		w, ok := ppc64.Branch(e.Addr, e.Slot)
		return binary.LittleEndian.AppendUint32(nil, w), ok
	case arch.RISCV64:
		w, ok := rv64.Jump(e.Addr, e.Slot)
		return binary.LittleEndian.AppendUint32(nil, w), ok
	}
	if a == arch.S390X {
		const jg, reach = 0xc0f4, 1 << 32
		d := int64(e.Slot - e.Addr)
		if d < -reach || d >= reach {
			return nil, false
		}
		return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, jg), uint32(d/2)), true
	}
	rel, _ := x86.Rel(e.Addr+x86.JmpLen, e.Slot) // slots are within reach
	return x86.AppendJmp(nil, rel), true
}

// BypassReturn makes the trap of the return trampoline superfluous: bytes for its
// address, a jump to code in the Trap at base that finds the real return address.
func BypassReturn(a *arch.Arch, base arch.Addr) (code []byte) {
	to := uint64(base + offCode + returnerAt)
	switch {
	case a == arch.ARM64:
		// Where a function returns x16 is free, and a return needs no landing pad.
		load := []byte{0x50, 0, 0, 0x58, 0, 0x02, 0x5f, 0xd6} // ldr x16, .+8; ret x16
		return binary.LittleEndian.AppendUint64(load, to)
	case a == arch.PPC64LE:
		// Where a function returns r12 and the counter are free.
		const by = 12
		for _, w := range append(ppc64.Load(by, to), ppc64.MoveToCTR(by), ppc64.BCTR) {
			code = binary.LittleEndian.AppendUint32(code, w)
		}
		return code
	case a == arch.RISCV64:
		// Where a function returns t6 is free.
		load := []byte{
			0x97, 0x0f, 0, 0, // auipc t6, 0
			0x83, 0xbf, 0x0f, 0x01, // ld t6, 16(t6)
			0x82, 0x8f, 0, 0, 0, 0, 0, 0, // c.jr t6
		}
		return binary.LittleEndian.AppendUint64(load, to)
	case a == arch.S390X:
		// Where a function returns r1 is free.
		load := []byte{
			0xc4, 0x18, 0, 0, 0, 4, // lgrl %r1, .+8
			0x07, 0xf1, // br %r1
		}
		return binary.BigEndian.AppendUint64(load, to)
	case a.PtrSize == 4:
		// over the return address that was popped just now
		return append(x86.AppendPushImm(nil, uint32(to)), x86.ByteRet)
	}
	return x86.AppendJmpFar(nil, arch.Addr(to))
}

// Trap is the handler's memory in one target: a header with code, a hash table
// of swapped return addresses, and the sorted list of entries, which lies
// elsewhere because it grows.
type Trap struct {
	Base   arch.Addr
	ID     uint64 // tells one session's from another's
	Return arch.Addr
	slots  int // of the hash table, a power of two
	table  int // which of the two is in use

	machine   *arch.Arch
	entriesAt arch.Addr
	entries   []Entry
}

// FrameSlots is the size of the table of swapped return addresses.
const FrameSlots = 1 << 14

// Serves tells whether there is a handler for a machine; the error says that there is none.
func Serves(a *arch.Arch) error {
	if handlers[a] == nil {
		return fmt.Errorf("no trap handler for %s", a.Name)
	}
	return nil
}

// NewTrap plans the memory at base. Errors: for machines without a handler.
func NewTrap(a *arch.Arch, base arch.Addr, id uint64) (*Trap, error) {
	if err := Serves(a); err != nil {
		return nil, err
	}
	return &Trap{Base: base, ID: id, slots: FrameSlots, machine: a}, nil
}

// TrapSize is the number of bytes of memory that a Trap takes at its base.
func TrapSize() int { return tablesAt + 2*tableSize }

// The parts behind the header and the handler: room for a tracer that makes a thread of the target
// perform a system call, and the hash table, twice.
const (
	CallRoomAt = headerSize + handlerRoom
	callRoom   = 20 << 10
	tablesAt   = CallRoomAt + callRoom
	tableSize  = FrameSlots * frameSize
)

// words are numbers as a machine's memory has them.
func words(a *arch.Arch, vs ...uint64) []byte {
	b := make([]byte, 8*len(vs))
	for i, v := range vs {
		a.Order.PutUint64(b[8*i:], v)
	}
	return b
}

// Handler and Restorer are the addresses to give to sigaction.
func (t *Trap) Handler() arch.Addr { return HandlerOf(t.Base) }

// Restorer is the address that the handler returns to.
func (t *Trap) Restorer() arch.Addr { return RestorerOf(t.Base) }

// HandlerOf is the Handler of the Trap at base.
func HandlerOf(base arch.Addr) arch.Addr { return base + offCode }

// RestorerOf is the Restorer of the Trap at base.
func RestorerOf(base arch.Addr) arch.Addr { return base + offCode + restorerAt }

func (t *Trap) framesAt() arch.Addr { return t.Base + tablesAt + arch.Addr(t.table*tableSize) }

// swapTable plans the other table with everything that is in it, and then the header's word on it:
// a controller that dies in between leaves the old one whole.
func (t *Trap) swapTable(table []byte) []Write {
	t.table = 1 - t.table
	return []Write{
		{t.framesAt(), table},
		{t.Base + offFrames, words(t.machine, uint64(t.framesAt()))},
	}
}

// SetOld plans another action of the program's own.
func (t *Trap) SetOld(old [SigactSize]byte) []Write {
	return []Write{{t.Base + offOld, slices.Clone(old[:])}}
}

// IsHandler tells whether an action leads to the handler.
func (t *Trap) IsHandler(a [SigactSize]byte) bool { return LeadsTo(t.machine, a, t.Handler()) }

// LeadsTo tells whether an action of a machine's leads to a handler.
func LeadsTo(m *arch.Arch, a [SigactSize]byte, handler arch.Addr) bool {
	return m.Order.Uint64(a[:]) == uint64(handler)
}

// Image has the bytes that are written at Base before anything leads there. old is the program's
// own sigaction.
func (t *Trap) Image(old [SigactSize]byte) []byte {
	b := make([]byte, headerSize, headerSize+len(handlers[t.machine]))
	copy(b, Magic)
	copy(b[offID:], words(t.machine, t.ID, uint64(t.entriesAt), uint64(len(t.entries)), uint64(t.Return), uint64(t.framesAt()), uint64(t.slots-1)))
	copy(b[offOld:], old[:])
	return append(b, handlers[t.machine]...)
}

// Over plans the mark that the session whose Trap is at base has been recovered: it has no ID any
// more. The rest there stays as it is, for threads that stand in it.
func Over(base arch.Addr) Write { return Write{base + offID, make([]byte, 8)} }

// Driven is a thread that the controller leads on in single steps, with a mask of signals that is
// not its own. Should the controller die, the handler, or the recovery, gives it its own again.
type Driven struct {
	TID  uint64 // 0 for none
	Held uint64 // the mask that it has
	Mask uint64 // its own
}

// Drive plans the note on a driven thread, for the session whose Trap is at base: before it gets
// the mask, and when it has its own again.
func Drive(a *arch.Arch, base arch.Addr, d Driven) Write {
	return Write{base + offDriven, words(a, d.TID, d.Held, d.Mask)}
}

// Write is bytes for an address.
type Write struct {
	Addr arch.Addr
	New  []byte
}

// EntriesSize is the room that n entries take.
func EntriesSize(n int) int { return n * entrySize }

// SetEntries plans the list anew at an address with room for it: first the
// entries, then the header's word on them, in this order.
func (t *Trap) SetEntries(at arch.Addr, es []Entry) []Write {
	es = slices.Clone(es)
	slices.SortFunc(es, func(a, b Entry) int {
		if a.Addr < b.Addr {
			return -1
		}
		return 1
	})
	t.entriesAt, t.entries = at, es
	list := make([]byte, 0, len(es)*entrySize)
	for _, e := range es {
		list = append(list, words(t.machine, uint64(e.Addr), uint64(e.Slot))...)
		list = append(append(list, e.Original[:]...), e.Len)
	}
	ws := []Write{{t.Base + offEntries, words(t.machine, uint64(at), uint64(len(es)))}}
	if len(list) > 0 {
		ws = slices.Insert(ws, 0, Write{at, list})
	}
	return ws
}

// SetReturn plans the trampoline's address, 0 for none. Behind its trap lies the rest of
// BypassReturn: its first instruction or byte alone takes the trap away.
func (t *Trap) SetReturn(at arch.Addr) (ws []Write) {
	t.Return = at
	if at != 0 {
		trap := len(t.machine.Break)
		ws = append(ws, Write{at + arch.Addr(trap), BypassReturn(t.machine, t.Base)[trap:]})
	}
	return append(ws, Write{t.Base + offReturn, words(t.machine, uint64(at))})
}

// FrameSlot is the address of the table's slot i.
func (t *Trap) FrameSlot(i int) arch.Addr { return t.framesAt() + arch.Addr(i*frameSize) }

// FrameIndex is the index at which the search for a stack slot begins.
func (t *Trap) FrameIndex(sp arch.Addr) int { return int(sp>>3) & (t.slots - 1) }

// Frame is the content of a slot of the table.
func Frame(a *arch.Arch, sp, ret arch.Addr) []byte { return words(a, uint64(sp), uint64(ret)) }

// Found is the result of a recovery's reading of a dead session's memory.
type Found struct {
	ID      uint64
	Return  arch.Addr
	Entries []Entry
	Frames  map[arch.Addr]arch.Addr // stack slot to real return address
	Old     [SigactSize]byte
	Driven  Driven

	entriesAt, framesAt arch.Addr
}

// Places are addresses in code of the session's whose Trap is at base: in all of it, but for
// detours, which jumps lead to.
func (f *Found) Places(base arch.Addr) []arch.Addr {
	places := []arch.Addr{base, f.entriesAt, f.Return}
	for _, e := range f.Entries {
		places = append(places, e.Slot)
	}
	return places
}

// Harmless is code of a session's that works on no memory beside itself, the memory at base and the
// program's: slots, and the handler. A word that a handler has left on a stack leads there.
func (f *Found) Harmless(base arch.Addr) []arch.Range {
	const slot = 16 // no slot has less room
	rs := []arch.Range{{Start: base, End: base + arch.Addr(TrapSize())}}
	for _, e := range f.Entries {
		rs = append(rs, arch.Range{Start: e.Slot, End: e.Slot + slot})
	}
	return rs
}

// ErrForeign is Read's answer for memory that is not a Trap's.
var ErrForeign = errors.New("no session's memory")

// Read reads a Trap's memory back, in a target of a machine. Errors: the reader's; ErrForeign.
func Read(a *arch.Arch, base arch.Addr, read func(arch.Addr, []byte) error) (*Found, error) {
	b := make([]byte, headerSize)
	if err := read(base, b); err != nil {
		return nil, err
	}
	if string(b[:len(Magic)]) != Magic {
		return nil, fmt.Errorf("%w at %v", ErrForeign, base)
	}
	order := a.Order
	word := func(off int) uint64 { return order.Uint64(b[off:]) }
	f := &Found{ID: word(offID), Return: arch.Addr(word(offReturn)), Frames: make(map[arch.Addr]arch.Addr)}
	f.entriesAt, f.framesAt = arch.Addr(word(offEntries)), arch.Addr(word(offFrames))
	f.Driven = Driven{word(offDriven), word(offDriven + 8), word(offDriven + 16)}
	copy(f.Old[:], b[offOld:])
	const most = 1 << 22
	n, mask := word(offCount), word(offMask)
	if n > most || mask >= most {
		return nil, fmt.Errorf("the session's memory at %v is damaged", base)
	}
	list := make([]byte, n*entrySize)
	if n > 0 {
		if err := read(arch.Addr(word(offEntries)), list); err != nil {
			return nil, err
		}
	}
	for ; len(list) > 0; list = list[entrySize:] {
		e := Entry{Addr: arch.Addr(order.Uint64(list)), Slot: arch.Addr(order.Uint64(list[8:]))}
		e.Len = list[16+copy(e.Original[:], list[16:])]
		f.Entries = append(f.Entries, e)
	}
	table := make([]byte, (mask+1)*frameSize)
	if err := read(arch.Addr(word(offFrames)), table); err != nil {
		return nil, err
	}
	for ; len(table) > 0; table = table[frameSize:] {
		if sp := order.Uint64(table); sp != 0 {
			f.Frames[arch.Addr(sp)] = arch.Addr(order.Uint64(table[8:]))
		}
	}
	return f, nil
}

// Stays tells whether the handler must stay when all else has been taken back: there are traps at
// the ends of slots that nothing makes superfluous, and a thread may stand before one, or come back
// there from a signal handler.
func (f *Found) Stays(a *arch.Arch) bool {
	return slices.ContainsFunc(f.Entries, func(e Entry) bool {
		_, ok := e.Bypass(a)
		return !ok && bytes.HasPrefix(e.Original[:e.Len], a.Break)
	})
}
