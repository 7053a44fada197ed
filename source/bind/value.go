package bind

import (
	"debug/dwarf"
	"errors"
	"fmt"
	"strings"

	"kprobe/source"
	"kprobe/spec"
)

// eval gives what an expression stands for.
func (b *binder) eval(e *spec.Expr) (value, error) {
	switch e.Op {
	case spec.ExprName:
		return b.variable(e.Name)
	case spec.ExprDollar:
		if e.Name == "retval" {
			return b.result()
		}
		return value{}, fmt.Errorf("$%s is no part of an expression", e.Name)
	case spec.ExprNumber:
		return value{typ: longType, val: &spec.Fetch{Op: spec.Imm, N: int64(e.N)}}, nil
	case spec.ExprMember:
		if v, ok := b.ofPackage(e); ok {
			return v, nil
		}
	case spec.ExprArrow, spec.ExprIndex, spec.ExprDeref, spec.ExprAddress, spec.ExprCast:
	case spec.ExprUnary:
		if e.Name == "-" && e.L.Op == spec.ExprNumber {
			return value{typ: longType, val: &spec.Fetch{Op: spec.Imm, N: -int64(e.L.N)}}, nil
		}
		return value{}, fmt.Errorf("%s is computed: only conditions compute", e)
	default:
		return value{}, fmt.Errorf("%s is computed: only conditions compute", e)
	}
	v, err := b.eval(e.L)
	if err != nil {
		return v, err
	}
	switch e.Op {
	case spec.ExprArrow:
		if v, err = b.follow(v, e.L); err == nil {
			v, err = b.member(v, e)
		}
	case spec.ExprMember:
		if p, ok := source.Plain(v.typ).(*dwarf.PtrType); ok && isStruct(p.Type) { // C++'s references, and Go
			v, err = b.follow(v, e.L)
		}
		if err == nil {
			v, err = b.member(v, e)
		}
	case spec.ExprDeref:
		v, err = b.follow(v, e.L)
	case spec.ExprIndex:
		v, err = b.index(v, e)
	case spec.ExprAddress:
		if v.addr == nil || v.bits != 0 || v.addr.Op == spec.Maybe || v.addr.Op == spec.Plus && v.addr.Inner.Op == spec.Maybe {
			return v, fmt.Errorf("%s has no address: it is in a register", e.L)
		}
		v = value{typ: pointerTo(v.typ, b.site.Arch.PtrSize), val: v.addr}
	case spec.ExprCast:
		v, err = b.cast(v, e)
	}
	return v, err
}

var longType = &dwarf.IntType{BasicType: dwarf.BasicType{CommonType: dwarf.CommonType{ByteSize: 8, Name: "long"}}}

func pointerTo(t dwarf.Type, size int) dwarf.Type {
	return &dwarf.PtrType{CommonType: dwarf.CommonType{ByteSize: int64(size)}, Type: t}
}

func isStruct(t dwarf.Type) bool {
	_, ok := source.Plain(t).(*dwarf.StructType)
	return ok
}

// follow goes from a pointer to what it points at.
func (b *binder) follow(v value, what *spec.Expr) (value, error) {
	switch t := source.Plain(v.typ).(type) {
	case *dwarf.PtrType:
		if _, void := source.Plain(t.Type).(*dwarf.VoidType); void || t.Type == nil {
			return v, fmt.Errorf("%s is a pointer to nothing of a type: cast it", what)
		}
		to, err := b.site.word(v)
		if err != nil {
			return v, err
		}
		return value{typ: t.Type, addr: to}, nil
	case *dwarf.ArrayType:
		return b.site.part(v, 0, max(0, t.Type.Size()), t.Type)
	case *dwarf.StructType:
		if in, _, ok := b.pointee(v, t); ok {
			return in, nil
		}
	}
	return v, fmt.Errorf("%s is a %v, no pointer", what, typeName(v.typ))
}

// ofPackage is a variable of a package of Go, main.Config: in debug data the whole is its name.
func (b *binder) ofPackage(e *spec.Expr) (value, bool) {
	if e.L.Op != spec.ExprName || !b.site.Data.Go(b.site.At) {
		return value{}, false
	}
	if _, err := b.site.Data.Variable(b.site.At, e.L.Name); err == nil {
		return value{}, false
	}
	v, err := b.variable(e.L.Name + "." + e.Name)
	return v, err == nil
}

// member goes from a struct to a member of it.
func (b *binder) member(v value, e *spec.Expr) (value, error) {
	t, ok := source.Plain(v.typ).(*dwarf.StructType)
	if !ok {
		if _, is := source.Plain(v.typ).(*dwarf.PtrType); is {
			return v, fmt.Errorf("%s is a pointer: use ->", e.L)
		}
		return v, fmt.Errorf("%s is a %s, which has no members", e.L, typeName(v.typ))
	}
	t = b.site.Data.Complete(t)
	m, off, ok := source.Member(t, e.Name)
	if !ok {
		var names []string
		for _, f := range t.Field {
			if f.Name != "" {
				names = append(names, f.Name)
			}
		}
		if t.Incomplete {
			return v, fmt.Errorf("%s is only declared here, its members are not known", typeName(t))
		}
		return v, fmt.Errorf("%s has no member %q: it has %s", typeName(t), e.Name, strings.Join(names, ", "))
	}
	if m.BitSize == 0 {
		return b.site.part(v, off, max(0, m.Type.Size()), m.Type)
	}
	bit := source.Bit(m, off, b.site.Arch.Order.String() == "BigEndian")
	switch {
	case v.val != nil:
		return value{typ: m.Type, val: v.val, at: v.at + bit, bits: m.BitSize}, nil
	case v.addr != nil:
		// The smallest unit of memory that holds it.
		for _, size := range []int64{1, 2, 4, 8} {
			if begin := bit / (8 * size) * size; bit-8*begin+m.BitSize <= 8*size {
				return value{typ: m.Type, addr: plus(v.addr, uint64(begin)), at: bit - 8*begin, bits: m.BitSize}, nil
			}
		}
	}
	return v, errors.New("a bit-field that is in pieces is not read")
}

// index goes to an element.
func (b *binder) index(v value, e *spec.Expr) (value, error) {
	i, err := b.eval(e.R)
	if err != nil {
		return v, err
	}
	if i.val == nil || i.val.Op != spec.Imm {
		return v, errors.New("an index must be a number")
	}
	n := i.val.N
	switch t := source.Plain(v.typ).(type) {
	case *dwarf.ArrayType:
		if t.Count > 0 && (n < 0 || n >= t.Count) {
			return v, fmt.Errorf("%s has elements 0 to %d", e.L, t.Count-1)
		}
		size := max(0, t.Type.Size())
		return b.site.part(v, n*size, size, t.Type)
	case *dwarf.PtrType:
		at, err := b.follow(v, e.L)
		if err != nil {
			return at, err
		}
		at.addr = plus(at.addr, uint64(n*max(0, t.Type.Size())))
		return at, nil
	case *dwarf.StructType:
		return b.element(v, t, n, e)
	}
	return v, fmt.Errorf("%s is a %s: it has no elements", e.L, typeName(v.typ))
}

// basicTypes are C's own.
var basicTypes = map[string]struct {
	size     int64
	unsigned bool
}{
	"char": {1, false}, "signed char": {1, false}, "unsigned char": {1, true},
	"short": {2, false}, "unsigned short": {2, true}, "int": {4, false}, "unsigned": {4, true}, "unsigned int": {4, true},
	"long": {8, false}, "unsigned long": {8, true}, "long long": {8, false}, "unsigned long long": {8, true}, "_Bool": {1, true},
}

// cast takes a value for one of another type.
func (b *binder) cast(v value, e *spec.Expr) (value, error) {
	var t dwarf.Type
	kind, name, ok := strings.Cut(e.Name, " ")
	if !ok {
		kind, name = "", e.Name
	}
	if basic, is := basicTypes[e.Name]; is {
		size := basic.size
		if strings.HasSuffix(e.Name, "long") && !strings.Contains(e.Name, "long long") {
			size = int64(b.site.Arch.PtrSize)
		}
		common := dwarf.BasicType{CommonType: dwarf.CommonType{ByteSize: size, Name: e.Name}}
		switch {
		case size == 1 && basic.unsigned:
			t = &dwarf.UcharType{BasicType: common}
		case size == 1:
			t = &dwarf.CharType{BasicType: common}
		case basic.unsigned:
			t = &dwarf.UintType{BasicType: common}
		default:
			t = &dwarf.IntType{BasicType: common}
		}
	} else if e.Name == "void" {
		t = &dwarf.VoidType{}
	} else if t = b.site.Data.TypeNamed(kind, name); t == nil {
		return v, fmt.Errorf("the debug data has no type %q", e.Name)
	}
	for range e.N {
		t = pointerTo(t, b.site.Arch.PtrSize)
	}
	from, to := v.typ.Size(), t.Size()
	if e.N > 0 {
		if a, ok := source.Plain(v.typ).(*dwarf.ArrayType); ok && v.addr != nil { // an array is where it lies
			_ = a
			return value{typ: t, val: v.addr}, nil
		}
		if from != int64(b.site.Arch.PtrSize) {
			return v, fmt.Errorf("%s has %d bytes: it is no pointer", e.L, from)
		}
	} else if to > from && !isConst(v) {
		return v, fmt.Errorf("%s has %d bytes, %s has %d", e.L, from, e.Name, to)
	}
	v.typ = t
	return v, nil
}

func isConst(v value) bool { return v.val != nil && v.val.Op == spec.Imm }
