package kernel

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"kprobe/arch"
	"kprobe/target/gdbremote"
)

// boot tells one boot of a kernel from all others: notes on another boot are of no use, and would
// lead to a wrong write. It is made of things that the kernel has from the dice and from the clock,
// where they can be found: the canaries of its first two tasks, the nanosecond at which the second
// was born, and where it has its memory. The two tasks live as long as the kernel does. A kernel
// that names functions only has none of these; if it does not move itself either (nokaslr), its
// boots look the same here.
type boot [16]byte

// telling is the number of facts that are looked at in every stop: a canary is proof alone.
const telling = 2

// facts identify this boot, the most telling first. All of them stay as they are.
func (t *Target) facts() (facts []gdbremote.Fact) {
	fact := func(at arch.Addr, size int) {
		b := make([]byte, size)
		if t.Target.ReadAt(at, b) == nil {
			facts = append(facts, gdbremote.Fact{Addr: at, Bytes: b})
		}
	}
	table := t.kernel.Table()
	types, err := t.kernel.Types()
	first, ok := table.Addr("init_task")
	if err == nil && ok {
		tasks := []arch.Addr{first}
		if off, _, err := types.Offset("task_struct", "tasks"); err == nil {
			if next := t.pointer(first+arch.Addr(off)) - arch.Addr(off); next != first {
				tasks = append(tasks, next)
			}
		}
		for _, member := range []string{"stack_canary", "start_boottime", "real_start_time"} { // the last before 5.5
			off, size, err := types.Offset("task_struct", member)
			for _, task := range tasks {
				if err == nil {
					fact(task+arch.Addr(off), size)
				}
			}
		}
	}
	for _, name := range []string{"page_offset_base", "vmalloc_base", "vmemmap_base", "memstart_addr", "__stack_chk_guard"} {
		if at, ok := table.Addr(name); ok {
			fact(at, t.Arch().PtrSize)
		}
	}
	// One piece of data or text that is never patched, for its address: the banner, or the entry of
	// traps.
	for _, name := range []string{"linux_banner", "vectors", "pgm_check_handler"} {
		if at, ok := table.Addr(name); ok {
			fact(at, 64)
			break
		}
	}
	return facts
}

// identify makes it known by them.
func (t *Target) identify() error {
	facts := t.facts()
	if len(facts) == 0 {
		return errors.New("nothing tells this boot of it from others")
	}
	h := sha256.New()
	for _, f := range facts {
		binary.Write(h, binary.LittleEndian, uint64(f.Addr)) // a hash has no errors
		h.Write(f.Bytes)
	}
	copy(t.boot[:], h.Sum(nil))
	t.swaps.boot = t.boot
	t.Identify(facts[:min(telling, len(facts))])
	return nil
}
