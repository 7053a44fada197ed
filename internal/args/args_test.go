package args

import (
	"reflect"
	"testing"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/machine"
)

// thread has registers that are told by their number and a stack that is told by its
// offsets, both in the machine's order.
type thread struct{ a *arch.Arch }

func (t thread) Get(r arch.Reg) uint64            { return 0x11223344_55667700 + uint64(r) }
func (t thread) SP() arch.Addr                    { return 0x1000 }
func (t thread) Vector(int) (v [16]byte, _ error) { return v, nil }

func (t thread) ReadMem(addr arch.Addr, p []byte) error {
	for i := range p { // each word is 0x01020304_050607NN, NN its number
		off := int(addr) - 0x1000 + i
		word := make([]byte, 8)
		t.a.Order.PutUint64(word, 0x01020304_05060700+uint64(off/8))
		p[i] = word[off%8]
	}
	return nil
}

// Small arguments are the low bytes of their register or word, on machines that have
// these first and on those that have them last; and what lies at the stack pointer of a
// function's entry (x86 a return address, s390x room for registers) is no argument.
func TestIntegersOfEveryMachine(t *testing.T) {
	for _, tt := range []struct {
		a         *arch.Arch
		firstWord int // of arguments on the stack
	}{{arch.AMD64, 1}, {arch.ARM64, 0}, {arch.S390X, 20}} {
		regs := len(tt.a.Args)
		types := make([]reflect.Type, regs+2)
		for i := range types {
			types[i] = reflect.TypeFor[uint32]()
		}
		types[regs+1] = reflect.TypeFor[uint16]()
		on, err := machine.Of(tt.a)
		if err != nil {
			t.Fatal(err)
		}
		vs, err := C.Places(on, types, func(reflect.Type) bool { return false })
		if err != nil {
			t.Fatalf("%s: %v", tt.a.Name, err)
		}
		th := thread{tt.a}
		get := func(v cabi.Value) uint64 {
			b, err := C.Image(on, th, v)
			if err != nil {
				t.Fatal(err)
			}
			if v.Type.Size() == 2 {
				return uint64(tt.a.Order.Uint16(b))
			}
			return uint64(tt.a.Order.Uint32(b))
		}
		for i := range regs {
			if got, want := get(vs[i]), 0x55667700+uint64(tt.a.Args[i]); got != want {
				t.Errorf("%s: argument %d is %#x, want %#x", tt.a.Name, i+1, got, want)
			}
		}
		if got, want := get(vs[regs]), 0x05060700+uint64(tt.firstWord); got != want {
			t.Errorf("%s: the first argument on the stack is %#x, want %#x", tt.a.Name, got, want)
		}
		if got, want := get(vs[regs+1]), 0x0700+uint64(tt.firstWord)+1; got != want {
			t.Errorf("%s: the second argument on the stack is %#x, want %#x", tt.a.Name, got, want)
		}
	}
}

// What is not known of a machine is refused, with its name.
func TestStructsOfAnotherMachine(t *testing.T) {
	other := &arch.Arch{Name: "other", Order: arch.S390X.Order, PtrSize: 8}
	for _, typ := range []reflect.Type{reflect.TypeFor[struct{ A, B int32 }](), reflect.TypeFor[float64]()} {
		if _, err := C.Places(&machine.Machine{Arch: other}, []reflect.Type{typ}, func(reflect.Type) bool { return false }); err == nil {
			t.Errorf("a %v of %s has a place", typ, other.Name)
		}
	}
}
