// Package debug tells what a program's debug data says of its functions and types, in the terms of scripts.
package debug

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/script/machine"
	"kprobe/script/point"
	"kprobe/script/types"
	"kprobe/source"
	"kprobe/source/bind"
	"kprobe/symbol"
)

// Data is the debug data of a file. It is for one goroutine.
type Data struct {
	file *symbol.File
	made map[dwarf.Type]*types.Type
}

// Of is the debug data of a file, which must stay open. What is wrong with it is told when it is asked.
func Of(f *symbol.File) *Data { return &Data{f, map[dwarf.Type]*types.Type{}} }

// Match are the functions of a file that a name stands for.
func Match(f *symbol.File, name point.Name) []symbol.Symbol {
	if name.Source {
		return f.MatchReadable(name.Pattern)
	}
	return f.Match(name.Pattern)
}

// Told is the name that an attach point has for a function.
func Told(sym symbol.Symbol, by point.Name) string {
	if by.Source {
		return "cpp:" + symbol.Signature(sym.Name)
	}
	return sym.Label()
}

// Functions are those that a name stands for, with their parameters.
func (d *Data) Functions(name point.Name) (all []point.Function) {
	for _, sym := range d.named(name) {
		fn := d.function(sym, name)
		fn.Params, fn.Err = d.params(sym)
		all = append(all, fn)
	}
	return all
}

// Passings are the functions at a point, without their parameters.
func (d *Data) Passings(pt *point.Point) (all []point.Function) {
	var found []symbol.Symbol
	if vaddr, _ := Place(d.file, pt); !pt.HasAddr {
		found = d.named(pt.Name())
	} else if sym, ok := d.file.FuncAt(vaddr); ok {
		found = []symbol.Symbol{sym}
	}
	for _, sym := range found {
		all = append(all, d.function(sym, pt.Name()))
	}
	return all
}

// named are the functions that a name stands for.
func (d *Data) named(name point.Name) []symbol.Symbol {
	return slices.DeleteFunc(Match(d.file, name), func(s symbol.Symbol) bool { return s.Kind != symbol.Func })
}

// Place is an attach point's address in a file, as symbols have it: the point may have that, or the number of a byte of the file.
func Place(f *symbol.File, pt *point.Point) (vaddr uint64, ok bool) {
	if pt.Virtual && f.IsText(pt.Address) {
		return pt.Address, true
	}
	vaddr, ok = f.VaddrOf(pt.Address)
	return vaddr, ok && f.IsText(vaddr)
}

func (d *Data) function(sym symbol.Symbol, by point.Name) point.Function {
	fn := point.Function{Name: Told(sym, by), Passing: d.file.Passing(sym)}
	fn.Offset, _ = d.file.OffOf(sym.Addr)
	return fn
}

func (d *Data) params(sym symbol.Symbol) (all []point.Param, err error) {
	m := machine.OfELF(d.file.Machine())
	if m == nil {
		return nil, errors.New("it is of neither x86-64 nor arm64")
	}
	a := m.Arch
	site := bind.EntryOf(a, d.file, sym)
	if site.Err != nil {
		return nil, site.Err
	}
	for _, p := range site.Parameters() {
		out := point.Param{Name: p.Name, C: strings.ReplaceAll(bind.TypeName(p.Type), " *", "*"), Type: d.typ(site.Data, p.Type, ""), Err: p.Err}
		switch {
		case out.Err != nil:
		case out.Type == nil:
			out.Err = fmt.Errorf("a %s has no type in scripts", out.C)
		case out.Type.Kind == types.Float:
			out.Err = fmt.Errorf("%s is a floating-point number, which scripts cannot use", p.Name)
		case p.Regs != nil:
			for _, reg := range p.Regs {
				out.Regs = append(out.Regs, a.RegNames[reg])
			}
		case p.Reg == arch.NoReg:
			out.Stack = int(p.Pos)
		default:
			out.Regs = []string{a.RegNames[p.Reg]}
		}
		all = append(all, out)
	}
	return all, nil
}

// Constant is one that an enumeration names.
func (d *Data) Constant(name string) (value uint64, t *types.Type, ok bool) {
	data, err := bind.Of(d.file)
	if err != nil {
		return 0, nil, false
	}
	if e, n := data.Enumerator(name); e != nil {
		if t = d.typ(data, e, ""); t != nil {
			return types.Truncate(uint64(n), t), t, true
		}
	}
	return 0, nil, false
}

// Variable gives the address and the size of a variable, as symbols have them.
func (d *Data) Variable(name string) (addr, size uint64, err error) {
	all := d.file.Lookup(name)
	if len(all) == 0 {
		return 0, 0, errors.New("there is no such symbol")
	}
	return all[0].Addr, all[0].Size, nil
}

// Inlined are the copies of a function that was inlined. Debug data that is not here is asked for with fetch alone.
func (d *Data) Inlined(name point.Name, fetch bool) (found point.Copies) {
	of := bind.Here
	if fetch {
		of = bind.Of
	}
	data, err := of(d.file)
	if err != nil {
		return found
	}
	found.Body = len(d.named(name)) > 0
	literal := symbol.Literal(name.Pattern)
	bare, _, one := strings.Cut(literal, "(")
	all, err := data.Function(literal, "")
	if name.Source && one && (err != nil || len(all) == 0) {
		all, _ = data.Function(strings.TrimSpace(bare), "")
		if len(all) > 1 { // which of the overloads that is, is not known
			return point.Copies{Body: found.Body}
		}
	}
	for _, fn := range all {
		if fn.Name != literal && fn.Name != bare {
			continue // of another namespace
		}
		for _, c := range fn.Copies {
			if c.Inlined && !slices.Contains(found.Places, c.Entry) {
				found.Places = append(found.Places, c.Entry)
			}
		}
	}
	return found
}

// Lines are where the code of a source line begins, as symbols have it.
func (d *Data) Lines(file string, line int) (all []uint64, err error) {
	data, err := bind.Of(d.file)
	if err != nil {
		return nil, err
	}
	sites, err := data.Line(file, line)
	for _, s := range sites {
		all = append(all, s.Addr)
	}
	return all, err
}

// kinds of types by the words that they are named with.
var kinds = []string{"struct", "union", "enum", "class"}

// Type is a type by its name: "struct foo", "foo_t"; nil for none.
func (d *Data) Type(name string) *types.Type {
	data, err := bind.Of(d.file)
	if err != nil {
		return nil
	}
	kind, rest, _ := strings.Cut(name, " ")
	for _, k := range kinds {
		if k == kind {
			return d.typ(data, data.TypeNamed(kind, rest), "")
		}
	}
	return d.typ(data, data.TypeNamed("", name), "")
}

// typ is a type as scripts have it; nil for those that they have not: complex numbers, say. name is what a type
// without a name of its own is called.
func (d *Data) typ(data *source.File, t dwarf.Type, name string) *types.Type {
	switch u := t.(type) {
	case *dwarf.TypedefType:
		return d.typ(data, u.Type, u.Name)
	case *dwarf.QualType:
		return d.typ(data, u.Type, name)
	case *dwarf.BoolType:
		return types.BoolT
	case *dwarf.FloatType:
		return &types.Type{Kind: types.Float, Size: int(t.Size())}
	case *dwarf.IntType, *dwarf.CharType:
		return integer(t.Size(), true)
	case *dwarf.UintType, *dwarf.UcharType, *dwarf.AddrType:
		return integer(t.Size(), false)
	case *dwarf.PtrType:
		return types.PointerTo(d.typ(data, u.Type, ""))
	case *dwarf.EnumType:
		return d.enum(u, name)
	case *dwarf.ArrayType:
		return d.array(data, u)
	case *dwarf.StructType:
		return d.record(data, u, name)
	}
	return nil
}

func integer(size int64, signed bool) *types.Type {
	if t := types.IntOf(int(size), signed); t.Size == int(size) {
		return t
	}
	return nil
}

func (d *Data) enum(u *dwarf.EnumType, name string) *types.Type {
	t := d.made[u]
	if t != nil || integer(u.ByteSize, false) == nil {
		return t
	}
	if u.EnumName != "" {
		name = "enum " + u.EnumName
	}
	t = &types.Type{Kind: types.Enum, Size: int(u.ByteSize), Name: name, Names: map[uint64]string{}}
	for _, v := range u.Val {
		t.Signed = t.Signed || v.Val < 0
	}
	for _, v := range u.Val {
		if n := types.Truncate(uint64(v.Val), t); t.Names[n] == "" {
			t.Names[n] = v.Name
		}
	}
	d.made[u] = t
	return t
}

// array is one, or of characters a string.
func (d *Data) array(data *source.File, u *dwarf.ArrayType) *types.Type {
	elem, n := d.typ(data, u.Type, ""), int(max(u.Count, 0))
	switch _, text := source.Plain(u.Type).(*dwarf.CharType); {
	case elem == nil:
		return nil
	case text && n > 0:
		return types.CharsOf(n)
	}
	return types.ArrayOf(elem, n)
}

// record is a structure. Members of types that scripts have not are left out.
func (d *Data) record(data *source.File, u *dwarf.StructType, name string) *types.Type {
	u = data.Complete(u)
	if t := d.made[u]; t != nil {
		return t
	}
	switch {
	case u.StructName != "":
		name = strings.Replace(u.Kind, "class", "struct", 1) + " " + u.StructName
	case name == "":
		name = u.Kind
	}
	t := &types.Type{Kind: types.Record, Name: name, Size: int(max(u.ByteSize, 0)), Len: 1}
	d.made[u] = t // before its members, which may point to it
	for _, m := range u.Field {
		mt := d.typ(data, m.Type, "")
		if mt == nil {
			continue
		}
		t.Len = max(t.Len, mt.Align())
		f := types.Field{Name: m.Name, Type: mt, Offset: int(m.ByteOffset)}
		if m.BitSize > 0 {
			f = types.BitField(m.Name, mt, int(source.Bit(m, m.ByteOffset, false)), int(m.BitSize))
		}
		t.Add(f)
	}
	return t
}
