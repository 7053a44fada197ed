package bpf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"kprobe/bpf/object"
)

// Load reads an object that clang -target bpf made: its programs, by their sections'
// names, and its maps.
//
//	uprobe/PATH:SYMBOL[+OFFS]   kprobe/SYMBOL[+OFFS]        a Kprobe; PATH:0xOFFSET is an offset in the file
//	uretprobe/PATH:SYMBOL       kretprobe/SYMBOL            a Kretprobe
//	uprobe.multi/PATH:PATTERN   and the other three         of each function that matches
//	uprobe.session/PATH:PATTERN   kprobe.session/PATTERN    two, of a Kretprobe: NAME.entry at the entry
//	usdt/PATH:PROVIDER:NAME                                 a Kprobe at a static probe
//	.maps, .rodata*, .data*, .bss*                          maps
//
// The part behind the slash may be missing; the caller then says where to attach.
//
// CO-RE relocates struct pt_regs (vmlinux.h asks for that), and the types in the debug information
// (DWARF) of the target's files that are given: there is no kernel's BTF here. A program of a kind
// that there is not, or that asks for more of CO-RE, is left out and told of in Collection.Refused,
// as long as another one is there. Nothing is verified yet. Errors name the thing that is not
// supported.
func Load(r io.ReaderAt, target ...io.ReaderAt) (*Collection, error) {
	if r == nil {
		return nil, fmt.Errorf("bpf: no object given: %w", syscall.EINVAL)
	}
	if err := object.CheckSizes(r); err != nil {
		return nil, fmt.Errorf("bpf: object: %w", err)
	}
	types, err := btf.LoadSpecFromReader(r)
	if err != nil && !errors.Is(err, btf.ErrNotFound) {
		return nil, fmt.Errorf("bpf: object: %w", err)
	}
	r, weak, err := object.Readable(r, types)
	if err != nil {
		return nil, fmt.Errorf("bpf: object: %w", err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(r)
	if err != nil {
		return nil, fmt.Errorf("bpf: object: %w%s", err, object.InsteadOf(err))
	}
	if spec.ByteOrder != binary.LittleEndian {
		return nil, errors.New("bpf: the object is big-endian: compile with -target bpfel")
	}
	c := &Collection{Types: spec.Types, debug: r}
	kconfig, err := object.Kconfig(spec.Types, weak)
	if err != nil {
		return nil, err
	}
	if kconfig != nil {
		c.Maps = append(c.Maps, &MapSpec{Name: object.KconfigName, Type: Array, KeySize: 4, ValueSize: uint32(len(kconfig)), MaxEntries: 1,
			Flags: FlagReadOnly, Contents: []KeyValue{{make([]byte, 4), kconfig}}})
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m, err := mapSpec(spec.Maps[name])
		if err != nil {
			return nil, err
		}
		m.Name = name // the library's may be cut
		c.Maps = append(c.Maps, m)
	}
	for _, m := range c.Maps {
		if m.OfMaps() {
			c.mayHave(m)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Variables)) {
		v := spec.Variables[name]
		m := c.Map(v.SectionName)
		if m == nil || uint64(v.Offset)+uint64(v.Size()) > uint64(m.ValueSize) {
			return nil, fmt.Errorf("bpf: variable %q is not in section %q", name, v.SectionName)
		}
		c.Vars = append(c.Vars, Var{name, m, int(v.Offset), int(v.Size()), typeOf(v)})
	}
	known := object.NewTypes(ownTypes(), target)
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		p := spec.Programs[name]
		section, err := ParseSection(p.SectionName)
		if err != nil {
			c.Refused = append(c.Refused, fmt.Errorf("bpf: program %q: %w", name, err))
			continue
		}
		prog, err := assembled(name, section.Kind, p.Instructions, c.Maps, known)
		if err != nil {
			c.Refused = append(c.Refused, err)
			continue
		}
		prog.Section, prog.Attach, prog.Glob, prog.USDT = p.SectionName, section.Attach, section.Glob, section.USDT
		c.Programs = append(c.Programs, prog)
		if section.Session {
			c.Programs = append(c.Programs, prog.entry())
		}
	}
	switch {
	case len(c.Programs) > 0:
		return c, c.lower()
	case len(c.Refused) > 0:
		return nil, c.Refused[0]
	}
	return nil, errors.New("bpf: the object has no programs")
}

// typeOf is the type that an object gives for a variable, nil where it gives none.
func typeOf(v *ebpf.VariableSpec) btf.Type {
	if v.Type == nil {
		return nil
	}
	return v.Type.Type
}

// mapSpec translates a map's definition.
func mapSpec(s *ebpf.MapSpec) (*MapSpec, error) {
	m := &MapSpec{Name: s.Name, Type: MapType(s.Type), KeySize: s.KeySize, ValueSize: s.ValueSize, MaxEntries: s.MaxEntries, Flags: s.Flags}
	m.Pinned = s.Pinning != ebpf.PinNone
	if s.Name == ".ksyms" {
		return nil, fmt.Errorf("bpf: the object uses %s: there is no kernel whose symbols it could have", s.Name)
	}
	m.Key, m.Value = s.Key, s.Value
	if m.Type == StackTrace {
		m.traces()
	}
	if err := m.declare(s.MapExtra); err != nil {
		return nil, err
	}
	if m.Type == RingBuf && m.MaxEntries > 0 && m.MaxEntries <= MaxRing {
		m.MaxEntries = max(MinRing, uint32(1)<<bits.Len32(m.MaxEntries-1)) // a loader rounds up, too
	}
	if err := m.loadable(); err != nil {
		return nil, err // a map of an unknown kind may have unknown contents
	}
	if m.is(progArray, arrayOfMaps, hashOfMaps) {
		return m, m.entries(s)
	}
	for _, kv := range s.Contents {
		key, err := contents(kv.Key)
		if err != nil {
			return nil, fmt.Errorf("bpf: map %q: %w", s.Name, err)
		}
		value, err := contents(kv.Value)
		if err != nil {
			return nil, fmt.Errorf("bpf: map %q: %w", s.Name, err)
		}
		m.Contents = append(m.Contents, KeyValue{key, value})
	}
	return m, nil
}

// traces sizes a map of stack traces as tools for it do, whose objects leave that to their loaders.
func (s *MapSpec) traces() {
	if s.ValueSize == 0 {
		s.ValueSize = 8 * MaxTrace
	}
	if s.MaxEntries == 0 {
		s.MaxEntries = 16 << 10
	}
}

// loadable is check, but for what SetEntries has yet to say.
func (s *MapSpec) loadable() error {
	some := *s
	if s.MaxEntries == 0 {
		some.MaxEntries = MinRing
	}
	if s.Declared != nil && s.Declared.MaxEntries == 0 {
		some.Declared = &Declared{Type: s.Declared.Type, MaxEntries: 1, KeySize: s.Declared.KeySize}
	}
	return some.Check()
}

// contents is an initial key or value as bytes.
func contents(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case uint32:
		return binary.LittleEndian.AppendUint32(nil, v), nil
	}
	return nil, fmt.Errorf("initial contents of type %T: numbers and bytes are supported", v)
}

// FromAsm takes a program from github.com/cilium/ebpf's assembler: the program's
// function first, then those that it calls. Maps are named by references
// (asm.Instruction.WithReference on LoadMapPtr and LoadMapValue).
func FromAsm(name string, kind Kind, insns asm.Instructions, maps []*MapSpec) (*Program, error) {
	p, err := assembled(name, kind, insns, maps, object.NewTypes(ownTypes(), nil))
	if err != nil {
		return nil, err
	}
	return p, p.lower(nil)
}

// lower lowers all programs again, from the form in which they came: the functions that they call
// may have changed.
func (c *Collection) lower() error {
	for _, p := range c.Programs {
		if err := p.lower(c.Program); err != nil {
			return err
		}
	}
	return nil
}

// assembled is a program that is not lowered yet.
func assembled(name string, kind Kind, insns asm.Instructions, maps []*MapSpec, target *object.Types) (*Program, error) {
	p := &Program{Name: name, Kind: kind, Maps: maps, known: target}
	insns, err := object.Relocate(slices.Clone(insns), AMD64.Regs, target)
	if err != nil {
		return nil, fmt.Errorf("bpf: program %q: %w", name, err)
	}
	type use struct {
		slot  int
		index int
	}
	var uses []use
	kernel := map[int]string{} // functions of the kernel that are called
	it := insns.Iterate()
	for it.Next() {
		slot := int(it.Offset)
		if s := it.Ins.Source(); s != nil {
			text := s.String()
			if l, ok := s.(*btf.Line); ok {
				text = fmt.Sprintf("%s:%d: %s", l.FileName(), l.LineNumber(), strings.TrimSpace(l.Line()))
			}
			p.Lines = append(p.Lines, Line{slot, text})
		}
		if it.Ins.IsKfuncCall() {
			kernel[slot] = it.Ins.Reference()
		}
		if it.Ins.IsConstantLoad(asm.DWord) && slices.Contains(kernelFunctions, it.Ins.Reference()) {
			it.Ins.Constant = 1 // its address, which is for asking whether there is such a function
		}
		if !it.Ins.IsLoadFromMap() {
			continue
		}
		ref := it.Ins.Reference()
		if ref == "" {
			ref = object.KconfigName
		}
		k := slices.IndexFunc(maps, func(m *MapSpec) bool { return m.Name == ref })
		if k < 0 {
			return nil, fmt.Errorf("bpf: program %q: instruction %d uses map %q, which is not there", name, slot, ref)
		}
		uses = append(uses, use{slot, k})
	}
	var b bytes.Buffer
	if err := insns.Marshal(&b, binary.LittleEndian); err != nil {
		return nil, fmt.Errorf("bpf: program %q: %w", name, err)
	}
	if p.Insns, err = Unmarshal(b.Bytes()); err != nil {
		return nil, err
	}
	for _, u := range uses {
		p.Insns[u.slot].Imm = int32(u.index)
	}
	p.origin = origin{p.Insns, p.Lines, kernel, false}
	return p, nil
}
