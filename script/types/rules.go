package types

import "strings"

// What operators make of types.

// ValueOf is the type of an aggregate's number.
func ValueOf(t *Type) *Type {
	switch t.Kind {
	case Count:
		return Uint64
	case Sum, Min, Max, Avg:
		if t.Signed {
			return Int64
		}
		return Uint64
	}
	return t
}

// Lined tells of aggregates that stand for no one number.
func Lined(t *Type) bool { return t.Aggregate() && !ValueOf(t).Number() }

// Numeric is a type as a number.
func Numeric(t *Type) *Type {
	switch t = ValueOf(t); {
	case t.Kind == Int:
		return t
	case t.Kind == Enum && t.Signed:
		return IntOf(t.Size, true)
	}
	if t.Kind == Bool || t.Kind == Enum {
		return LiteralOf(1<<31-1, false)
	}
	return Uint64
}

// Wide is the type of 64 bits that holds a number.
func Wide(t *Type) *Type {
	if t.Signed {
		return Int64
	}
	return Uint64
}

// Unsigned tells whether a number reckons without a sign.
func Unsigned(t *Type) bool { return t.Kind != Int || !t.Signed }

// Reckons tells whether operators take a value.
func Reckons(t *Type) bool {
	return t.Number() || t.Kind == USym || t.Kind == KSym
}

// Alters tells whether a value may be another one as to than it is as from: a number with a sign that to has not, one that is
// larger than to holds, or one of a tuple's. What a literal says is known.
func Alters(to, from *Type) bool {
	switch {
	case to.Kind == Int && from.Kind == Int:
		return !from.Lit && (to.Size < from.Size || to.Signed != from.Signed && (!to.Signed || to.Size == from.Size))
	case to.Kind == from.Kind && (to.Kind == Tuple || to.Kind == Record && to.Name == "") && len(to.Fields) == len(from.Fields):
		for i, f := range from.Fields {
			if to.Kind == Record {
				i = to.Field(f.Name)
			}
			if i >= 0 && Alters(to.Fields[i].Type, f.Type) {
				return true
			}
		}
	}
	return false
}

// JoinInts is the type that holds numbers of two.
func JoinInts(a, b *Type) *Type {
	if j := Join(a, b); j != nil {
		return j
	}
	return Int64
}

// Renamed is a pointer type that is cast from another, which it points to the same thing as.
func Renamed(to, from *Type) *Type {
	if to.Kind != Pointer || from.Kind != Pointer || from.Name == to.Name {
		return to
	}
	t := *to
	t.Name = from.Name
	return &t
}

// Arithmetic is the type of a op b.
func Arithmetic(op string, a, b *Type) *Type {
	switch {
	case a.Kind == Pointer && b.Kind == Pointer:
		return Int64
	case a.Kind == Pointer:
		return a
	case b.Kind == Pointer:
		return b
	case a.Kind == Bool && b.Kind == Bool:
		return BoolT
	case a.Kind == Bool:
		return Wide(Numeric(b))
	case b.Kind == Bool:
		return Wide(Numeric(a))
	case op == "-":
		return Int64
	}
	return Wide(JoinInts(Numeric(a), Numeric(b)))
}

// Changed is the type of 64 bits that a map's number has after @x op= b; of none, or what is no number, one with a sign.
func Changed(op string, a, b *Type) *Type {
	if a.Kind != Int {
		return Int64
	}
	return Arithmetic(op, a, b)
}

// Stepped is the type of what ++ or -- has changed.
func Stepped(op string, t *Type) *Type {
	if op == "++" && t.Kind == Int && !t.Signed {
		return Uint64
	}
	return Int64
}

// Told is what a field of typeinfo says.
func Told(t *Type, field string) (string, bool) {
	if t == nil || t.Kind == None {
		return "", false
	}
	switch field {
	case "base_type":
		return t.Family(), true
	case "full_type":
		return t.String(), true
	}
	return "", false
}

// OfC is the type of a parameter that C declares so: "const char *". known finds types by their names; what a pointer points to may be known to nobody.
func OfC(text string, known func(name string) *Type) *Type {
	text = strings.ReplaceAll(text, "const ", "")
	base := strings.TrimRight(text, " *")
	stars := strings.Count(text, "*")
	t := known(base)
	if t == nil {
		t = Kernels[base]
	}
	switch {
	case base == "unsigned long[6]":
		t = ArrayOf(Uint64, 6)
	case t == nil && stars == 0:
		t = Uint32 // an enum
	case t == nil:
		t, stars = PointerTo(nil), stars-1
	}
	for range stars {
		t = PointerTo(t)
	}
	return t
}
