package unwind

import (
	"slices"
	"sync"
	"syscall"

	"kprobe/symbol"
)

// Indexes is an index that is made anew when modules come and go.
type Indexes struct {
	mu      sync.Mutex
	modules []*symbol.Module
	index   Index
}

// Of is the index of the modules that there are now.
func (x *Indexes) Of(space *symbol.Space) Index {
	x.mu.Lock()
	defer x.mu.Unlock()
	if modules := space.Modules(); x.index == nil || !slices.Equal(modules, x.modules) {
		x.modules, x.index = modules, IndexOf(space)
	}
	return x.index
}

const blockSize = 1024

// InBlocks reads memory in blocks, each once: a stack's words lie close to each other. It is for
// memory that may be read as a whole.
func InBlocks[A ~uint64](read func(addr A, p []byte) error) func(addr uint64, p []byte) error {
	blocks := make(map[uint64][]byte)
	return func(addr uint64, p []byte) error {
		for len(p) > 0 {
			base := addr &^ (blockSize - 1)
			block, known := blocks[base]
			if !known {
				block = make([]byte, blockSize)
				if read(A(base), block) != nil {
					block = nil
				}
				blocks[base] = block
			}
			if block == nil {
				return syscall.EFAULT
			}
			n := copy(p, block[addr-base:])
			p, addr = p[n:], addr+uint64(n)
		}
		return nil
	}
}
