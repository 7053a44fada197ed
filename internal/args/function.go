package args

import (
	"fmt"
	"reflect"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/goabi"
	"kprobe/internal/machine"
)

// Pointers are the types that stand for pointers although they are none.
type Pointers struct {
	Is   func(reflect.Type) bool
	Bind func(p any, to arch.Addr) // p points to a value of one
}

// Fetch fills one argument or result. What cannot be read stays zero. Errors: as Image.
func (c Convention) Fetch(on *machine.Machine, t Thread, v reflect.Value, from cabi.Value, ptrs Pointers) error {
	raw, err := c.Image(on, t, from)
	if err != nil {
		return err
	}
	if ptrs.Is(v.Type()) {
		ptrs.Bind(v.Addr().Interface(), arch.Addr(on.Arch.Word(raw)))
		return nil
	}
	return goabi.Fill(on.Arch, v, raw, Memory{t})
}

// Function is a Go function whose parameters stand for those of one that is probed.
type Function struct {
	fn         reflect.Value
	given      bool
	on         *machine.Machine
	convention Convention
	params     []cabi.Value
}

// Function fits a Go function to a convention. A parameter before all others may be of the
// type given, and is not fetched. Errors: in words, why it cannot stand for any.
func (c Convention) Function(on *machine.Machine, f any, given reflect.Type, ptrs Pointers) (*Function, error) {
	fn := reflect.ValueOf(f)
	switch {
	case f == nil || fn.Kind() != reflect.Func || fn.IsNil():
		return nil, fmt.Errorf("it must be a function, not %T", f)
	case fn.Type().IsVariadic():
		return nil, fmt.Errorf("it must not be variadic")
	}
	var types []reflect.Type
	for in := range fn.Type().Ins() {
		types = append(types, in)
	}
	with := len(types) > 0 && types[0] == given
	if with {
		types = types[1:]
	}
	params, err := c.Places(on, types, ptrs.Is)
	return &Function{fn, with, on, c, params}, err
}

// Call calls it with what a thread has at the function's entry, and with what is given.
func (f *Function) Call(t Thread, given any, ptrs Pointers) {
	in := make([]reflect.Value, 0, len(f.params)+1)
	if f.given {
		in = append(in, reflect.ValueOf(given))
	}
	for _, p := range f.params {
		v := reflect.New(p.Type).Elem()
		f.convention.Fetch(f.on, t, v, p, ptrs) // what cannot be read stays zero
		in = append(in, v)
	}
	f.fn.Call(in)
}
