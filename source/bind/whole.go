package bind

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"

	"kprobe/source"
	"kprobe/spec"
)

// How much of a value that has parts becomes arguments.
const (
	maxDepth   = 3  // structs in structs
	maxMembers = 16 // of one struct
	maxElems   = 5  // of an array or a container whose elements have parts, or are texts
	maxParts   = 64 // of one value, in all
	maxWords   = 16 // bytes of an array that is in registers
	maxOthers  = 4  // what a thing is not, for that it is the one that is left, itself included
)

// arguments makes a value arguments: one, or where no type is asked for and the value has parts, one for each of these.
func (b *binder) arguments(a spec.Arg, v value) ([]spec.Arg, error) {
	if a.Type.Written == "" && v.text == "" && v.bits == 0 {
		w := &parts{binder: b}
		if w.value(a.Name, v, 0) {
			return w.out, nil
		}
	}
	err := b.typed(&a, v)
	return []spec.Arg{a}, err
}

// parts are the arguments that a value becomes.
type parts struct {
	*binder
	out  []spec.Arg
	full bool
}

// add adds a part; of more than enough only that there is more.
func (w *parts) add(a spec.Arg) {
	if len(w.out) < maxParts {
		w.out = append(w.out, a)
		return
	}
	w.full = true
}

func below(path, name string) string { return path + spec.PartSep + name }

func said(path, text string) spec.Arg {
	return spec.Arg{Name: path, Named: true, Fetch: spec.Fetch{Op: spec.ImmStr, Name: text}, Type: spec.Type{Written: "string", Base: spec.String}}
}

func (w *parts) more(path string) { w.add(said(below(path, spec.PartMore), "")) }

// part adds a value at a path, whatever it is.
func (w *parts) part(path string, v value, depth int) {
	if w.full || w.value(path, v, depth) {
		return
	}
	a := spec.Arg{Name: path, Named: true}
	if err := w.typed(&a, v); err != nil {
		a = said(path, "<"+err.Error()+">")
	}
	w.add(a)
}

// value adds the parts of a value; false, where it has none, or is known to typed as something else.
func (w *parts) value(path string, v value, depth int) bool {
	switch t := source.Plain(v.typ).(type) {
	case *dwarf.StructType:
		probe := spec.Arg{Name: path}
		if done, err := w.library(&probe, v); done || err != nil {
			return false
		}
		if done, err := w.dynamic(&probe, v); err != nil {
			return false
		} else if done {
			return w.inInterface(path, v, probe, depth)
		}
		switch {
		case w.container(path, v, t, depth), w.inNodes(path, v, t, depth), w.pointer(path, v, t, depth), w.variants(path, v, t, depth),
			w.optional(path, v, t, depth), w.tuple(path, v, t, depth), w.length(path, v, t):
			return true
		}
		w.members(path, v, depth)
		return true
	case *dwarf.ArrayType:
		if _, err := w.printed(v); err == nil || t.Count < 1 {
			return false
		}
		most := int64(maxElems)
		if v.addr == nil {
			most = maxWords
			if t.Size() > maxWords {
				return false
			}
		}
		if depth >= maxDepth {
			w.more(path)
			return true
		}
		w.number(below(path, spec.PartCount), &spec.Fetch{Op: spec.Imm, N: t.Count})
		size := max(0, t.Type.Size())
		for i := range min(t.Count, most) {
			name := below(path, fmt.Sprintf("[%d]", i))
			e, err := w.site.part(v, i*size, size, t.Type)
			if err != nil { // its place among the others is kept
				w.add(said(name, "<"+err.Error()+">"))
				continue
			}
			w.part(name, e, depth+1)
		}
		return true
	case *dwarf.PtrType:
		return w.goHeader(path, v, t)
	case *dwarf.ComplexType:
		return w.complex(path, v, t)
	default:
		return w.wide(path, v)
	}
}

// number adds a number of a word.
func (w *parts) number(path string, f *spec.Fetch) {
	size := w.site.Arch.PtrSize
	w.add(spec.Arg{Name: path, Named: true, Fetch: *f, Type: spec.Type{Written: fmt.Sprintf("u%d", 8*size), Base: spec.Unsigned, Size: size}})
}

// members adds those of a struct.
func (w *parts) members(path string, v value, depth int) {
	t := w.site.Data.Complete(source.Plain(v.typ).(*dwarf.StructType))
	if t.Incomplete || depth >= maxDepth {
		w.more(path)
		return
	}
	n := 0
	for _, f := range t.Field {
		inner, isStruct := source.Plain(f.Type).(*dwarf.StructType)
		var m value
		var err error
		switch {
		case f.BitSize != 0 && f.Name == "":
			continue
		case f.BitSize != 0:
			m, err = w.member(v, &spec.Expr{Op: spec.ExprMember, Name: f.Name, L: &spec.Expr{Op: spec.ExprName, Name: path}})
		default:
			m, err = w.site.part(v, f.ByteOffset, max(0, f.Type.Size()), f.Type)
		}
		if n++; n > maxMembers {
			w.more(path)
			return
		}
		name := below(path, f.Name)
		switch {
		case err != nil:
			w.add(said(name, "<"+err.Error()+">"))
		case isStruct && (f.Name == "" || f.Name == inner.StructName && inner.Kind == "class"): // its members are this one's
			if len(w.site.Data.Complete(inner).Field) > 0 {
				w.members(path, m, depth)
			}
		case f.Name == "":
		default:
			w.part(name, m, depth+1)
		}
	}
	if n == 0 {
		w.number(below(path, spec.PartCount), &spec.Fetch{Op: spec.Imm})
	}
}

// container adds the elements of one of layouts that have parts themselves, or are texts.
func (w *parts) container(path string, v value, t *dwarf.StructType, depth int) bool {
	for i := range layouts {
		l := &layouts[i]
		if l.text || !strings.HasPrefix(t.StructName, l.name) {
			continue
		}
		data, ok, err := w.path(v, l.data)
		if !ok || err != nil {
			continue
		}
		to, ok := source.Plain(data.typ).(*dwarf.PtrType)
		if !ok {
			continue
		}
		count, ok, err := w.path(v, l.len+l.end)
		elem := w.elem(v, to, l)
		if !ok || err != nil || elem == nil || elem.Size() <= 0 || count.typ.Size() != int64(w.site.Arch.PtrSize) {
			continue
		}
		from, err1 := w.site.word(data)
		n, err2 := w.site.word(count)
		if errors.Join(err1, err2) != nil {
			continue
		}
		w.counted(path, from, n, l.end != "")
		w.resize(elem.Size())
		if depth >= maxDepth {
			return true
		}
		for i := range int64(maxElems) {
			g := &spec.Guard{Of: n, Size: w.site.Arch.PtrSize, N: i}
			if l.end != "" {
				g.Minus, g.N = from, (i+1)*elem.Size()-1
			}
			there := &spec.Fetch{Op: spec.Maybe, Inner: from, Guard: g}
			w.part(below(path, fmt.Sprintf("[%d]", i)), value{typ: elem, addr: plus(there, uint64(i*elem.Size()))}, depth+1)
		}
		return true
	}
	return false
}

// counted adds how many elements there are: as many as n says, or up to where it points.
func (w *parts) counted(path string, from, n *spec.Fetch, end bool) {
	if !end {
		w.number(below(path, spec.PartCount), n)
		return
	}
	a := spec.Arg{Name: below(path, spec.PartCount), Named: true, Fetch: *load(from),
		Type: spec.Type{Written: "u8", Base: spec.Unsigned, Size: 1, Array: 1, Counted: true}}
	a.Fetch.End = n
	w.add(a)
}

// resize has the count that was added last be one of elements of a size, in bytes.
func (w *parts) resize(size int64) {
	a := &w.out[len(w.out)-1]
	if !a.Type.Counted {
		return
	}
	for _, unit := range []int64{8, 4, 2} { // the largest number that elements are made of
		if size%unit == 0 {
			a.Type.Written, a.Type.Size = fmt.Sprintf("u%d", 8*unit), int(unit)
			size /= unit
			break
		}
	}
	a.Name += fmt.Sprint(size)
}

// pointers are the types of libraries that stand for what they point at, by the beginnings of their names and the
// pointer in them.
var pointers = []struct{ name, data string }{
	{"unique_ptr<", "_M_t._M_t._M_head_impl"}, // libstdc++
	{"shared_ptr<", "_M_ptr"},
	{"unique_ptr<", "__ptr_"}, // libc++
	{"unique_ptr<", "__ptr_.__value_"},
	{"shared_ptr<", "__ptr_"},
	{"Rc<", "ptr.pointer"}, // Rust
	{"Arc<", "ptr.pointer"},
}

// pointer adds what one of pointers points at.
func (w *parts) pointer(path string, v value, t *dwarf.StructType, depth int) bool {
	in, at, ok := w.pointee(v, t)
	if !ok {
		return false
	}
	w.number(below(path, spec.PartTag), at)
	if isStruct(in.typ) && w.plainStruct(in.typ, in) {
		w.members(path, in, depth)
	} else {
		w.part(below(path, spec.PartValue), in, depth+1)
	}
	return true
}

// pointee is what a value that is one of pointers points at, and the address that it has; false for any other.
func (b *binder) pointee(v value, t *dwarf.StructType) (in value, at *spec.Fetch, ok bool) {
	for _, p := range pointers {
		if !strings.HasPrefix(t.StructName, p.name) {
			continue
		}
		data, ok := b.pointerAt(v, p.data)
		if !ok {
			continue
		}
		to := source.Plain(data.typ).(*dwarf.PtrType)
		at, err := b.site.word(data)
		if err != nil {
			continue
		}
		in := value{typ: to.Type, addr: &spec.Fetch{Op: spec.Maybe, Inner: at}}
		if counted, ok := source.Plain(to.Type).(*dwarf.StructType); ok && (strings.HasPrefix(counted.StructName, "RcInner<") || strings.HasPrefix(counted.StructName, "ArcInner<")) {
			member := map[byte]string{'R': "value", 'A': "data"}[counted.StructName[0]]
			if inner, ok, err := b.path(in, member); ok && err == nil { // behind the counts
				in = inner
			}
		}
		return in, at, true
	}
	return value{}, nil, false
}

// variants adds what is one of several things: which, and the members of each, of which those are there that it has.
func (w *parts) variants(path string, v value, t *dwarf.StructType, depth int) bool {
	vs := w.site.Data.Variants(t)
	if vs == nil {
		return false
	}
	if vs.Tag == nil && len(vs.Cases) == 1 {
		w.members(path, w.variant(v, &vs.Cases[0], nil), depth)
		return true
	}
	tag, err := w.tag(v, vs, t.StructName)
	if err != nil {
		w.add(said(path, "<"+err.Error()+">"))
		return true
	}
	w.add(spec.Arg{Name: below(path, spec.PartTag), Named: true, Fetch: *tag.of, Type: tag.typ})
	for i := range vs.Cases {
		c := &vs.Cases[i]
		s, ok := source.Plain(c.Field.Type).(*dwarf.StructType)
		if !ok || len(w.site.Data.Complete(s).Field) == 0 {
			continue
		}
		var g *spec.Guard
		if !c.Other {
			g = tag.is(c.Value, false)
		}
		for k := range vs.Cases {
			if c.Other && k != i {
				g = both(g, tag.is(vs.Cases[k].Value, true))
			}
		}
		if c.Other && len(vs.Cases) > maxOthers {
			w.more(below(path, c.Field.Name))
			continue
		}
		w.members(below(path, c.Field.Name), w.variant(v, c, g), depth)
	}
	return true
}

// variant is a value taken for one of the things that it may be, which it is where a condition holds.
func (w *parts) variant(v value, c *source.Case, g *spec.Guard) value {
	v.typ = c.Field.Type
	switch at := c.Field.ByteOffset; {
	case v.addr != nil:
		if g != nil {
			v.addr = &spec.Fetch{Op: spec.Maybe, Inner: v.addr, Guard: g}
		}
		v.addr = plus(v.addr, uint64(at))
	case v.val != nil:
		v.at, v.when = v.at+8*at, both(v.when, g)
	default:
		v.when = both(v.when, g)
	}
	return v
}

// tag tells which of several things a value is.
type tag struct {
	of   *spec.Fetch
	at   int // which bits of it, from this on
	size int64
	typ  spec.Type
}

// tag finds it, and names what it says. Errors: why it cannot be read.
func (w *parts) tag(v value, vs *source.Variants, name string) (*tag, error) {
	if vs.Tag == nil {
		return nil, errors.New("which of several things it is, is not known")
	}
	t := &tag{size: vs.Tag.Type.Size()}
	if t.size != 1 && t.size != 2 && t.size != 4 && t.size != 8 {
		return nil, fmt.Errorf("what tells which of several things it is has %d bytes", t.size)
	}
	at, err := w.site.part(v, vs.Tag.ByteOffset, t.size, vs.Tag.Type)
	if errors.Is(err, source.ErrOptimized) {
		return nil, errors.New("which of several things it is was optimized out")
	} else if err != nil {
		return nil, err
	}
	enum := &spec.Enum{Name: name, Values: map[int64]string{}}
	for i := range vs.Cases {
		if c := &vs.Cases[i]; c.Other {
			enum.Other = c.Field.Name
		} else {
			enum.Values[c.Value<<(64-8*t.size)>>(64-8*t.size)] = c.Field.Name
		}
	}
	t.typ = spec.Type{Written: fmt.Sprintf("s%d", 8*t.size), Base: spec.Enumeration, Size: int(t.size), Enum: enum}
	if t.of = at.val; at.addr != nil {
		t.of = load(at.addr)
	} else if t.at = int(at.at); t.at != 0 {
		t.typ.Size, t.typ.BitW, t.typ.BitO = w.site.Arch.PtrSize, int(8*t.size), t.at
		t.typ.Written = fmt.Sprintf("b%d@%d/%d", t.typ.BitW, t.at, 8*t.typ.Size)
	}
	return t, nil
}

// is asks whether the tag has a value, or not has it.
func (t *tag) is(n int64, not bool) *spec.Guard {
	n = int64(uint64(n) << (64 - 8*t.size) >> (64 - 8*t.size)) // it is read without a sign
	return &spec.Guard{Of: t.of, At: t.at, Size: int(t.size), Equal: true, Not: not, N: n}
}

// pointerAt goes along a path to a member that is a pointer: base classes may have others of the name.
func (w *binder) pointerAt(v value, path string) (value, bool) {
	name, rest, deeper := strings.Cut(path, ".")
	t, ok := source.Plain(v.typ).(*dwarf.StructType)
	if !ok {
		return v, false
	}
	for _, f := range w.site.Data.Complete(t).Field {
		inner, isStruct := source.Plain(f.Type).(*dwarf.StructType)
		if f.BitSize != 0 || f.Name != name && (!isStruct || f.Name != "" && f.Name != inner.StructName) {
			continue
		}
		m, err := w.site.part(v, f.ByteOffset, max(0, f.Type.Size()), f.Type)
		switch {
		case err != nil:
			continue
		case f.Name != name:
			m, ok = w.pointerAt(m, path)
		case deeper:
			m, ok = w.pointerAt(m, rest)
		default:
			p, is := source.Plain(f.Type).(*dwarf.PtrType)
			ok = is && p.Type != nil
		}
		if ok {
			return m, true
		}
	}
	return v, false
}

// plainStruct tells the structs that are printed by their members.
func (w *parts) plainStruct(t dwarf.Type, v value) bool {
	try := &parts{binder: w.binder}
	return try.value("", v, 0) && len(try.out) > 0 && !strings.HasPrefix(try.out[0].Name, spec.PartSep+spec.PartTag) && !strings.HasPrefix(try.out[0].Name, spec.PartSep+spec.PartCount)
}

// headers are what Go's maps and channels point at, by the beginnings of the names of the types that they are of, and
// the members that tell how much is in them.
var headers = []struct {
	name    string
	members [][2]string
}{
	{"map<", [][2]string{{"len", "used"}}},
	{"hash<", [][2]string{{"len", "count"}}}, // before Go 1.24
	{"hchan<", [][2]string{{"len", "qcount"}, {"cap", "dataqsiz"}}},
}

// goHeader adds how much is in a map or channel of Go.
func (w *parts) goHeader(path string, v value, t *dwarf.PtrType) bool {
	to, ok := source.Plain(t.Type).(*dwarf.StructType)
	if !ok || !w.site.Data.Go(w.site.At) {
		return false
	}
	for _, h := range headers {
		if !strings.HasPrefix(to.StructName, h.name) {
			continue
		}
		at, err := w.site.word(v)
		if err != nil {
			return false
		}
		in := value{typ: to, addr: &spec.Fetch{Op: spec.Maybe, Inner: at}}
		var add []spec.Arg
		for _, m := range h.members {
			n, ok, err := w.path(in, m[1])
			if !ok || err != nil {
				return false
			}
			a := spec.Arg{Name: below(path, m[0]), Named: true}
			if w.typed(&a, n) != nil {
				return false
			}
			add = append(add, a)
		}
		w.number(below(path, spec.PartTag), at)
		w.out = append(w.out, add...)
		return true
	}
	return false
}
