package object

import (
	"debug/dwarf"
	"debug/elf"
	"io"

	"github.com/cilium/ebpf/btf"
)

// Named is the structure or union of that name, as an object's debug information (clang -g) has it,
// in the words of BTF, which has only what variables, maps and functions are made of. nil where
// there is none. Errors: the information is damaged.
func Named(r io.ReaderAt, name string) (btf.Type, error) {
	info, err := debugInfo(r)
	if err != nil || info == nil {
		return nil, err
	}
	units := info.Reader()
	for {
		e, err := units.Next()
		if err != nil || e == nil {
			return nil, err
		}
		if (e.Tag != dwarf.TagStructType && e.Tag != dwarf.TagUnionType) || e.Val(dwarf.AttrName) != name || e.Val(dwarf.AttrDeclaration) == true {
			continue
		}
		t, err := info.Type(e.Offset)
		if err != nil {
			return nil, err
		}
		return (&converter{made: map[dwarf.Type]btf.Type{}}).convert(t, 0), nil
	}
}

// Locals are the structures of a size that the functions' variables have, or point to, once each.
// Errors: the information is damaged.
func Locals(r io.ReaderAt, size int64) (types []btf.Type, err error) {
	info, err := debugInfo(r)
	if err != nil || info == nil {
		return nil, err
	}
	seen := map[*dwarf.StructType]bool{}
	depth, function := 0, 0 // how deep an entry is, and the function that it is in: 0 for none
	for r := info.Reader(); ; {
		e, err := r.Next()
		switch {
		case err != nil || e == nil:
			return types, err
		case e.Tag == 0:
			if depth--; depth < function {
				function = 0
			}
			continue
		case e.Tag == dwarf.TagSubprogram && function == 0:
			function = depth + 1
		}
		if e.Children {
			depth++
		}
		switch {
		case function == 0 || depth < function:
		case e.Tag == dwarf.TagVariable || e.Tag == dwarf.TagFormalParameter:
			at, ok := e.Val(dwarf.AttrType).(dwarf.Offset)
			if !ok {
				continue
			}
			t, err := info.Type(at)
			if err != nil {
				return nil, err
			}
			if s := structureOf(t); s != nil && s.ByteSize == size && !seen[s] {
				seen[s] = true
				types = append(types, (&converter{made: map[dwarf.Type]btf.Type{}}).convert(s, 0))
			}
		}
	}
}

// structureOf is the structure that a variable's type is, or points to; nil if there is none.
func structureOf(t dwarf.Type) *dwarf.StructType {
	for pointers := 0; pointers < 2; {
		switch of := t.(type) {
		case *dwarf.TypedefType:
			t = of.Type
		case *dwarf.QualType:
			t = of.Type
		case *dwarf.PtrType:
			pointers++
			t = of.Type
		case *dwarf.StructType:
			return of
		default:
			return nil
		}
	}
	return nil
}

// debugInfo is an object's debug information. The library's own way to it knows no relocations of
// eBPF; they are of sections that begin at 0, and so leave all as it is.
func debugInfo(r io.ReaderAt) (*dwarf.Data, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	data := func(name string) []byte {
		s := f.Section(".debug_" + name)
		if s == nil || s.Size > maxSection {
			return nil
		}
		b, err := s.Data()
		if err != nil {
			return nil
		}
		return b
	}
	info := data("info")
	if info == nil {
		return nil, nil
	}
	d, err := dwarf.New(data("abbrev"), nil, nil, info, nil, nil, nil, data("str"))
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"str_offsets", "addr", "line_str", "rnglists", "loclists"} {
		if b := data(name); b != nil {
			if err := d.AddSection(".debug_"+name, b); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// converter makes types of BTF; a type that is made of itself is made once.
type converter struct{ made map[dwarf.Type]btf.Type }

// maxNested bounds how deep types are nested: damaged information may have a type that is made of
// itself.
const maxNested = 32

func (c *converter) convert(t dwarf.Type, depth int) btf.Type {
	if got, ok := c.made[t]; ok || depth > maxNested {
		return got
	}
	integer := func(e btf.IntEncoding) btf.Type {
		return &btf.Int{Name: t.Common().Name, Size: uint32(t.Size()), Encoding: e}
	}
	switch t := t.(type) {
	case *dwarf.IntType, *dwarf.CharType:
		return integer(btf.Signed)
	case *dwarf.UintType, *dwarf.UcharType:
		return integer(btf.Unsigned)
	case *dwarf.BoolType:
		return integer(btf.Bool)
	case *dwarf.PtrType:
		return &btf.Pointer{Target: (*btf.Void)(nil)} // a number is all that is printed
	case *dwarf.TypedefType:
		return &btf.Typedef{Name: t.Name, Type: c.of(t.Type, depth)}
	case *dwarf.QualType:
		return c.of(t.Type, depth)
	case *dwarf.ArrayType:
		return &btf.Array{Type: c.of(t.Type, depth), Index: &btf.Int{Size: 4}, Nelems: uint32(max(t.Count, 0))}
	case *dwarf.EnumType:
		e := &btf.Enum{Name: t.EnumName, Size: uint32(t.Size())}
		for _, v := range t.Val {
			e.Signed = e.Signed || v.Val < 0
			e.Values = append(e.Values, btf.EnumValue{Name: v.Name, Value: uint64(v.Val)})
		}
		return e
	case *dwarf.StructType:
		return c.structure(t, depth)
	}
	return bytesOf(t)
}

// of is a type that another is made of.
func (c *converter) of(t dwarf.Type, depth int) btf.Type {
	if got := c.convert(t, depth+1); got != nil {
		return got
	}
	return bytesOf(t)
}

// bytesOf is a type of which nothing is known but its size.
func bytesOf(t dwarf.Type) btf.Type {
	n := int64(0)
	if t != nil {
		n = max(t.Common().ByteSize, 0)
	}
	return &btf.Array{Type: &btf.Int{Size: 1}, Index: &btf.Int{Size: 4}, Nelems: uint32(n)}
}

func (c *converter) structure(t *dwarf.StructType, depth int) btf.Type {
	var members *[]btf.Member
	if t.Kind == "union" {
		u := &btf.Union{Name: t.StructName, Size: uint32(t.ByteSize)}
		c.made[t], members = u, &u.Members
	} else {
		s := &btf.Struct{Name: t.StructName, Size: uint32(t.ByteSize)}
		c.made[t], members = s, &s.Members
	}
	for _, f := range t.Field {
		m := btf.Member{Name: f.Name, Type: c.of(f.Type, depth), Offset: btf.Bits(8 * f.ByteOffset)}
		if f.BitSize > 0 {
			at := f.DataBitOffset
			if f.ByteSize > 0 { // the older form: from the upper end of a unit of so many bytes
				at = 8*(f.ByteOffset+f.ByteSize) - f.BitOffset - f.BitSize
			}
			m.Offset, m.BitfieldSize = btf.Bits(max(at, 0)), btf.Bits(f.BitSize)
		}
		*members = append(*members, m)
	}
	return c.made[t]
}
