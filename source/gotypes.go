package source

import (
	"debug/dwarf"
	"debug/elf"
	"slices"
)

// attrGoRuntimeType is where a Go type's description for the program itself lies, from runtime.types on.
const attrGoRuntimeType dwarf.Attr = 0x2904

// readGoTypes are the names of Go's types by the address of their description, which is what interfaces have.
func (f *File) readGoTypes(e *elf.File) map[uint64]string {
	symbols, _ := e.Symbols()
	i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == "runtime.types" })
	if i < 0 {
		return nil
	}
	base := symbols[i].Value
	out := map[uint64]string{}
	r := f.data.Reader()
	for {
		e, err := r.Next()
		if err != nil || e == nil {
			return out
		}
		name, _ := e.Val(dwarf.AttrName).(string)
		if at, has := e.Val(attrGoRuntimeType).(uint64); has && at != 0 && name != "" {
			out[base+at] = name
		}
		if e.Children && e.Tag != dwarf.TagCompileUnit {
			r.SkipChildren()
		}
	}
}

// GoTypes are the names of Go's types by the address, of the file, of their description; none where the symbols do
// not say where these begin.
func (f *File) GoTypes() map[uint64]string { return f.goType() }
