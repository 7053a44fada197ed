package bpf

import (
	"errors"
	"sync/atomic"
)

// AddWord adds to the word at off of an array's element. It is one step, atomic with those of the
// target's threads. Errors: no such element or word.
func (m *Map) AddWord(key []byte, off int, n uint64) error {
	elem, err := m.element(key)
	if err != nil {
		return err
	}
	if off < 0 || off%8 != 0 || off+8 > int(m.Spec.ValueSize) {
		return errors.New("bpf: no word of the value is there")
	}
	atomic.AddUint64(m.mem.u64(m.valueOff(elem, 0)+uint64(off)), n)
	return nil
}
