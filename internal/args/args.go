// Package args reads the arguments and results of a live call: by a calling
// convention (C's in cabi, Go's in goabi), out of a stopped thread's registers and
// memory, into Go values.
package args

import (
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/errno"
	"kprobe/internal/goabi"
	"kprobe/internal/machine"
	"kprobe/symbol"
)

// Convention is how a function is given its arguments.
type Convention uint8

const (
	C Convention = iota
	Go
	GoABI0
)

// ConventionOf tells that of a function, by where it has its arguments. Errors: EINVAL where those places are not known here.
func ConventionOf(p symbol.Passing) (Convention, error) {
	switch p {
	case symbol.ByC:
		return C, nil
	case symbol.OnGoStack:
		return GoABI0, nil
	case symbol.ByGo, symbol.UnknownOfGo:
		return Go, nil
	}
	return 0, errno.New(syscall.EINVAL, "%s", p.Refusal())
}

// Thread is the thread that makes the call.
type Thread interface {
	Get(arch.Reg) uint64
	SP() arch.Addr
	Vector(n int) ([16]byte, error)
	ReadMem(addr arch.Addr, p []byte) error
}

// Places finds where arguments of these types are. isPointer tells the types
// that stand for pointers although they are none. Errors: for types that the
// convention has nothing like.
func (c Convention) Places(on *machine.Machine, types []reflect.Type, isPointer func(reflect.Type) bool) ([]cabi.Value, error) {
	if c == C {
		return cabi.Arguments(on.Arch, on.C, types, isPointer)
	}
	if on.Go == nil {
		return nil, goabi.Missing(on.Arch)
	}
	abi := goabi.Internal
	if c == GoABI0 {
		abi = goabi.ABI0
	}
	vs, _, err := on.Go.Arguments(abi, types, isPointer)
	return vs, err
}

// Image puts a value together as it would lie in memory. A word more is there
// behind it. Errors: those of memory and of vector registers.
func (c Convention) Image(on *machine.Machine, t Thread, v cabi.Value) ([]byte, error) {
	a := on.Arch
	raw := make([]byte, int(v.Type.Size())+a.PtrSize)
	ints, stack := a.Args, a.StackArg(0)
	if c != C {
		if on.Go == nil {
			return raw, goabi.Missing(a)
		}
		ints, stack = on.Go.Ints, stack+on.Go.Frame
	}
	for _, p := range v.Pieces {
		b := raw[p.Off:]
		size := p.Size
		if p.At {
			p.Size = a.PtrSize
			b = make([]byte, a.PtrSize)
		}
		var err error
		switch p.Class {
		case cabi.Integer:
			var word [8]byte
			binary.LittleEndian.PutUint64(word[:], t.Get(ints[p.N]))
			putLow(a, b[:p.Size], word[:])
		case cabi.Float:
			var vec [16]byte
			vec, err = t.Vector(p.N)
			copy(b, vec[:p.Size])
		case cabi.Stack:
			err = t.ReadMem(t.SP()+arch.Addr(stack+p.N), b[:p.Size])
		}
		if p.At && err == nil {
			err = t.ReadMem(arch.Addr(a.Word(b)), raw[:size])
		}
		if err != nil {
			return raw, err
		}
	}
	return raw, nil
}

// putLow gives memory of the machine the low bytes of a register, which has them first.
func putLow(a *arch.Arch, b, reg []byte) {
	copy(b, reg)
	if a.Order == binary.BigEndian {
		slices.Reverse(b)
	}
}

// Memory lets a thread's memory be what strings and slices refer to.
type Memory struct{ Thread }

// ReadAt reads memory.
func (m Memory) ReadAt(addr arch.Addr, p []byte) error { return m.ReadMem(addr, p) }

// Types are those of the variables that pointers point to. Errors: in words, what is no pointer
// to one.
func Types(ptrs []any) (types []reflect.Type, err error) {
	for _, p := range ptrs {
		v := reflect.ValueOf(p)
		if v.Kind() != reflect.Pointer || v.IsNil() {
			return nil, fmt.Errorf("values are read into what pointers point to, not into a %T", p)
		}
		types = append(types, v.Type().Elem())
	}
	return types, nil
}

// Read reads a function's arguments at its entry, or with results what it returns, into the variables that
// pointers point to. Errors: EINVAL for what is no such pointer, or a type that no value can have; ENOTSUP where not all
// of the results are in registers; those of reading memory.
func (c Convention) Read(on *machine.Machine, t Thread, into []any, results bool, ptrs Pointers) error {
	types, err := Types(into)
	if err != nil {
		return &errno.Error{Errno: syscall.EINVAL, Err: err}
	}
	vs, err := c.Places(on, types, ptrs.Is)
	if err != nil {
		return &errno.Error{Errno: syscall.EINVAL, Err: err}
	}
	for i, v := range vs {
		if results && len(v.Pieces) > 0 && v.Pieces[0].Class == cabi.Stack {
			return errno.New(syscall.ENOTSUP, "result %d is on the stack, behind arguments that are not known", i+1)
		}
		if err := c.Fetch(on, t, reflect.ValueOf(into[i]).Elem(), v, ptrs); err != nil {
			return err
		}
	}
	return nil
}
