package bind

import (
	"debug/dwarf"

	"kprobe/source"
	"kprobe/spec"
)

// dynamic makes a Go interface an argument: the name of the type of what is in it, or nil. False where the value is
// none, or something else than that is asked for.
func (b *binder) dynamic(a *spec.Arg, v value) (bool, error) {
	t, ok := source.Plain(v.typ).(*dwarf.StructType)
	if !ok || a.Type.Written != "" {
		return false, nil
	}
	var at *spec.Fetch
	switch t.StructName {
	case "runtime.eface":
		typ, ok, err := b.path(v, "_type")
		if !ok || err != nil {
			return false, err
		}
		if at, err = b.site.word(typ); err != nil {
			return false, err
		}
	case "runtime.iface":
		table, ok, err := b.path(v, "tab")
		to, is := source.Plain(table.typ).(*dwarf.PtrType)
		if !ok || !is || err != nil {
			return false, err
		}
		itab, is := source.Plain(to.Type).(*dwarf.StructType)
		if !is {
			return false, nil
		}
		m, off, ok := source.Member(itab, "Type")
		if !ok {
			if m, off, ok = source.Member(itab, "_type"); !ok { // before Go 1.22
				return false, nil
			}
		}
		if m.Type.Size() != int64(b.site.Arch.PtrSize) {
			return false, nil
		}
		word, err := b.site.word(table)
		if err != nil {
			return false, err
		}
		at = &spec.Fetch{Op: spec.Deref, N: off, Inner: word, Nil: true}
	default:
		return false, nil
	}
	types := b.site.Data.GoTypes()
	if len(types) == 0 {
		return false, nil
	}
	names := map[int64]string{0: "nil"}
	for addr, name := range types {
		names[int64(addr+b.site.Bias)] = name
	}
	size := b.site.Arch.PtrSize
	a.Fetch = *at
	a.Type = spec.Type{Written: "type", Base: spec.Enumeration, Size: size, Enum: &spec.Enum{Name: "type", Values: names}}
	return true, nil
}
