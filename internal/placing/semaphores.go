package placing

import (
	"encoding/binary"
	"slices"

	"kprobe/arch"
)

// Semaphores are those of static probes that have been raised in a target: it makes the probes'
// arguments only then. Others may have raised them, too. The target is frozen for both.
type Semaphores []arch.Addr

// Raise raises more of them, each once.
func (s *Semaphores) Raise(t arch.Memory, more []arch.Addr) error {
	for _, at := range more {
		if slices.Contains(*s, at) {
			continue
		}
		if err := count(t, at, 1); err != nil {
			return err
		}
		*s = append(*s, at)
	}
	return nil
}

// Lower takes that back.
func (s *Semaphores) Lower(t arch.Memory) error {
	for len(*s) > 0 {
		if err := count(t, (*s)[0], -1); err != nil {
			return err
		}
		*s = (*s)[1:]
	}
	return nil
}

func count(t arch.Memory, at arch.Addr, by int) error {
	var b [2]byte
	if err := t.ReadAt(at, b[:]); err != nil {
		return err
	}
	binary.LittleEndian.PutUint16(b[:], binary.LittleEndian.Uint16(b[:])+uint16(by))
	return t.WriteAt(at, b[:])
}
