package gdbremote

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/target"
)

// A stub watches data by virtual address: Z2 for writes, Z3 for reads, Z4 for both. A stop's report
// has the address of the data, with a word for the kind. QEMU and gdbserver stop behind the
// instruction. Of several that one instruction has set off, one is reported: so data is watched
// once, and watchers that want the same share it.

// Watches is the number of data that the stub is asked to watch at a time: a program's processor
// has four. An emulator has no limit; a stub that uses the processor's registers says so when it
// has no more.
func (t *Target) Watches() (int, error) {
	if t.program {
		return 4, nil
	}
	return 16, nil
}

// WatchesReads: a stub can be asked for reads alone. One that cannot do it refuses.
func (t *Target) WatchesReads() bool { return true }

// Watch watches these data and no others. Errors: ENOSPC, the stub has no more; ENOTSUP, it has
// none; EBUSY, a part of the same data is watched in another way.
func (t *Target) Watch(ws []target.Watch) error {
	for i, w := range ws {
		for _, o := range ws[:i] {
			if w != o && w.Len > 0 && o.Len > 0 && w.Addr < o.Addr+arch.Addr(o.Len) && o.Addr < w.Addr+arch.Addr(w.Len) {
				return fmt.Errorf("%w: of the data at %v and at %v, which is in part the same, a stub tells of one access only", unix.EBUSY, o.Addr, w.Addr)
			}
		}
	}
	return t.still(func() error {
		old := slices.Clone(t.watches)
		err := t.changeWatches(ws)
		if err != nil {
			err = errors.Join(err, t.changeWatches(old))
		}
		return err
	})
}

// changeWatches takes out old watches before it asks for new ones.
func (t *Target) changeWatches(ws []target.Watch) error {
	new := make([]target.Watch, max(len(ws), len(t.watches)))
	copy(new, ws)
	t.watches = append(t.watches, make([]target.Watch, len(new)-len(t.watches))...)
	for i, w := range t.watches {
		if w.Len == 0 || w == new[i] {
			continue
		}
		if t.watches[i] = (target.Watch{}); slices.Contains(t.watches, w) {
			continue // for another watcher
		}
		if err := t.c.command(watchRequest('z', w)); err != nil {
			return err
		}
	}
	for i, w := range new {
		if w.Len == 0 || w == t.watches[i] {
			continue
		}
		if slices.Contains(t.watches, w) {
			t.watches[i] = w
			continue
		}
		answer, err := t.c.ask(watchRequest('Z', w))
		switch {
		case err != nil:
			return err
		case answer == "":
			return fmt.Errorf("%w: the stub cannot watch data", unix.ENOTSUP)
		case answer != "OK":
			return fmt.Errorf("%w: the stub does not watch %d bytes at %v (%s)", unix.ENOSPC, w.Len, w.Addr, answer)
		}
		t.watches[i] = w
	}
	return nil
}

func watchRequest(verb byte, w target.Watch) string {
	kind := '4'
	switch {
	case w.Write:
		kind = '2'
	case w.Read:
		kind = '3'
	}
	return fmt.Sprintf("%c%c,%x,%d", verb, kind, uint64(w.Addr), w.Len)
}

// accessedBy are the watches that a stop's report is about, and whether it is about any access at
// all.
func (t *Target) accessedBy(report string) (set uint, accessed bool) {
	for _, field := range strings.Split(report[min(3, len(report)):], ";") {
		name, value, _ := strings.Cut(field, ":")
		if name != "watch" && name != "rwatch" && name != "awatch" {
			continue
		}
		at, err := strconv.ParseUint(value, 16, 64)
		if err != nil {
			continue
		}
		accessed = true
		for i, w := range t.watches {
			if a := arch.Addr(at); w.Len > 0 && a >= w.Addr && a < w.Addr+arch.Addr(w.Len) {
				set |= 1 << i
			}
		}
	}
	return set, accessed
}
