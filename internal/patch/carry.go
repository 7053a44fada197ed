package patch

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"kprobe/arch"
)

// ErrLost tells that written bytes do not read back.
var ErrLost = errors.New("what was written does not read back")

// Carry carries spans out: compare, write, read back. On the first failure all earlier writes are
// taken back, in reverse; a failure of that is told to report. Errors: *Mismatch; ErrLost; the
// memory's.
func Carry(m arch.Memory, spans []Span, report func(error)) error {
	var b buffers
	for i := range spans {
		if err := b.carry(m, &spans[i]); err != nil {
			for _, undo := range Undo(spans[:i]) {
				report(b.carry(m, &undo))
			}
			return err
		}
	}
	return nil
}

// Undo are the spans that take others back, in reverse.
func Undo(spans []Span) (undo []Span) {
	for _, sp := range slices.Backward(spans) {
		back := Span{Addr: sp.Addr, Len: sp.Len}
		for _, w := range sp.Writes {
			back.Writes = append(back.Writes, w.Undo())
		}
		undo = append(undo, back)
	}
	return undo
}

// OnlyForeign tells whether all bytes that could not be put back, EBUSY each, have been changed by
// others: the bytes are theirs now.
func OnlyForeign(err error) bool {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		return !slices.ContainsFunc(all.Unwrap(), func(e error) bool { return !OnlyForeign(e) })
	}
	return errors.Is(err, syscall.EBUSY)
}

// buffers serve one span after another: nothing is allocated while a target waits.
type buffers struct{ have, want, check []byte }

func (b *buffers) carry(m arch.Memory, sp *Span) error {
	b.have = append(b.have[:0], make([]byte, sp.Len)...)
	if err := m.ReadAt(sp.Addr, b.have); err != nil {
		return err
	}
	if err := sp.Check(b.have); err != nil {
		return err
	}
	b.want = append(b.want[:0], b.have...)
	sp.Apply(b.want)
	if err := m.WriteAt(sp.Addr, b.want); err != nil {
		m.WriteAt(sp.Addr, b.have) // a part may have been written
		return err
	}
	b.check = append(b.check[:0], make([]byte, sp.Len)...)
	if err := m.ReadAt(sp.Addr, b.check); err != nil || !bytes.Equal(b.check, b.want) {
		m.WriteAt(sp.Addr, b.have)
		return fmt.Errorf("at %v: %w", sp.Addr, ErrLost)
	}
	return nil
}

// Fill writes spans into memory where nothing has to be compared.
func Fill(m arch.Memory, spans []Span) error {
	for i := range spans {
		sp := &spans[i]
		b := make([]byte, sp.Len)
		if err := m.ReadAt(sp.Addr, b); err != nil {
			return err
		}
		sp.Apply(b)
		if err := m.WriteAt(sp.Addr, b); err != nil {
			return err
		}
	}
	return nil
}
