package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"syscall"

	"kprobe/arch"
	"kprobe/symbol/kernel"
)

// The journal is the end of the window: the pieces of the kernel's text that are not its own, the
// bytes that they had, and the entries of its page tables that are ours. The controller after one
// that was killed finds it there, since the device's memory lives as long as the guest.
//
//	0   magic
//	8   u64 address of the entries of the page tables
//	16  u64 the first of them
//	24  u64 how many
//	32  the boot's identity: see boot.go
//	64  records of 64 bytes: u64 address, a multiple of 16, 0 for a free record;
//	    16 bytes of text as they were, and twice as they may be now. Those that are the
//	    same three times are not ours: the kernel may have changed them since.
//	    u64 the module that the text belongs to: see moduleOf
const (
	journalMagic = "kprobe\x00\x02"
	journalBoot  = 32 // where the identity is
	journalSize  = 256 << 10
	granule      = 16
	recordSize   = 64
)

type journal struct {
	b       []byte
	records map[arch.Addr]int // offsets
	free    []int
}

// begin makes an empty one, for entries of the page tables that are not made yet.
func (j *journal) begin(b boot, entries arch.Addr, first uint64, n int) {
	clear(j.b)
	j.records, j.free = make(map[arch.Addr]int), nil
	for at := len(j.b) - recordSize; at >= recordSize; at -= recordSize {
		j.free = append(j.free, at)
	}
	binary.LittleEndian.PutUint64(j.b[8:], uint64(entries))
	binary.LittleEndian.PutUint64(j.b[16:], first)
	binary.LittleEndian.PutUint64(j.b[24:], uint64(n))
	copy(j.b[journalBoot:], b[:])
	copy(j.b, journalMagic)
}

// intend notes a write that is about to be made at an address that is a multiple of 16. Errors:
// ENOSPC.
func (j *journal) intend(addr arch.Addr, module uint64, have, want []byte) error {
	at, ok := j.records[addr]
	if !ok {
		if len(j.free) == 0 {
			return syscall.ENOSPC
		}
		at = j.free[len(j.free)-1]
		j.free = j.free[:len(j.free)-1]
		j.records[addr] = at
		copy(j.b[at+8:], have)
		copy(j.b[at+8+2*granule:], have)
	}
	r := j.b[at : at+recordSize]
	old, was, is := pieces(r)
	for i, b := range have {
		if old[i] == is[i] || b != was[i] && b != is[i] { // not ours, so far or any more
			old[i] = b
		}
		was[i], is[i] = b, want[i]
	}
	binary.LittleEndian.PutUint64(r[recordSize-8:], module)
	binary.LittleEndian.PutUint64(r, uint64(addr))
	return nil
}

// moduleOf tells a module that is loaded from others, and from those that come to the same place
// later: 0 for the kernel's own text.
func (t *Target) moduleOf(addr arch.Addr) uint64 {
	for _, m := range t.kernel.Modules() {
		if m.Text.Contains(addr) {
			h := fnv.New64a()
			fmt.Fprintf(h, "%s %v %v", m.Name, m.Text, m.Struct()) // a hash has no errors
			return h.Sum64() | 1
		}
	}
	return 0
}

// pieces are a record's: the text as it was, and twice as it may be.
func pieces(r []byte) (old, was, is []byte) {
	return r[8 : 8+granule], r[8+granule : 8+2*granule], r[8+2*granule : 8+3*granule]
}

// settle tells that a piece was written. A piece that has nothing of ours any more is forgotten.
func (j *journal) settle(addr arch.Addr) {
	at, ok := j.records[addr]
	if !ok {
		return
	}
	old, was, is := pieces(j.b[at : at+recordSize])
	copy(was, is)
	if bytes.Equal(old, is) {
		binary.LittleEndian.PutUint64(j.b[at:], 0)
		delete(j.records, addr)
		j.free = append(j.free, at)
	}
}

// WriteAt keeps the journal of its writes into the kernel, and notes swapped return addresses.
func (t *Target) WriteAt(addr arch.Addr, p []byte) error {
	if err := t.noteSwap(addr, p); err != nil {
		return err
	}
	w := t.window
	if w == nil || w.at.Start == 0 || addr < kernelHalf || w.at.Contains(addr) || !t.kernel.IsText(addr) {
		return t.Target.WriteAt(addr, p)
	}
	start := addr &^ (granule - 1)
	end := (addr + arch.Addr(len(p)) + granule - 1) &^ (granule - 1)
	have := make([]byte, end-start)
	if err := t.ReadAt(start, have); err != nil {
		return err
	}
	want := bytes.Clone(have)
	copy(want[addr-start:], p)
	each := func(f func(addr arch.Addr, have, want []byte) error) error {
		for i := 0; i < len(have); i += granule {
			h, n := have[i:i+granule], want[i:i+granule]
			if !bytes.Equal(h, n) {
				if err := f(start+arch.Addr(i), h, n); err != nil {
					return err
				}
			}
		}
		return nil
	}
	module := t.moduleOf(addr)
	intend := func(addr arch.Addr, have, want []byte) error { return w.journal.intend(addr, module, have, want) }
	if err := each(intend); err != nil {
		return err
	}
	if err := t.Target.WriteAt(addr, p); err != nil {
		return err
	}
	return each(func(addr arch.Addr, _, _ []byte) error {
		w.journal.settle(addr)
		return nil
	})
}

// recover restores the text that a killed controller left. The guest stands.
func (t *Target) recover() error {
	j := t.window.journal.b
	if !bytes.HasPrefix(j, []byte(journalMagic)) {
		return nil
	}
	if !bytes.Equal(j[journalBoot:journalBoot+len(t.boot)], t.boot[:]) {
		clear(t.window.mem) // a reset took it out
		return nil
	}
	if _, _, err := t.kernel.Update(); err != nil && !errors.Is(err, kernel.ErrNoModules) { // for moduleOf
		return err
	}
	// The way from traps to detours goes last: of a trap that is still there, or that a CPU has
	// just executed, the kernel knows nothing.
	handler := t.function(trapHandler)
	err := t.putBack(func(r arch.Range) bool { return r.Start >= handler.End || r.End <= handler.Start })
	if err == nil && t.window.journal.has(handler) {
		err = t.settle(func() bool { return !t.Passing() })
	}
	if err == nil {
		err = t.putBack(func(arch.Range) bool { return true })
	}
	if start, end, ok := t.leftWindow(); ok && err == nil {
		t.window.at = arch.Range{Start: start, End: end}
		t.switchOffLeft()
		t.window.at = arch.Range{}
	}
	if err == nil {
		err = t.unmapLeft()
	}
	if err != nil {
		return fmt.Errorf("an earlier controller was killed, and what it left cannot be taken out now: %w", err)
	}
	clear(t.window.mem)
	return nil
}

// has tells whether another controller's journal knows of text in a range.
func (j *journal) has(r arch.Range) bool {
	for at := recordSize; at < len(j.b); at += recordSize {
		if addr := arch.Addr(binary.LittleEndian.Uint64(j.b[at:])); addr != 0 && addr+granule > r.Start && addr < r.End {
			return true
		}
	}
	return false
}

// putBack puts text back that the journal knows, in pieces that are asked for.
func (t *Target) putBack(asked func(arch.Range) bool) error {
	j := t.window.journal.b
	var errs []error
	for at := recordSize; at < len(j); at += recordSize {
		r := j[at : at+recordSize]
		addr := arch.Addr(binary.LittleEndian.Uint64(r))
		if addr == 0 || !asked(arch.Range{Start: addr, End: addr + granule}) {
			continue
		}
		if module := binary.LittleEndian.Uint64(r[recordSize-8:]); module != 0 && module != t.moduleOf(addr) {
			binary.LittleEndian.PutUint64(r, 0) // it has been unloaded since, and other text is there
			continue
		}
		old, was, is := pieces(r)
		have := make([]byte, granule)
		if err := t.ReadAt(addr, have); err != nil {
			errs = append(errs, err)
			continue
		}
		ours, own := true, bytes.Clone(have)
		for i, b := range have {
			if old[i] != was[i] || old[i] != is[i] {
				ours = ours && (b == old[i] || b == was[i] || b == is[i])
				own[i] = old[i]
			}
		}
		if !ours {
			errs = append(errs, fmt.Errorf("text at %v is somebody else's by now", addr))
			continue
		}
		if err := t.Target.WriteAt(addr, own); err != nil {
			errs = append(errs, err)
			continue
		}
		binary.LittleEndian.PutUint64(r, 0)
	}
	return errors.Join(errs...)
}

// unmapLeft takes the window out of the page tables that a controller left there. Nothing leads to
// it any more, but a task may be on its way out.
func (t *Target) unmapLeft() error {
	start, end, ok := t.leftWindow()
	if !ok {
		return nil
	}
	asked := askPageOf(end)
	inside := func(a arch.Addr) bool {
		return a >= start && a < end && (!asked.Contains(a) || askCode(asked).Contains(a))
	}
	if err := t.settle(func() bool { return t.nobodyIn(inside) }); err != nil {
		return fmt.Errorf("the kernel is in code of it: %w", err)
	}
	j := t.window.journal.b
	return t.Target.WriteAt(arch.Addr(binary.LittleEndian.Uint64(j[8:])), make([]byte, 8*(end-start)/entrySize))
}

// leftWindow is the range of the window that a controller left in the page tables.
func (t *Target) leftWindow() (start, end arch.Addr, ok bool) {
	j := t.window.journal.b
	table, first := arch.Addr(binary.LittleEndian.Uint64(j[8:])), binary.LittleEndian.Uint64(j[16:])
	n := int(min(binary.LittleEndian.Uint64(j[24:]), imageEntries))
	base, ok := t.kernel.Table().Addr(imageTable)
	if !ok || table < base || table >= base+8*imageEntries || !t.mapsWindow(table, first, n) {
		return 0, 0, false
	}
	start = imageStart + (table-base)/8*entrySize
	return start, start + arch.Addr(n*entrySize), true
}

// nobodyIn tells whether no CPU is in some code, and no task will come back to it.
func (t *Target) nobodyIn(code func(arch.Addr) bool) bool {
	for _, th := range t.Threads() {
		var r arch.Regs
		if t.Regs(th, &r) != nil || code(r.Addr(t.Arch().PC)) {
			return false
		}
	}
	in, err := t.Resting(code)
	return err == nil && len(in) == 0
}

// mapsWindow tells whether entries of the page tables are ours.
func (t *Target) mapsWindow(table arch.Addr, first uint64, n int) bool {
	b := make([]byte, 8*n)
	if n == 0 || t.Target.ReadAt(table, b) != nil {
		return false
	}
	for i := range n {
		const flags = 1<<12 - 1 // a CPU may have added some
		if e := binary.LittleEndian.Uint64(b[8*i:]); e&^flags != (first+uint64(i*entrySize))&^flags || e&1 == 0 {
			return false
		}
	}
	return true
}
