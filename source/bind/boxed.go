package bind

import (
	"cmp"
	"debug/dwarf"

	"kprobe/source"
	"kprobe/spec"
)

// texts are the types with a text at the beginning of the value that an interface of Go points at.
var texts = []string{"string", "*errors.errorString", "*fmt.wrapError", "*fmt.fmtError"}

// boxes are the types whose values are told where they are in an interface of Go without methods. A value of theirs lies
// in memory, at which the interface points. There are so few since each is a part, in each of the elements of a slice.
var boxes = []struct {
	name string
	typ  func(dwarf.BasicType) dwarf.Type
	size int64 // 0: a pointer's
}{
	{"int", signed, 0}, {"bool", boolean, 1}, {"int64", signed, 8}, {"float64", floating, 8}, {"uint64", unsigned, 8}, {"int32", signed, 4},
	{"time.Duration", signed, 8},
}

func signed(b dwarf.BasicType) dwarf.Type   { return &dwarf.IntType{BasicType: b} }
func unsigned(b dwarf.BasicType) dwarf.Type { return &dwarf.UintType{BasicType: b} }
func boolean(b dwarf.BasicType) dwarf.Type  { return &dwarf.BoolType{BasicType: b} }
func floating(b dwarf.BasicType) dwarf.Type { return &dwarf.FloatType{BasicType: b} }

// inInterface adds the contents of an interface of Go: their type, as dynamic has it, and their value, where the type is
// one of those above. False: it is no more than its type.
func (w *parts) inInterface(path string, v value, typ spec.Arg, depth int) bool {
	d, named := v.typ.(*dwarf.TypedefType)
	t, ok := source.Plain(v.typ).(*dwarf.StructType)
	empty := ok && t.StructName == "runtime.eface"
	if !empty && (!named || d.Name != "error") {
		return false
	}
	data, ok, err := w.path(v, "data")
	if !ok || err != nil {
		return false
	}
	at, err := w.site.word(data)
	if err != nil {
		return false
	}
	addrs := map[string]int64{}
	for addr, name := range typ.Type.Enum.Values {
		addrs[name] = addr
	}
	is, size := typ.Fetch, w.site.Arch.PtrSize
	there := func(name string) *spec.Fetch {
		return &spec.Fetch{Op: spec.Maybe, Inner: at, Guard: &spec.Guard{Of: &is, Size: size, Equal: true, N: addrs[name]}}
	}
	typ.Name, typ.Named = below(path, spec.PartTag), true
	w.add(typ)
	for _, name := range texts {
		if addrs[name] == 0 || name == "string" && !empty {
			continue
		}
		a := spec.Arg{Name: below(below(path, name), spec.PartValue), Named: true, Type: spec.Type{Written: "string", Base: spec.String, Counted: true}}
		a.Fetch = *load(load(there(name)))
		a.Fetch.Count = load(plus(there(name), uint64(size)))
		w.add(a)
	}
	if !empty {
		return true
	}
	for _, b := range boxes {
		if addrs[b.name] != 0 {
			basic := dwarf.BasicType{CommonType: dwarf.CommonType{ByteSize: cmp.Or(b.size, int64(size)), Name: b.name}}
			w.part(below(below(path, b.name), spec.PartValue), value{typ: b.typ(basic), addr: there(b.name)}, depth+1)
		}
	}
	return true
}
