// Package cdecl is what the declarations in C at a script's head come to: types, constants and texts by their names.
package cdecl

import (
	"errors"
	"math"
	"strings"

	"kprobe/script/headers"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Declared are a script's own.
type Declared struct {
	Consts map[string]uint64      // #define and enumerations
	Texts  map[string]string      // #define of texts
	Enums  map[string]*types.Type // of the constants that enumerations declare
	Named  map[string]*types.Type // "struct foo", and what typedefs name

	beside, system *headers.Files // that the script includes: as "name", and as <name>

	from  string                 // the script's name
	own   map[string]bool        // what #define names, whether it is known yet or not
	ahead map[string]*types.Type // structures that pointers name before they are declared
}

// None has no declarations.
func None() *Declared {
	return &Declared{Consts: map[string]uint64{}, Texts: map[string]string{}, Enums: map[string]*types.Type{}, Named: map[string]*types.Type{}, ahead: map[string]*types.Type{}}
}

// Script answers the questions that declarations have about their script.
type Script interface {
	Constant(x syntax.Expr) (uint64, bool)
	TypeOf(t *syntax.Type) *types.Type // nil after an error, which was told
	Known(name string) *types.Type     // nil for none
	Errorf(at syntax.Node, format string, a ...any)
}

// reader reads one declaration.
type reader struct {
	*Declared
	script Script
	at     syntax.CDecl
}

// Note takes the names that the declarations will define, so that no constant of a header stands for one meanwhile.
func (d *Declared) Note(all []syntax.CDecl) {
	d.own = map[string]bool{}
	for _, at := range all {
		if words := strings.Fields(at.Text); len(words) > 1 && words[0] == "#define" {
			d.own[words[1]] = true
		}
	}
}

// Read takes what a declaration says.
func (d *Declared) Read(at syntax.CDecl, script Script) {
	switch {
	case strings.HasPrefix(at.Text, "#define"):
		d.Define(at, script)
		return
	case strings.HasPrefix(at.Text, "#pragma pack"):
		script.Errorf(at, "#pragma pack is not followed: __attribute__((packed)) is")
		return
	case strings.HasPrefix(at.Text, "#"):
		if _, name, ok := strings.Cut(at.Text, "include"); ok {
			if name = strings.TrimSpace(name); !d.Include(name) {
				script.Errorf(at, "%s: file not found", name)
			}
		}
		return // constants are looked up when they are asked for; types are not read
	}
	r := &reader{d, script, at}
	decl, err := syntax.ParseC(&syntax.Source{Text: at.Text})
	if err != nil {
		var all syntax.Errors
		if errors.As(err, &all) {
			for _, e := range all {
				script.Errorf(syntax.Span{From: at.From + e.From, To: at.From + e.To}, "%s", e.Msg)
			}
		}
		return
	}
	switch decl := decl.(type) {
	case *syntax.CStruct:
		r.structure(decl)
	case *syntax.CEnum:
		r.enum(decl)
	case *syntax.CType:
		if t := r.typeOf(decl.Type); t != nil {
			r.name(t, decl.Alias)
		}
	}
}

// Define takes what a #define says where it is a number or a text.
func (d *Declared) Define(at syntax.CDecl, script Script) {
	words := strings.Fields(at.Text)
	if !strings.HasPrefix(at.Text, "#define") || len(words) < 3 {
		return
	}
	x, err := syntax.ParseExpr(&syntax.Source{Text: strings.TrimSpace(at.Text[strings.Index(at.Text, words[1])+len(words[1]):])})
	if err != nil {
		return
	}
	if n, ok := script.Constant(x); ok {
		d.Consts[words[1]] = n
	} else if text, ok := x.(*syntax.Str); ok {
		d.Texts[words[1]] = text.Value
	}
}

// Open says where headers are found that the script named from includes.
func (d *Declared) Open(from string, open headers.Open) {
	d.from, d.beside, d.system = from, headers.NewFiles(open), headers.NewFiles(open)
}

// Include reads a header that the script includes: "name", or <name>, which need not be there. It is false for what should be.
func (d *Declared) Include(name string) bool {
	bare := strings.Trim(name, `<>"`)
	if strings.HasPrefix(name, `"`) {
		return d.beside.Include(d.from, bare, true)
	}
	d.system.Include(d.from, bare, false)
	return true
}

// Included takes a constant that headers of C define for one of the script's own: the script's headers, those that are known, whose
// number on the machine it is, and the system's.
func (d *Declared) Included(name, machine string, script Script) bool {
	if d.own[name] || d.beside == nil {
		return false
	}
	d.own[name] = true // it is looked for: nothing stands for it meanwhile
	defer delete(d.own, name)
	if d.defined(d.beside, name, script) {
		return true
	}
	if n, ok := headers.Constant(name, machine); ok {
		d.Consts[name] = n
		return true
	}
	return d.defined(d.system, name, script)
}

// defined takes a constant that headers define.
func (d *Declared) defined(files *headers.Files, name string, script Script) bool {
	if text, ok := files.Define(name); ok {
		d.Define(syntax.CDecl{Text: "#define " + name + " " + text}, quiet{script})
	} else if text, ok := files.Enum(name); ok {
		d.Read(syntax.CDecl{Text: text}, quiet{script})
	}
	_, ok := d.Consts[name]
	return ok
}

// quiet drops the messages about headers.
type quiet struct{ Script }

func (quiet) Errorf(syntax.Node, string, ...any) {}

// Ahead tells of a structure that a pointer has named, and that is not declared.
func (d *Declared) Ahead(t *types.Type) bool { return d.ahead[t.Name] == t && t.Size == 0 }

// typeOf is a type with its errors at the declaration.
func (r *reader) typeOf(t *syntax.Type) *types.Type {
	here := *t
	here.Span = r.at.Span
	return r.script.TypeOf(&here)
}

// enum is an enumeration: of the smallest of unsigned int, int and long that holds its constants.
func (r *reader) enum(e *syntax.CEnum) *types.Type {
	t := &types.Type{Kind: types.Enum, Size: 4, Name: e.Name, Names: map[uint64]string{}}
	next := uint64(0)
	for _, item := range e.Items {
		if item.Value != nil {
			n, ok := r.script.Constant(item.Value)
			if !ok {
				r.script.Errorf(r.at, "the value of %s is no constant", item.Name)
			}
			next = n
		}
		if r.Enums[item.Name] != nil {
			r.script.Errorf(r.at, "redefinition of enumerator '%s'", item.Name)
		}
		r.Consts[item.Name] = next
		r.Enums[item.Name] = t
		if _, there := t.Names[next]; !there {
			t.Names[next] = item.Name
		}
		next++
	}
	for n := range t.Names {
		t.Signed = t.Signed || int64(n) < 0
	}
	for n := range t.Names {
		if n > math.MaxUint32 && int64(n) > 0 || t.Signed && (int64(n) < math.MinInt32 || int64(n) > math.MaxInt32) {
			t.Size = 8
		}
	}
	r.name(t, e.Name, e.Alias)
	return t
}

// name says what names mean; one that means something else already is refused, as C does.
func (r *reader) name(t *types.Type, names ...string) {
	for _, name := range names {
		if there := r.Named[name]; there != nil && !types.Same(there, t) {
			r.script.Errorf(r.at, "redefinition of '%s'", name)
		} else if name != "" {
			r.Named[name] = t
		}
	}
}

// structure lays a structure out as C does.
func (r *reader) structure(s *syntax.CStruct) *types.Type {
	name := s.Name
	if name == "" {
		name = s.Alias
	}
	if name == "" {
		name = "struct"
	}
	t := &types.Type{Kind: types.Record, Name: name}
	if ahead := r.ahead[s.Name]; ahead != nil {
		t = ahead // others have pointers to it already
	}
	r.name(t, s.Name, s.Alias) // before its members, which may point to it
	laying := &types.Laying{Record: t, Packed: s.Packed, Union: s.Union}
	laying.Align(r.aligned(s.Attributes))
	for _, f := range s.Fields {
		ft := r.member(f)
		if ft == nil {
			return t
		}
		if f.Bits == nil {
			laying.Add(f.Name, ft, f.Packed, r.aligned(f.Attributes))
			continue
		}
		if f.Packed || f.Aligned != nil {
			r.script.Errorf(r.at, "attributes of one bit-field are not followed: those of its structure are")
		}
		n, ok := r.script.Constant(f.Bits)
		if !ok || n > 8*uint64(ft.Size) || !ft.Scalar() {
			r.script.Errorf(r.at, "the width of %s is no constant, or more than its type has", f.Name)
			return t
		}
		laying.AddBits(f.Name, ft, int(n))
	}
	laying.Done()
	return t
}

// aligned is the alignment that attributes ask for, in bytes; 0 for none.
func (r *reader) aligned(a syntax.Attributes) (to int) {
	for _, x := range a.Aligned {
		n, ok := r.script.Constant(x)
		if !ok || n&(n-1) != 0 || n > 1<<16 {
			r.script.Errorf(r.at, "an alignment is a power of two")
			return 0
		}
		to = max(to, int(n))
	}
	return to
}

// member is the type of a member.
func (r *reader) member(f syntax.CField) *types.Type {
	var t *types.Type
	switch {
	case f.Inner != nil, f.Enum != nil:
		if f.Inner != nil {
			t = r.structure(f.Inner)
		} else {
			t = r.enum(f.Enum)
		}
		for range f.Stars {
			t = types.PointerTo(t)
		}
	case types.Floats[f.Type.Name] != nil && f.Type.Stars == 0:
		t = types.Floats[f.Type.Name] // shown, and no more
	case f.Type.Stars > 0 && r.script.Known(f.Type.Name) == nil:
		t = types.PointerTo(r.aheadOf(f.Type.Name)) // to something that is not declared yet
		for range f.Type.Stars - 1 {
			t = types.PointerTo(t)
		}
	default:
		t = r.typeOf(f.Type)
	}
	for i := len(f.Dims) - 1; t != nil && i >= 0; i-- {
		n, ok := r.script.Constant(f.Dims[i])
		if !ok || n > 1<<20 {
			r.script.Errorf(r.at, "the number of elements of %s is no constant", f.Name)
			return nil
		}
		if t.Kind == types.Int && t.Size == 1 && t.Signed && i == len(f.Dims)-1 {
			t = types.CharsOf(int(n))
			continue
		}
		t = types.ArrayOf(t, int(n))
	}
	return t
}

// aheadOf is a structure that a pointer names before its declaration; nil where there is none.
func (r *reader) aheadOf(name string) *types.Type {
	if !strings.HasPrefix(name, "struct ") && !strings.HasPrefix(name, "union ") {
		return nil
	}
	if r.ahead[name] == nil {
		r.ahead[name] = &types.Type{Kind: types.Record, Name: name}
	}
	return r.ahead[name]
}
