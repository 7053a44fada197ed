package kernel

import (
	"kprobe/arch"
	"kprobe/symbol"
)

// ORC is a kernel's or a module's table of callers, in two arrays (symbol reads it where a file has
// it): the places that rows hold from, 4 bytes each and relative to themselves, and the rows.
type ORC struct{ Places, Rows arch.Range }

// maxORC is the largest number of rows that is believed.
const maxORC = 1 << 24

// ORC is the table of the kernel itself; false where it has none: its stacks are walked by frame
// pointers then.
func (k *Kernel) ORC() (ORC, bool) {
	places, ok1 := k.table.between("__start_orc_unwind_ip", "__stop_orc_unwind_ip")
	rows, ok2 := k.table.between("__start_orc_unwind", "__stop_orc_unwind")
	return ORC{places, rows}, ok1 && ok2
}

// ModuleORC is the table of a module; false where it has none, or the kernel's type information
// does not tell.
func (k *Kernel) ModuleORC(m *Module) (o ORC, ok bool) {
	var n, places, rows int
	if k.types == nil || k.types.offsets("module", map[string]*int{
		"arch.num_orcs": &n, "arch.orc_unwind_ip": &places, "arch.orc_unwind": &rows}) != nil {
		return o, false
	}
	v := k.view()
	count := v.uint(m.at+arch.Addr(n), 4)
	at, table := v.ptr(m.at+arch.Addr(places)), v.ptr(m.at+arch.Addr(rows))
	if v.err != nil || count == 0 || count > maxORC || at == 0 || table == 0 {
		return o, false
	}
	return ORC{
		Places: arch.Range{Start: at, End: at + arch.Addr(symbol.ORCPlaceSize*count)},
		Rows:   arch.Range{Start: table, End: table + arch.Addr(symbol.ORCRowSize*count)},
	}, true
}
