package gen

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/verify"
	"kprobe/event"
	"kprobe/spec"
)

// target is memory with pages at 0x10000 to 0x12000.
type target []byte

func (m target) ReadAt(addr arch.Addr, p []byte) error {
	if off := addr - 0x10000; off <= arch.Addr(len(m)) && arch.Addr(len(p)) <= arch.Addr(len(m))-off {
		copy(p, m[off:])
		return nil
	}
	return fmt.Errorf("nothing at %v", addr)
}

func (m target) Symbol(string) (arch.Addr, error)    { return 0x10100, nil }
func (m target) FileOffset(int64) (arch.Addr, error) { return 0x10200, nil }
func (m target) Name(a arch.Addr) string {
	if a%3 == 0 {
		return fmt.Sprintf("f+%#x", uint64(a))
	}
	return ""
}

func newTarget(r *rand.Rand) target {
	m := make(target, 8192)
	for i := range m {
		if m[i] = byte('a' + r.IntN(26)); r.IntN(12) == 0 {
			m[i] = 0
		}
	}
	for range 500 {
		binary.LittleEndian.PutUint64(m[r.IntN(len(m)-8)&^7:], 0x10000+uint64(r.IntN(8300)))
	}
	return m
}

// definition is a random argument in the language of definitions.
func definition(r *rand.Rand, i int) string {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	fetch := pick("%di", "%si", "%ax", "%r15", "%ip", "%flags", "$stack", "$stack0", "$stack9", "$comm", "$arg1", "$arg7", "@0x10040", "@sym+8", "@sym", `\77`, `\-1`)
	if r.IntN(20) == 0 {
		fetch = `\"text"`
	}
	text := fetch == "$comm" || fetch[1] == '"'
	memory := fetch[0] == '@'
	for range r.IntN(4) {
		if text {
			break
		}
		fetch, memory = fmt.Sprintf("%+d(%s)", r.IntN(60)-20, fetch), true
	}
	typ := pick("", ":u8", ":u16", ":s32", ":x64", ":s8", ":char", ":b5@3/16", ":b32@0/32", ":symbol", ":u64")
	if memory {
		typ = pick("", ":u8", ":s16", ":x32", ":u64", ":string", ":ustring", ":string[3]", ":u8[5]", ":s64[2]", ":char[4]", ":b5@3/16", ":symstr", ":symbol")
	}
	if text {
		typ = pick("", ":string")
	}
	return fmt.Sprintf("a%d=%s%s", i, fetch, typ)
}

func parse(t testing.TB, kind string, args ...string) []spec.Arg {
	t.Helper()
	s, err := spec.Options{}.Parse(kind + ":e /bin/x:f " + strings.Join(args, " "))
	if err != nil {
		t.Fatal(err)
	}
	return s.Args
}

// hit is the one thread at the one place.
type hit struct {
	regs   arch.Regs
	entry  arch.Regs // of the function's entry, where the hit is its return
	memory target
	vector func(n uint64) uint64
}

func newHit(r *rand.Rand, m target) *hit {
	h := &hit{memory: m}
	for i := range h.regs {
		h.regs[i] = 0x10000 + uint64(r.IntN(8300))
		if r.IntN(6) == 0 {
			h.regs[i] = uint64(r.IntN(200)) - 100
		}
	}
	return h
}

// run runs a tracer's program at the hit; ok: it was recorded.
func (h *hit) run(t testing.TB, tr *Tracer) (values []event.Value, ok bool) {
	t.Helper()
	proof, err := verify.Program(tr.Program)
	if err != nil {
		t.Fatal(err)
	}
	l, err := bpf.Arrange(tr.Program.Maps, 2)
	if err != nil {
		t.Fatal(err)
	}
	seg, err := l.Bind(make([]byte, l.Size), 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	if err := seg.Init(); err != nil {
		t.Fatal(err)
	}
	vm := &bpf.VM{Proof: proof, Segment: seg, StackTop: 1 << 41, Ctx: 1 << 42, Env: bpf.Env{Comm: "redis-server", PidTgid: 1000<<32 | 1001, Slot: 1,
		Vector: h.vector,
		Read:   func(addr uint64, p []byte) error { return h.memory.ReadAt(arch.Addr(addr), p) }}}
	if tr.Entry != nil {
		vm.Env.CallData, vm.Env.CallDataAddr = make([]byte, tr.Data()), 1<<43
		if proof, err = verify.Program(tr.Entry); err != nil {
			t.Fatal(err)
		}
		at := *vm
		at.Proof = proof
		if watched, err := at.Run(contextWith(&h.entry)); err != nil || watched.R0 != 0 {
			t.Fatal(watched, err)
		}
	}
	if _, err := vm.Run(contextWith(&h.regs)); err != nil {
		t.Fatal(err)
	}
	ring, err := bpf.NewReader(seg.Map(RingIndex))
	if err != nil {
		t.Fatal(err)
	}
	rec, ok, err := ring.Read()
	if err != nil || !ok {
		return nil, false
	}
	decoded, err := tr.Decode(rec.Data)
	if err != nil {
		t.Fatal(err)
	}
	return tr.Format().AppendTo(nil, &decoded, h.memory.Name), true
}

// contextWith is the context of a program with these registers.
func contextWith(regs *arch.Regs) (ctx []byte) {
	for _, name := range bpf.AMD64.Regs {
		ctx = binary.LittleEndian.AppendUint64(ctx, regs[slices.Index(arch.AMD64.RegNames, name)])
	}
	return ctx
}

// A program in the target captures what a stop would have, for any definition: at a function's entry, and at its return with
// the arguments that it was entered with.
func TestCapturesTheSame(t *testing.T) {
	n := 1500
	if testing.Short() {
		n = 150
	}
	faults, entered := 0, 0
	for seed := range n {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		m := newTarget(r)
		var texts []string
		for i := range 1 + r.IntN(8) {
			texts = append(texts, definition(r, i))
		}
		letter, kind := "p", bpf.Kprobe
		if seed%2 == 1 {
			letter, kind = "r", bpf.Kretprobe
		}
		capture, err := event.Compile(parse(t, letter, texts...), arch.AMD64, m)
		if err != nil {
			t.Fatalf("%v: %v", texts, err)
		}
		tr, err := Compile("e", kind, arch.AMD64, capture, Options{})
		if err != nil {
			t.Fatalf("%v: %v", texts, err)
		}
		h := newHit(r, m)
		ctx := &event.Context{Regs: &h.regs, Mem: m, Comm: "redis-server"}
		if kind == bpf.Kretprobe {
			h.entry = newHit(r, m).regs
			ctx.Entry = &h.entry
		}
		if tr.Entry != nil {
			entered++
		}
		want := capture.Run(ctx)
		got, ok := h.run(t, tr)
		if !ok || !reflect.DeepEqual(got, want) {
			t.Fatalf("seed %d: %q\ngot  %+v\nwant %+v", seed, texts, got, want)
		}
		for _, v := range want {
			if v.Fault {
				faults++
			}
		}
	}
	if faults < n/10 || entered < n/10 {
		t.Errorf("only %d faults, and %d with arguments at a return", faults, entered)
	}
}

func TestFilter(t *testing.T) {
	m := newTarget(rand.New(rand.NewPCG(1, 1)))
	copy(m[0x300:], "some text\x00")
	h := &hit{memory: m}
	h.regs[arch.DI], h.regs[arch.SI], h.regs[arch.DX] = 5, ^uint64(6), 0x10300
	capture, err := event.Compile(parse(t, "p", "a=%di", "b=%si:s32", "u=%si:u8", "bits=%di:b2@1/8", "text=+0(%dx):string", "bad=+0(%di)", "who=$comm", "list=+0(%dx):u8[2]", `lit=\"x"`), arch.AMD64, m)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		text string
		want bool
	}{
		{"a == 5", true},
		{"a==5&&b==-7", true},
		{"a != 5", false},
		{"a > 4 && a < 6 && a >= 5 && a <= 5", true},
		{"a > 5 || a < 5", false},
		{"b < 0", true},
		{"b >= -6", false},
		{"u == 249", true},
		{"u > 0x80", true},
		{"a & 4", true},
		{"a & 2", false},
		{"bits == 2", true},
		{`text == "some text"`, true},
		{`text == "some"`, false},
		{`text != "some text"`, false},
		{`text != "some text longer"`, true},
		{`who == "redis-server" && !(a == 4)`, true},
		{"bad == 0", false},
		{"bad != 0", false},
		{"!(bad != 0)", true},
		{"a == 4 || (a == 5 && (b == 1 || u == 249))", true},
		{"a == 4 || a == 5 && b == 1 || u == 249", true},
		{"(a == 4 || a == 5) && b == 1", false},
		{"!!a == 5", true},
		{"common_pid == 1001", true},
		{"a == 5 && common_pid != 1001", false},
	} {
		tr, err := Compile("e", bpf.Kprobe, arch.AMD64, capture, Options{Filter: tt.text})
		if err != nil {
			t.Errorf("%s: %v", tt.text, err)
			continue
		}
		if _, ok := h.run(t, tr); ok != tt.want {
			t.Errorf("%s: %v, want %v", tt.text, ok, tt.want)
		}
	}
	for _, tt := range []struct{ text, want string }{
		{"x == 5", `filter: at 0: there is no argument "x": there are a, b, u, bits, text`},
		{"a", `filter: at 1: "" is no comparison`},
		{"a == ", `filter: at 5: "" is no number`},
		{"a == b", `filter: at 5: "b" is no number`},
		{"(a == 5", "filter: at 7: a parenthesis is not closed"},
		{"a == 5)", `filter: at 6: ")" is too much`},
		{"a == 5 &&", "filter: at 9: a comparison is missing"},
		{`a == "5"`, "is no number"},
		{"text == 5", "compare it with one in quotes"},
		{`text < "a"`, "== and != are possible"},
		{`text ~ "a*"`, "patterns (~) are not possible"},
		{"list == 1", "list is an array"},
		{`lit == "x"`, "lit is a constant"},
		{`text == "x`, "compare it with one in quotes"},
		{strings.Repeat("!", 1000) + "a == 5", "nested deeper than 64"},
	} {
		if _, err := Compile("e", bpf.Kprobe, arch.AMD64, capture, Options{Filter: tt.text}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.text, err, tt.want)
		}
	}
}

func TestCompileRefuses(t *testing.T) {
	for _, tt := range []struct {
		arg  string
		on   *arch.Arch
		want string
	}{
		{"a=$arg1", arch.S390X, "programs are not made for s390x"},
	} {
		capture, err := event.Compile(parse(t, "r", tt.arg), tt.on, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Compile("e", bpf.Kretprobe, tt.on, capture, Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", tt.arg, err, tt.want)
		}
	}
}

func FuzzParseFilter(f *testing.F) {
	for _, s := range []string{"a == 5", `!(b < -1 || text == "x") && a & 2`, "((", `"`} {
		f.Add(s)
	}
	loads := []event.Load{{Size: 8}, {As: event.LoadTextAt}}
	f.Fuzz(func(t *testing.T, s string) {
		filter, err := ParseFilter(s, []string{"a", "text"}, loads, []int{0, 1})
		if err != nil {
			return
		}
		args := []event.Load{{Source: event.LoadReg}, {Source: event.LoadReg, As: event.LoadTextAt}}
		if rec, err := Generate(Trace{Args: args, Filter: filter}); err == nil {
			if _, err := verify.Program(rec.Program); err != nil {
				t.Errorf("%q: %v", s, err)
			}
		}
	})
}
