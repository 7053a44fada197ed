package bpf

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/btf"
)

// Var is a global variable of a program's source: a part of the one value that the
// map of its section has (.rodata, .data, .bss).
type Var struct {
	Name   string
	Map    *MapSpec
	Offset int      // bytes
	Size   int      // bytes
	Type   btf.Type // nil where it is not known
}

// Var finds a global variable by its name, nil where there is none.
func (c *Collection) Var(name string) *Var {
	for i := range c.Vars {
		if c.Vars[i].Name == name {
			return &c.Vars[i]
		}
	}
	return nil
}

// Set gives a global variable the value that it begins with, before the programs are
// loaded: a "const volatile" can be set at no other time, and what the verifier knows
// of it may make other paths impossible. value is a number or another value of fixed
// size, as encoding/binary knows them; an int becomes a number of the variable's size.
// Errors: no such variable; a value that does not fit.
func (c *Collection) Set(name string, value any) error {
	v := c.Var(name)
	if v == nil {
		return fmt.Errorf("bpf: no global variable %q", name)
	}
	var b []byte
	if n, ok := value.(int); ok {
		if v.Size > 8 || v.Size < 8 && n>>(8*v.Size) != n>>63 {
			return fmt.Errorf("bpf: variable %q has %d bytes: %d does not fit", name, v.Size, n)
		}
		b = binary.LittleEndian.AppendUint64(nil, uint64(n))[:v.Size]
	} else {
		var err error
		if b, err = binary.Append(nil, binary.LittleEndian, value); err != nil {
			return fmt.Errorf("bpf: variable %q: %w", name, err)
		}
	}
	if len(b) != v.Size {
		return fmt.Errorf("bpf: variable %q has %d bytes, its value %d", name, v.Size, len(b))
	}
	m := v.Map
	if len(m.Contents) == 0 {
		m.Contents = []KeyValue{{make([]byte, m.KeySize), make([]byte, m.ValueSize)}}
	}
	section := slices.Clone(m.Contents[0].Value) // it may be the object's own
	copy(section[v.Offset:], b)
	m.Contents[0].Value = section
	return nil
}

// Leave leaves programs out: they are neither proved nor placed, as if the object had none of their
// names. Errors: no such program.
func (c *Collection) Leave(programs ...string) error {
	for _, name := range programs {
		k := slices.IndexFunc(c.Programs, func(p *Program) bool { return p.Name == name })
		if k < 0 {
			return fmt.Errorf("bpf: no program %q", name)
		}
		entry := c.Programs[k].Entry
		c.Programs = slices.DeleteFunc(c.Programs, func(p *Program) bool { return p.Name == name || p.Name == entry })
	}
	return nil
}

// SetEntries gives a map so many elements, or a ring so many bytes, before the programs are loaded,
// where the definition leaves that to the loader. Errors: no such map; a number that it cannot
// have.
func (c *Collection) SetEntries(name string, n uint32) error {
	m := c.Map(name)
	if m == nil {
		return fmt.Errorf("bpf: no map %q", name)
	}
	old := *m
	m.MaxEntries = n
	if m.Declared != nil {
		d := *m.Declared
		d.MaxEntries = n
		m.Declared = &d
		m.Type, m.KeySize, m.ValueSize = d.Type, d.KeySize, d.ValueSize
	}
	err := m.store()
	if err == nil {
		err = m.Check()
	}
	if err != nil {
		*m = old
		return err
	}
	return c.lower()
}

// In is the variable's part of its map's value, as it is now.
func (v *Var) In(m *Map) ([]byte, error) {
	value, err := m.Lookup(make([]byte, v.Map.KeySize))
	if err != nil {
		return nil, err
	}
	return value[v.Offset : v.Offset+v.Size], nil
}
