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
	"errors"
	"fmt"
	"slices"

	"kprobe/arch"
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
// there any more. See Machine.Mark.
const Dealt = 1 << 16

// Entry is one probe point: the trap at Addr has its instruction carried out
// at Slot, and the first Len of Original are the bytes that the trap replaced, or the
// jump that may stand there as well. Len is 0 for a trap within such a jump.
type Entry struct {
	Addr, Slot arch.Addr
	Original   [7]byte
	Len        byte
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

	Machine   *Machine
	entriesAt arch.Addr
	entries   []Entry
}

// FrameSlots is the size of the table of swapped return addresses.
const FrameSlots = 1 << 14

// NewTrap plans the memory at base.
func NewTrap(m *Machine, base arch.Addr, id uint64) *Trap {
	return &Trap{Base: base, ID: id, slots: FrameSlots, Machine: m}
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
		{t.Base + offFrames, words(t.Machine.Arch, uint64(t.framesAt()))},
	}
}

// SetOld plans another action of the program's own.
func (t *Trap) SetOld(old [SigactSize]byte) []Write {
	return []Write{{t.Base + offOld, slices.Clone(old[:])}}
}

// IsHandler tells whether an action leads to the handler.
func (t *Trap) IsHandler(a [SigactSize]byte) bool { return LeadsTo(t.Machine.Arch, a, t.Handler()) }

// LeadsTo tells whether an action of a machine's leads to a handler.
func LeadsTo(m *arch.Arch, a [SigactSize]byte, handler arch.Addr) bool {
	return m.Order.Uint64(a[:]) == uint64(handler)
}

// Image has the bytes that are written at Base before anything leads there. old is the program's
// own sigaction.
func (t *Trap) Image(old [SigactSize]byte) []byte {
	b := make([]byte, headerSize, headerSize+len(t.Machine.handler))
	copy(b, Magic)
	copy(b[offID:], words(t.Machine.Arch, t.ID, uint64(t.entriesAt), uint64(len(t.entries)), uint64(t.Return), uint64(t.framesAt()), uint64(t.slots-1)))
	copy(b[offOld:], old[:])
	return append(b, t.Machine.handler...)
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
	list := make([]byte, len(es)*entrySize)
	for i, e := range es {
		at := list[i*entrySize:]
		t.Machine.Arch.Order.PutUint64(at, uint64(e.Addr))
		t.Machine.Arch.Order.PutUint64(at[8:], uint64(e.Slot))
		at[16+copy(at[16:], e.Original[:])] = e.Len
	}
	ws := []Write{{t.Base + offEntries, words(t.Machine.Arch, uint64(at), uint64(len(es)))}}
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
		trap := len(t.Machine.Break)
		ws = append(ws, Write{at + arch.Addr(trap), t.Machine.BypassReturn(t.Base)[trap:]})
	}
	return append(ws, Write{t.Base + offReturn, words(t.Machine.Arch, uint64(at))})
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
func (f *Found) Stays(m *Machine) bool {
	return slices.ContainsFunc(f.Entries, func(e Entry) bool {
		_, ok := e.Bypass(m)
		return !ok && bytes.HasPrefix(e.Original[:e.Len], m.Break)
	})
}
