package bpf

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
)

// Load reads an object that clang -target bpf made: its programs, by their sections'
// names, and its maps.
//
//	uprobe/PATH:SYMBOL[+OFFS]   kprobe/SYMBOL[+OFFS]        a Kprobe
//	uretprobe/PATH:SYMBOL       kretprobe/SYMBOL            a Kretprobe
//	.maps, .rodata*, .data*, .bss*                          maps
//
// What stands behind the slash may be missing; the caller then says where to attach.
// Of CO-RE only struct pt_regs can be relocated (vmlinux.h asks for that): there is
// no kernel's BTF here. Nothing is verified yet. Errors name what is not supported.
func Load(r io.ReaderAt) (*Collection, error) {
	if err := checkSizes(r); err != nil {
		return nil, fmt.Errorf("bpf: object: %w", err)
	}
	spec, err := ebpf.LoadCollectionSpecFromReader(r)
	if err != nil {
		return nil, fmt.Errorf("bpf: object: %w", err)
	}
	if spec.ByteOrder != binary.LittleEndian {
		return nil, errors.New("bpf: the object is big-endian: compile with -target bpfel")
	}
	c := &Collection{}
	for _, name := range slices.Sorted(maps.Keys(spec.Maps)) {
		m, err := mapSpec(spec.Maps[name])
		if err != nil {
			return nil, err
		}
		m.Name = name // the library's may be cut
		c.Maps = append(c.Maps, m)
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Variables)) {
		v := spec.Variables[name]
		m := c.Map(v.SectionName)
		if m == nil || uint64(v.Offset)+uint64(v.Size()) > uint64(m.ValueSize) {
			return nil, fmt.Errorf("bpf: variable %q is not in section %q", name, v.SectionName)
		}
		c.Vars = append(c.Vars, Var{name, m, int(v.Offset), int(v.Size())})
	}
	for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
		p := spec.Programs[name]
		kind, attach, err := section(p.SectionName)
		if err != nil {
			return nil, fmt.Errorf("bpf: program %q: %w", name, err)
		}
		prog, err := FromAsm(name, kind, p.Instructions, c.Maps)
		if err != nil {
			return nil, err
		}
		prog.Section, prog.Attach = p.SectionName, attach
		c.Programs = append(c.Programs, prog)
	}
	if len(c.Programs) == 0 {
		return nil, errors.New("bpf: the object has no programs")
	}
	return c, nil
}

// checkSizes looks at the sections before memory is made for them: a damaged
// .bss may claim any size.
func checkSizes(r io.ReaderAt) error {
	f, err := elf.NewFile(r)
	if err != nil {
		return err
	}
	for _, s := range f.Sections {
		if s.Size > maxSection {
			return fmt.Errorf("section %q of %d bytes: more than %d", s.Name, s.Size, maxSection)
		}
	}
	return nil
}

const maxSection = 64 << 20

// section reads a section's name.
func section(name string) (Kind, string, error) {
	verb, attach, _ := strings.Cut(strings.TrimPrefix(name, "?"), "/")
	switch verb {
	case "kprobe", "uprobe":
		return Kprobe, attach, nil
	case "kretprobe", "uretprobe":
		return Kretprobe, attach, nil
	}
	base, variant, _ := strings.Cut(verb, ".")
	if base == "kprobe" || base == "uprobe" || base == "kretprobe" || base == "uretprobe" {
		return 0, "", fmt.Errorf("section %q: the .%s form is not supported: use %s/, and attach to several places by the caller", name, variant, base)
	}
	return 0, "", fmt.Errorf("section %q: not supported: kprobe/, kretprobe/, uprobe/ and uretprobe/ are", name)
}

// mapSpec translates a map's definition.
func mapSpec(s *ebpf.MapSpec) (*MapSpec, error) {
	m := &MapSpec{Name: s.Name, Type: MapType(s.Type), KeySize: s.KeySize, ValueSize: s.ValueSize, MaxEntries: s.MaxEntries, Flags: s.Flags}
	if s.Pinning != ebpf.PinNone {
		return nil, fmt.Errorf("bpf: map %q is pinned: there is no bpf file system here", s.Name)
	}
	if s.Name == ".kconfig" || s.Name == ".ksyms" {
		return nil, fmt.Errorf("bpf: the object uses %s: there is no kernel whose values it could have", s.Name)
	}
	if err := m.check(); err != nil {
		return nil, err // a kind that there is not may have contents that there are not
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
	return m, m.check()
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
	p := &Program{Name: name, Kind: kind, Maps: maps}
	insns = slices.Clone(insns)
	if err := relocate(insns); err != nil {
		return nil, fmt.Errorf("bpf: program %q: %w", name, err)
	}
	type use struct {
		slot  int
		index int
	}
	var uses []use
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
		if !it.Ins.IsLoadFromMap() {
			continue
		}
		ref := it.Ins.Reference()
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
	var err error
	if p.Insns, err = Unmarshal(b.Bytes()); err != nil {
		return nil, err
	}
	for _, u := range uses {
		p.Insns[u.slot].Imm = int32(u.index)
	}
	return p, nil
}

// relocate applies CO-RE relocations, in place: the fields of struct pt_regs.
func relocate(insns asm.Instructions) error {
	var relos []*btf.CORERelocation
	var at []*asm.Instruction
	for i := range insns {
		if r := btf.CORERelocationMetadata(&insns[i]); r != nil {
			relos, at = append(relos, r), append(at, &insns[i])
		}
	}
	if len(relos) == 0 {
		return nil
	}
	target, err := ptRegs()
	if err != nil {
		return err
	}
	fixups, err := btf.CORERelocate(relos, []*btf.Spec{target}, binary.LittleEndian, func(btf.Type) (btf.TypeID, error) {
		return 0, errors.New("CO-RE: identities of types are not supported")
	})
	if err != nil {
		return err
	}
	for i := range fixups {
		if err := fixups[i].Apply(at[i]); err != nil {
			return fmt.Errorf("%v: %w", relos[i], err)
		}
		if at[i].IsBuiltinCall() && at[i].Constant == btf.COREBadRelocationSentinel {
			return fmt.Errorf("%v: CO-RE is supported for struct pt_regs only: give the program the target's own struct, without preserve_access_index, and read it with bpf_probe_read_user", relos[i])
		}
	}
	return nil
}

// ptRegs is what the context looks like to the kernel's own headers, whose names
// have no r in front.
func ptRegs() (*btf.Spec, error) {
	long := &btf.Int{Name: "unsigned long", Size: 8}
	regs := &btf.Struct{Name: "pt_regs", Size: uint32(AMD64.Size())}
	for i, name := range AMD64.Regs {
		switch name {
		case "orig_rax":
			name = "orig_ax"
		case "eflags":
			name = "flags"
		case "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15":
		default:
			name = strings.TrimPrefix(name, "r")
		}
		regs.Members = append(regs.Members, btf.Member{Name: name, Type: long, Offset: btf.Bits(64 * i)})
	}
	b, err := btf.NewBuilder([]btf.Type{regs}, nil)
	if err != nil {
		return nil, err
	}
	return b.Spec()
}
