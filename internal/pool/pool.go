// Package pool makes memory that several processes can have in common with the controller.
//
// It is a shared memory segment of System V (shmget(2)) without a key, which is marked for removal as
// soon as the controller has it: so it is gone with the last process that has it, however each of them ends.
// No process needs a descriptor or a name for it, only its number and the right to attach it: by
// Lend that is one user's at a time, and nobody else's.
package pool

import (
	"errors"
	"sync"
)

// Memory is some of it.
type Memory struct {
	ours []byte

	mu sync.Mutex // held while it is lent: it has one owner at a time
	id int
}

// ErrNone is of systems that have none.
var ErrNone = errors.New("there is no memory here that several processes could share")

// Ours is it as the controller has it.
func (m *Memory) Ours() []byte { return m.ours }
