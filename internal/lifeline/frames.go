package lifeline

import (
	"iter"

	"kprobe/arch"
)

// Frames mirrors a Trap's table of swapped return addresses: a hash table with
// open addressing, from which nothing is removed but by Rebuild.
type Frames struct {
	trap     *Trap
	sps, ret []arch.Addr
	taken    int
}

// NewFrames is the table as it is in a fresh Trap: empty.
func (t *Trap) NewFrames() *Frames {
	return &Frames{trap: t}
}

// make makes room for them: most processes never have any.
func (f *Frames) make() {
	if f.sps == nil {
		f.sps, f.ret = make([]arch.Addr, f.trap.slots), make([]arch.Addr, f.trap.slots)
	}
}

// Crowded tells that Rebuild is due.
func (f *Frames) Crowded() bool { return f.taken > len(f.sps)*3/4 }

// Room is the number of frames that a Rebuild may bring.
func (f *Frames) Room() int { return f.trap.slots / 2 }

// Set notes which return address belongs at a stack slot, and plans the write. A
// function that is called again from the same place costs none.
func (f *Frames) Set(sp, ret arch.Addr) (w Write, changed bool) {
	f.make()
	i := f.trap.FrameIndex(sp)
	for f.sps[i] != 0 && f.sps[i] != sp {
		i = (i + 1) % len(f.sps)
	}
	if f.sps[i] == sp && f.ret[i] == ret {
		return w, false
	}
	if f.sps[i] == 0 {
		f.taken++
	}
	f.sps[i], f.ret[i] = sp, ret
	return Write{f.trap.FrameSlot(i), Frame(f.trap.Machine.Arch, sp, ret)}, true
}

// Rebuild plans the table anew, with these frames only: in the Trap's other
// table, and then the header's word on it.
func (f *Frames) Rebuild(frames iter.Seq2[arch.Addr, arch.Addr]) []Write {
	f.make()
	clear(f.sps)
	clear(f.ret)
	f.taken = 0
	for sp, ret := range frames {
		f.Set(sp, ret)
	}
	table := make([]byte, 0, frameSize*len(f.sps))
	for i := range f.sps {
		table = append(table, Frame(f.trap.Machine.Arch, f.sps[i], f.ret[i])...)
	}
	return f.trap.swapTable(table)
}
