package object

import (
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Types are the types in the debug information of a target's files.
type Types struct {
	own   []btf.Type // before the files'
	files []io.ReaderAt
	read  []*types

	missing []string // types that programs use and that are not here, in sentences
}

// NewTypes looks at no file before it is asked. The types of own come first.
func NewTypes(own []btf.Type, files []io.ReaderAt) *Types { return &Types{own: own, files: files} }

// Lack is the number of a helper that stands where a program uses something that is not here, which
// a sentence says.
func (t *Types) Lack(sentence string) int32 {
	k := slices.Index(t.missing, sentence)
	if k < 0 {
		k = len(t.missing)
		t.missing = append(t.missing, sentence)
	}
	return int32(Missing + k)
}

// Lacks says what is missing where a program calls the helper with that number, "" for nothing.
func (t *Types) Lacks(helper int32) string {
	if k := int(helper) - Missing; t != nil && k >= 0 && k < len(t.missing) {
		return t.missing[k]
	}
	return ""
}

// types are a file's.
type types struct {
	info *dwarf.Data
	at   map[string][]dwarf.Offset // structures, unions, enumerations and names of types
	made converter
}

// Named are the different types of that name, as BTF: a program's files may each have its own. One of the object's own is the only
// answer.
// Files without debug information have none. Errors: a file is none of a program's, or its
// information is damaged.
func (t *Types) Named(name string) (all []btf.Type, err error) {
	for _, own := range t.own {
		if own.TypeName() == name {
			return []btf.Type{own}, nil
		}
	}
	for len(t.read) < len(t.files) {
		f, err := readTypes(t.files[len(t.read)])
		if err != nil {
			return nil, err
		}
		t.read = append(t.read, f)
	}
	seen := map[string]bool{}
	for _, f := range t.read {
		for _, at := range f.at[name] {
			found, err := f.info.Type(at)
			if err != nil {
				return nil, err
			}
			made := f.made.convert(found, 0)
			if text := shape(made); made != nil && !seen[text] {
				seen[text] = true
				all = append(all, made)
			}
		}
	}
	return all, nil
}

func readTypes(r io.ReaderAt) (*types, error) {
	t := &types{at: map[string][]dwarf.Offset{}, made: converter{made: map[dwarf.Type]btf.Type{}}}
	f, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	if f.Section(".debug_info") == nil && f.Section(".zdebug_info") == nil {
		return t, nil
	}
	if t.info, err = f.DWARF(); err != nil {
		return nil, err
	}
	units := t.info.Reader()
	for {
		e, err := units.Next()
		if err != nil || e == nil {
			return t, err
		}
		switch e.Tag {
		case dwarf.TagStructType, dwarf.TagUnionType, dwarf.TagEnumerationType, dwarf.TagTypedef:
			if name, ok := e.Val(dwarf.AttrName).(string); ok && e.Val(dwarf.AttrDeclaration) != true {
				t.at[name] = append(t.at[name], e.Offset)
			}
			units.SkipChildren()
		case dwarf.TagSubprogram:
			units.SkipChildren()
		}
	}
}

// shape is a text with everything of a type that matters to its readers.
func shape(t btf.Type) string {
	var b strings.Builder
	members := func(kind string, size uint32, all []btf.Member) {
		fmt.Fprintf(&b, "%s %d {", kind, size)
		for _, m := range all {
			fmt.Fprintf(&b, "%s %d %d %s;", m.Name, m.Offset, m.BitfieldSize, shape(m.Type))
		}
		b.WriteByte('}')
	}
	switch t := t.(type) {
	case *btf.Struct:
		members("struct "+t.Name, t.Size, t.Members)
	case *btf.Union:
		members("union "+t.Name, t.Size, t.Members)
	case *btf.Enum:
		fmt.Fprint(&b, "enum ", t.Name, t.Size, t.Signed, t.Values)
	case *btf.Array:
		fmt.Fprintf(&b, "[%d]%s", t.Nelems, shape(t.Type))
	case *btf.Typedef:
		fmt.Fprintf(&b, "%s=%s", t.Name, shape(t.Type))
	case *btf.Int:
		fmt.Fprint(&b, "int ", t.Name, t.Size, t.Encoding)
	default:
		fmt.Fprintf(&b, "%T", t)
	}
	return b.String()
}
