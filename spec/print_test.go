package spec

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// canonical spells out what printing does.
func canonical(s *Spec) *Spec {
	c := *s
	if c.Kind != Delete {
		c.Group, c.Event = s.Names()
	}
	c.Place.PctReturn = false
	c.Args = append([]Arg(nil), s.Args...)
	for i := range c.Args {
		c.Args[i].Named = c.Args[i].Fetch.Op != AllArgs
	}
	return &c
}

// roundTrip checks that a definition reads back from its text as the same: from the arguments as
// written, and from those that print.go writes.
func roundTrip(t *testing.T, s *Spec, o Options) {
	t.Helper()
	made := *s
	made.src = nil
	for _, text := range []string{s.String(), made.String()} {
		got, err := o.Parse(text)
		if err != nil {
			t.Errorf("printed %q: %v", text, err)
			continue
		}
		if want := canonical(s); !got.Equal(want) {
			t.Errorf("printed %q\n got %+v\nwant %+v", text, *got, *want)
		}
		if again := got.String(); again != text {
			t.Errorf("printed %q, then %q", text, again)
		}
	}
}

// maker makes definitions at random, from everything the dialect has.
type maker struct {
	*rand.Rand
	d Dialect
}

func pick[T any](m maker, of ...T) T { return of[m.IntN(len(of))] }

func (m maker) ident(max int) string {
	const first = "abcXYZ_"
	b := []byte{first[m.IntN(len(first))]}
	for range m.IntN(max) {
		b = append(b, (first + "0189")[m.IntN(len(first)+4)])
	}
	return string(b)
}

func (m maker) number() uint64 { return m.Uint64() >> m.IntN(64) }

func (m maker) spec() *Spec {
	s := &Spec{
		Kind:  pick(m, Probe, Return, Delete),
		Group: m.ident(62), Event: m.ident(62), Place: m.place(),
	}
	if m.d == Process && m.IntN(4) == 0 {
		s.Kind, s.Place = pick(m, Watch, Delete), m.data()
	}
	if s.Kind == Return && m.d != Uprobes {
		s.MaxActive = m.IntN(maxActive + 1)
	}
	if s.Kind == Delete {
		s.Group = pick(m, "", s.Group)
	}
	for i := range m.IntN(5) {
		a := Arg{Name: fmt.Sprintf("%s%d", m.ident(20), i), Named: true, Fetch: m.fetch(s, m.IntN(3))}
		a.Type = m.typ(&a.Fetch)
		if len(a.body()) > maxBody {
			continue
		}
		s.Args = append(s.Args, a)
	}
	return s
}

func (m maker) place() Place {
	form := m.IntN(3)
	switch {
	case m.d == Uprobes || m.d == Process && form == 0:
		pl := Place{Module: "/" + m.ident(9) + pick(m, "", ".so.6", "/a:b", "-x/y=z", "%d"), HasFileOff: true, FileOff: m.number()}
		if m.IntN(2) == 0 {
			pl.HasRefCtr, pl.RefCtr = true, m.number()|1
		}
		return pl
	case form == 1:
		return Place{HasAddr: true, Addr: m.number()}
	case m.d == Kprobes:
		return Place{Module: pick(m, "", m.ident(9)), Symbol: m.ident(9) + pick(m, "", ".isra.0", "$x"), Offset: m.number() >> 32}
	}
	pl := Place{
		Module: pick(m, "", m.ident(9), "libc.so.6", "/usr/lib/a b", "C:/x", "/a:b/c", "a=b", "ld-2.31.so"),
		Symbol: pick(m, "", "ns::", "~", "main.(*T).", "net/http.", "a(char*, int)", "a-", "a+b-", "operator+", "x*y?", `"`, `a"" "`) +
			m.ident(9) + pick(m, "", "::operator()", "-fm", "[go.shape.int]", "%d", "@x", " const", "-5", ":", "+1", "=b"),
		Version: pick(m, "", "", "GLIBC_2.14", "plt"),
		Offset:  m.number() >> 32,
	}
	if hasWildcards(pl.Symbol) {
		// In quotes there are no wildcards, so a glob has only what needs none.
		pl.Exact = m.IntN(2) == 0
		if !pl.Exact {
			pl.Symbol = m.ident(9) + pick(m, "*", "?", "[a-z]*", "*::f", ".(*T).*")
		}
	}
	return pl
}

func (m maker) data() Place {
	pl := m.place()
	for pl.HasFileOff || pl.IsGlob() || isDigit((pl.Symbol + "0")[0]) && !pl.HasAddr {
		pl = m.place()
	}
	if pl.Offset != 0 && m.IntN(2) == 0 {
		pl.Offset = -pl.Offset
	}
	pl.Access, pl.Length = pick(m, "r", "w", "rw"), pick(m, 1, 2, 4, 8)
	return pl
}

func (m maker) fetch(s *Spec, depth int) Fetch {
	if depth > 0 {
		inner := m.fetch(s, depth-1)
		if inner.Op != Comm && inner.Op != ImmStr {
			return Fetch{Op: Deref, N: int64(m.number()), User: m.IntN(2) == 0, Inner: &inner}
		}
		return inner
	}
	ops := []Fetch{
		{Op: Reg, Name: pick(m, x86Regs...)},
		{Op: Stack}, {Op: StackN, N: int64(m.IntN(kernStack + 1))}, {Op: Comm},
		{Op: Abs, N: int64(m.number())}, {Op: Imm, N: int64(m.number())},
		{Op: ImmStr, Name: pick(m, "", "a", "a:b", "a(b=c")},
	}
	data := s.Place.Access != ""
	if data {
		ops = append(ops, Fetch{Op: DataAddr})
	} else if s.Kind != Probe {
		ops = append(ops, Fetch{Op: Retval})
	}
	if m.d != Uprobes {
		ops = append(ops, Fetch{Op: Sym, Name: m.ident(9), N: int64(m.number())})
		if s.Place.Offset == 0 && !data {
			ops = append(ops, Fetch{Op: ArgN, N: 1 + int64(m.IntN(9))})
		}
	}
	if m.d != Kprobes {
		ops = append(ops, Fetch{Op: FileOff, N: int64(m.number())})
	}
	return pick(m, ops...)
}

func (m maker) typ(f *Fetch) Type {
	if f.Op == Comm || f.Op == ImmStr {
		return Type{Written: pick(m, "", "string"), Base: String}
	}
	memory := f.Op == Deref || f.Op == Abs || f.Op == Sym || f.Op == FileOff
	if m.IntN(3) == 0 {
		return Type{Base: Hex, Size: 8}
	}
	t := Type{Base: Bitfield, Size: pick(m, 1, 2, 4, 8)}
	if m.IntN(4) == 0 {
		t.BitO = m.IntN(t.Size * 8)
		t.BitW = 1 + m.IntN(t.Size*8-t.BitO)
		t.Written = fmt.Sprintf("b%d@%d/%d", t.BitW, t.BitO, t.Size*8)
	} else {
		name := pick(m, "u8", "s16", "x32", "u64", "x64", "char")
		t = types[name]
		t.Written = name
		if memory && m.IntN(3) == 0 {
			t = Type{Written: "string", Base: String}
		}
	}
	if memory {
		t.Array = pick(m, 0, 1, 64)
	}
	return t
}

func TestPrintedReadsBack(t *testing.T) {
	const seed = 1
	for _, d := range []Dialect{Process, Kprobes, Uprobes} {
		m := maker{rand.New(rand.NewPCG(seed, uint64(d))), d}
		for range 20000 {
			s := m.spec()
			roundTrip(t, s, Options{Dialect: d})
			if t.Failed() {
				return
			}
		}
	}
}

// A kernel shows the argument back as it was written. An argument that the caller has changed since
// is printed anew.
func TestArgumentsPrintAsWritten(t *testing.T) {
	s, err := Parse("p:e f a=+0x10(%di):x8 %ax @010", Process)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := s.String(), "p:kprobes/e f a=+0x10(%di):x8 arg2=%ax arg3=@010"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s.Args[0].Fetch.Inner.Name = "si"
	s.Args[2].Fetch.N++
	if got, want := s.String(), "p:kprobes/e f a=+16(%si):x8 arg2=%ax arg3=@0x9"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := s.Args[0].Type.String(); got != "x8" {
		t.Errorf("type %s", got)
	}
}

func FuzzParse(f *testing.F) {
	for _, r := range refusals {
		f.Add(strings.Replace(r.in, "^", "", 1))
	}
	m := maker{rand.New(rand.NewPCG(2, 2)), Process}
	for range 100 {
		f.Add(m.spec().String())
	}
	f.Fuzz(func(t *testing.T, line string) {
		for _, o := range []Options{{}, {Types: true}, {Dialect: Kprobes}, {Dialect: Kprobes, Types: true}, {Dialect: Uprobes}} {
			s, err := o.Parse(line)
			if err != nil {
				e, ok := err.(*SyntaxError)
				if !ok || e.Offset < 0 || e.Offset > len(e.Line) {
					t.Fatalf("%q: %#v", line, err)
				}
				if _, ok := catalogue[e.Code]; !ok {
					t.Fatalf("%q: unknown code %s", line, e.Code)
				}
				continue
			}
			if s == nil {
				continue
			}
			roundTrip(t, s, o)
			s.Place.Match(line)
			if pl := s.Place; !pl.IsGlob() && pl.Symbol != "" && !pl.Match(pl.Symbol) {
				t.Fatalf("%q does not match itself", pl.Symbol)
			}
		}
	})
}
