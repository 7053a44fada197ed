//go:build !linux

package samples

import (
	"errors"
	"syscall"
)

// Sampler takes samples of one event.
type Sampler struct{}

// Open is refused: other systems have no such events.
func Open(int, string, Event) (*Sampler, error) {
	return nil, errors.Join(errors.New("samples are taken on Linux alone"), syscall.ENOTSUP)
}

// Read gives nothing.
func (s *Sampler) Read(func(*Sample) error) error { return nil }

// Lost is 0.
func (s *Sampler) Lost() uint64 { return 0 }

// Close does nothing.
func (s *Sampler) Close() {}
