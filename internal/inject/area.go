package inject

import (
	"encoding/binary"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/segment"
)

// Area is the beginning of a stretch of code in the target: three addresses and a byte that
// detours and routines load, and the routines. There is one within reach (2 GiB) of every
// module that has detours.
type Area struct {
	Addr arch.Addr
	Of   *Target
}

// Target is one target, as its areas and detours are made for it.
type Target struct {
	Machine *Machine
	Segment *segment.Segment
	Readers *Readers // of a kernel, by which programs read memory there; nil in processes
}

// The head of an area.
const (
	AreaHead    = 0  // address of the segment
	AreaTable   = 8  // of its table of threads
	AreaCareful = 16 // see Segment.Careful: 1 byte
	areaSink    = 24 // address of the sink's state
	AreaCode    = 32 // routines
)

// Area plans an area at an address that is aligned to 16.
func (t *Target) Area(addr arch.Addr) *Area { return &Area{addr, t} }

// Image is what is written at the area's address.
func (a *Area) Image() []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(a.Of.Segment.Addr))
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Of.Segment.Addr)+segment.HeadTable)
	b = append(b, a.Of.Segment.CarefulByte())
	b = append(b, make([]byte, areaSink-len(b))...)
	b = binary.LittleEndian.AppendUint64(b, uint64(a.Of.Segment.StateAddr(a.Of.Segment.Threads)))
	b = append(b, a.machine().Runtime...)
	if a.Of.Readers != nil {
		code, _ := a.readerCode()
		b = append(b, code...)
	}
	return b
}

// Size is the length of an area's image.
func (a *Area) Size() int { return a.Of.AreaSize() }

// AreaSize is the length of the image of each area.
func (t *Target) AreaSize() int {
	size := AreaCode + len(t.Machine.Runtime)
	if t.Readers != nil {
		code, _ := t.Machine.Reading(t.Readers, 0, 0)
		size += len(code)
	}
	return size
}

// readerCode is that of a kernel's readers, which stands behind the routines, and where each begins.
func (a *Area) readerCode() ([]byte, map[int32]arch.Addr) {
	return a.machine().Reading(a.Of.Readers, a.Addr+AreaCode+arch.Addr(len(a.machine().Runtime)), a.Routine("keep_stack"))
}

func (a *Area) machine() *Machine { return a.Of.Machine }

// Head, Table and Sink are the places in the area of three addresses: of the segment, of its table of threads, and of the
// sink's state.
func (a *Area) Head() arch.Addr { return a.Addr + AreaHead }

// Table is the second of these addresses.
func (a *Area) Table() arch.Addr { return a.Addr + AreaTable }

// Sink is the third.
func (a *Area) Sink() arch.Addr { return a.Addr + areaSink }

// CarefulAt is where the area has the byte of Segment.Careful.
func (a *Area) CarefulAt() arch.Addr { return a.Addr + AreaCareful }

// Identifies tells whether a PC is where a thread finds out which it is.
func (a *Area) Identifies(pc arch.Addr) bool {
	return pc >= a.Routine("identify") && pc < a.Routine("abandon")
}

// Routine is the address of a routine by its name in testdata.
func (a *Area) Routine(name string) arch.Addr {
	off, ok := a.machine().Routines[name]
	if !ok {
		panic("inject: no routine " + name)
	}
	return a.Addr + AreaCode + arch.Addr(off)
}

// Fixup tells where a thread goes on whose instruction at pc has faulted (SIGSEGV,
// SIGBUS) on an address of the program under probe; ok is false where the
// fault is none of ours to mend.
func (a *Area) Fixup(pc arch.Addr) (to arch.Addr, ok bool) {
	off, ok := a.machine().Faults[int(pc-a.Addr)-AreaCode]
	return a.Addr + AreaCode + arch.Addr(off), ok
}

// TrapExit is where to send a thread that runs a program, by ReturnTo: the trap
// there stops it when the program is done. Behind the trap there is room for a jump of
// 5 bytes to the next instruction, which leads to the address at BackAt.
func (a *Area) TrapExit() arch.Addr { return a.Routine("trap_exit") }

// Exits tells whether a thread is at TrapExit, or behind its trap.
func (a *Area) Exits(pc arch.Addr) bool { return pc >= a.TrapExit() && pc < a.Routine("helpers") }

// Runs tells whether programs run there: without any there are no routines.
func (a *Area) Runs() bool { return len(a.machine().Routines) > 0 }

// Contains tells whether a PC is among the area's routines. A thread in one of
// those that detours call is to be stepped on; one in a helper runs a program.
func (a *Area) Contains(pc arch.Addr) bool {
	return pc >= a.Addr+AreaCode && pc < a.Addr+arch.Addr(a.Size())
}

// InHelper tells whether a PC of the area is in a routine that programs call.
func (a *Area) InHelper(pc arch.Addr) bool { return pc >= a.Routine("helpers") }

// Helper is the routine of a helper of package bpf, by its number. It is what jit.Code.Link
// asks for.
func (a *Area) Helper(id int32) (arch.Addr, bool) {
	if a.Of.Readers != nil {
		if _, at := a.readerCode(); at[id] != 0 {
			return at[id], true
		}
	}
	off, ok := a.machine().Routines[helperRoutines[id]]
	return a.Addr + AreaCode + arch.Addr(off), ok
}

// ReadsText has printed lines read their texts as this area's programs read memory: for kernels, whose
// faults are not ours to mend. It is to be told of one area at least that stays.
func (a *Area) ReadsText() {
	at := a.Routine("no_text")
	if a.Of.Readers != nil {
		_, readers := a.readerCode()
		at = readers[bpf.FnProbeReadStr]
	}
	a.Of.Segment.Put(segment.HeadReadText, uint64(at))
}
