package kernel

import (
	"bytes"
	"errors"
	"fmt"

	"kprobe/arch"
)

// view reads the kernel's variables. The first error stays, and reads after it
// give zeros: the caller looks at it once, after some reads.
type view struct {
	mem  arch.Reader
	arch *arch.Arch
	err  error
}

// errChanged is for a structure that does not hold together: the guest runs
// while it is read, and a second look may find it whole.
var errChanged = errors.New("it changed while it was read, or is no such thing")

func (v *view) bytes(addr arch.Addr, p []byte) {
	if v.err == nil {
		v.err = v.mem.ReadAt(addr, p)
	}
	if v.err != nil {
		clear(p)
	}
}

func (v *view) uint(addr arch.Addr, size int) uint64 {
	b := make([]byte, size)
	v.bytes(addr, b)
	return v.num(b, size)
}

func (v *view) u32(addr arch.Addr) uint32    { return uint32(v.uint(addr, 4)) }
func (v *view) ptr(addr arch.Addr) arch.Addr { return arch.Addr(v.uint(addr, v.arch.PtrSize)) }

// num is the number that the first size bytes of b are.
func (v *view) num(b []byte, size int) uint64 {
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(v.arch.Order.Uint16(b))
	case 4:
		return uint64(v.arch.Order.Uint32(b))
	}
	return v.arch.Order.Uint64(b)
}

// addr is the pointer that b begins with.
func (v *view) addr(b []byte) arch.Addr { return arch.Addr(v.num(b, v.arch.PtrSize)) }

// cstring is a text of at most max bytes, with or without its NUL.
func (v *view) cstring(addr arch.Addr, max int) string {
	b := make([]byte, max)
	v.bytes(addr, b)
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return string(b)
}

// list walks a struct list_head. It gives the address of each entry's list_head, and size bytes of
// the entry from there on. The next entry's prev must point back to each. An entry is one read.
func (v *view) list(head arch.Addr, size, max int, each func(at arch.Addr, entry []byte)) {
	ptr := v.arch.PtrSize
	b := make([]byte, size)
	before, at := head, v.ptr(head)
	for n := 0; v.err == nil; n++ {
		if at == head {
			b = b[:2*ptr]
		}
		v.bytes(at, b)
		if v.err == nil && v.addr(b[ptr:]) != before {
			v.err = fmt.Errorf("list at %v: %w", head, errChanged)
		}
		if v.err != nil || at == head {
			return
		}
		if n == max {
			v.err = fmt.Errorf("list at %v: more than %d entries", head, max)
			return
		}
		each(at, b)
		before, at = at, v.addr(b)
	}
}

// array reads n elements of size bytes. More bytes than max are an error: n came
// from the guest.
func (v *view) array(addr arch.Addr, n uint64, size int) []byte {
	const most = 64 << 20
	if v.err == nil && n > most/uint64(size) {
		v.err = fmt.Errorf("table of %d entries at %v: %w", n, addr, errChanged)
	}
	if v.err != nil || n == 0 {
		return nil
	}
	b := make([]byte, n*uint64(size))
	v.bytes(addr, b)
	if v.err != nil {
		return nil
	}
	return b
}
