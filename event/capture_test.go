package event

import (
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"

	"kprobe/arch"
	"kprobe/spec"
)

// dataAddr is in the memory that a generator makes.
const dataAddr = 0x2008

// reference evaluates arguments the plain way: down the tree, a byte at a
// time. Captures must give the same.
type reference struct {
	a           *arch.Arch
	regs, entry *arch.Regs
	mem         pages
	names       names
}

func (r *reference) load(addr uint64, size int) (uint64, bool) {
	var b []byte
	for i := range size {
		at := addr & ptrMask(r.a) // the first byte's address wraps with the pointer
		c, ok := r.mem.byteAt(arch.Addr(at) + arch.Addr(i))
		if !ok {
			return 0, false
		}
		b = append(b, c)
	}
	if r.a.Order == binary.ByteOrder(binary.LittleEndian) {
		slices.Reverse(b)
	}
	n := uint64(0)
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	return n, true
}

func (r *reference) str(addr uint64, most int) (string, bool) {
	var s []byte
	for at := arch.Addr(addr & ptrMask(r.a)); len(s) < most; at++ {
		c, ok := r.mem.byteAt(at)
		if !ok {
			return "", false
		}
		if c == 0 {
			break
		}
		s = append(s, c)
	}
	return string(s), true
}

// where gives the address of a fetch of memory, or ok false.
func (r *reference) where(x *spec.Fetch) (addr uint64, ok bool) {
	switch x.Op {
	case spec.Abs:
		return uint64(x.N), true
	case spec.Sym:
		return uint64(r.names[x.Name]) + uint64(x.N), true
	case spec.FileOff:
		return 0x400000 + uint64(x.N), true
	}
	inner, ok := r.word(x.Inner)
	return inner + uint64(x.N), ok
}

func (r *reference) word(x *spec.Fetch) (uint64, bool) {
	ptr := r.a.PtrSize
	switch x.Op {
	case spec.Reg:
		n, _ := r.a.RegByName(x.Name)
		return r.regs[n], true
	case spec.Stack:
		return r.regs[r.a.SP], true
	case spec.Retval:
		return r.regs[r.a.Ret], true
	case spec.Imm:
		return uint64(x.N), true
	case spec.DataAddr:
		return dataAddr, true
	case spec.StackN:
		return r.load(r.regs[r.a.SP]+uint64(x.N)*uint64(ptr), ptr)
	case spec.ArgN:
		if int(x.N) <= len(r.a.Args) {
			return r.entry[r.a.Args[x.N-1]], true
		}
		skip := int(x.N) - 1 - len(r.a.Args)
		if r.a.RetAddrOnStack {
			skip++
		}
		return r.load(r.entry[r.a.SP]+uint64(r.a.SaveArea+skip*ptr), ptr)
	}
	addr, ok := r.where(x)
	if !ok {
		return 0, false
	}
	return r.load(addr, ptr)
}

func (r *reference) value(arg *spec.Arg) Value {
	t, _ := typeOf(arg, r.a)
	v := Value{Name: arg.Name, Base: t.Base, Size: uint8(t.Size)}
	if t.Array == 0 {
		r.element(&v, arg, t, 0)
		return v
	}
	v.Array = true
	for i := range t.Array {
		e := Value{Base: t.Base, Size: v.Size}
		r.element(&e, arg, t, uint64(i))
		v.Elems = append(v.Elems, e)
	}
	return v
}

func (r *reference) element(v *Value, arg *spec.Arg, t spec.Type, i uint64) {
	x := &arg.Fetch
	n, ok := uint64(0), false
	inMemory := x.Op == spec.Deref || x.Op == spec.Abs || x.Op == spec.Sym || x.Op == spec.FileOff
	switch {
	case x.Op == spec.Comm:
		v.Text = "comm"
		return
	case x.Op == spec.ImmStr:
		v.Text = x.Name
		return
	case t.Base == spec.String || t.Base == spec.UString:
		addr, ok := r.where(x)
		if t.Array != 0 && ok {
			addr, ok = r.load(addr+i*uint64(r.a.PtrSize), r.a.PtrSize)
		}
		if ok {
			v.Text, ok = r.str(addr, cmp.Or(t.Most, 4095))
		}
		v.Fault = !ok
		return
	case inMemory:
		addr, there := r.where(x)
		if ok = there; ok {
			n, ok = r.load(addr+i*uint64(t.Size), t.Size)
		}
	default:
		n, ok = r.word(x)
	}
	if v.Fault = !ok; !ok {
		return
	}
	for b := range t.Size * 8 { // bit by bit
		if t.Base != spec.Bitfield && (t.BitW == 0 || !t.Base.Named()) {
			v.Bits |= n & (1 << b)
		} else if b < t.BitW {
			v.Bits |= n >> (b + t.BitO) & 1 << b
		}
	}
	if t.Base == spec.Enumeration && t.BitW != 0 {
		v.Size, v.Bits = 8, uint64(int64(v.Bits<<(64-t.BitW))>>(64-t.BitW))
	}
	if t.Base == spec.Symbol || t.Base == spec.SymStr {
		v.Text = r.names.Name(arch.Addr(v.Bits))
		if v.Text == "" && t.Base == spec.SymStr {
			v.Text = fmt.Sprintf("%#x", v.Bits)
		}
	}
}

// generator makes arguments, registers and memory of a stream of bytes; the
// stream's end is all zeros.
type generator struct{ data []byte }

func (g *generator) n(limit int) int {
	if len(g.data) == 0 {
		return 0
	}
	b := g.data[0]
	g.data = g.data[1:]
	return int(b) % limit
}

var genNames = names{"text": 0x1ff8, "data": 0x4010, "top": ^arch.Addr(7)}

// addr is an address in or near the memory that a generator makes.
func (g *generator) addr() uint64 {
	base := []uint64{0x1000, 0x2000, 0x3000, 0x4000, 0x400000, 0, 0xfffff000, ^uint64(0xfff)}
	return base[g.n(len(base))] + []uint64{0, 8, 0x40, 0xf8, 0x100, 0xff0, 0xff9, 0xfff}[g.n(8)] + uint64(g.n(16))
}

func (g *generator) memory() pages {
	m := pages{}
	r := rand.New(rand.NewPCG(uint64(g.n(256)), 1))
	for _, page := range []arch.Addr{0x1000, 0x2000, 0x4000, 0x400000, 0xfffff000, ^arch.Addr(0xfff)} {
		var b [pageSize]byte
		for i := 0; i < len(b); i += 8 {
			// Pointers, so that chains of dereferences go on; text with few
			// ends; small numbers.
			var w [8]byte
			switch r.IntN(4) {
			case 0:
				p := generator{[]byte{byte(r.Uint32()), byte(r.Uint32()), byte(r.Uint32())}}
				binary.LittleEndian.PutUint64(w[:], p.addr())
			case 1:
				w = [8]byte{byte(r.Uint32())}
			default:
				binary.LittleEndian.PutUint64(w[:], r.Uint64()|0x0101010101010101)
			}
			copy(b[i:], w[:])
		}
		m.put(page, b[:]...)
	}
	return m
}

func (g *generator) regs() *arch.Regs {
	var regs arch.Regs
	for i := range 20 {
		regs[i] = g.addr()
	}
	return &regs
}

func (g *generator) fetch(depth int) spec.Fetch {
	x := spec.Fetch{Op: spec.Op(g.n(int(spec.DataAddr) + 2)), User: g.n(2) == 1}
	if depth < 18 && g.n(3) != 0 {
		x.Op = spec.Deref
	}
	switch x.Op {
	case spec.Reg:
		x.Name = []string{"di", "si", "sp", "ax", "flags", "r9", "rdi", "nosuch"}[g.n(8)]
	case spec.StackN:
		x.N = int64(g.n(80)) - 1
	case spec.ArgN:
		x.N = int64(g.n(10))
	case spec.Abs, spec.Imm:
		x.N = int64(g.addr())
	case spec.FileOff:
		x.N = int64(g.n(256))
	case spec.Sym:
		x.Name, x.N = []string{"text", "data", "top", "nosuch"}[g.n(4)], int64(g.n(64))-32
	case spec.ImmStr:
		x.Name = "immediate"
	case spec.Deref:
		x.N = int64(g.n(64)) - 32
		if g.n(16) != 15 {
			inner := g.fetch(depth + 1)
			x.Inner = &inner
		}
	}
	if g.n(32) == 31 {
		x.Fields = []spec.Field{{Name: "member"}}
	}
	return x
}

func (g *generator) typ() spec.Type {
	t := spec.Type{Written: "t", Base: spec.Base(g.n(int(spec.FileP) + 2)), Size: []int{8, 1, 2, 4, 0, 3}[g.n(6)]}
	switch g.n(4) {
	case 1:
		t.Written = ""
	case 2:
		t.Array = g.n(67) - 1
	}
	t.BitW, t.BitO = g.n(66), g.n(66)
	if g.n(2) == 0 && t.Size > 0 {
		t.BitW = 1 + t.BitW%(8*t.Size)
		t.BitO %= 8*t.Size - t.BitW + 1
	}
	if t.Base == spec.Enumeration && g.n(2) == 1 {
		t.Base = spec.UnsignedEnum
	}
	if (t.Base == spec.String || t.Base == spec.UString) && t.Array == 0 {
		t.Most = g.n(40)
	}
	return t
}

// machines are x86-64 and machines unlike it: narrow, big-endian, arguments on the stack or return
// addresses in a register.
func machines() []*arch.Arch {
	narrow, big := *arch.AMD64, *arch.AMD64
	narrow.Name, narrow.PtrSize, narrow.Args = "386", 4, nil
	big.Name, big.Order, big.RetAddrOnStack, big.SaveArea = "big", binary.BigEndian, false, arch.S390X.SaveArea
	return []*arch.Arch{arch.AMD64, &narrow, &big}
}

// checkCapture makes definitions of data. A definition that compiles must capture the same values
// as the reference evaluates, and print them as valid text and JSON. It returns how many arguments
// compiled.
func checkCapture(t *testing.T, data []byte) int {
	t.Helper()
	g := generator{data}
	a := machines()[g.n(3)]
	ref := &reference{a: a, regs: g.regs(), mem: g.memory(), names: genNames}
	ref.entry = ref.regs
	ctx := &Context{Regs: ref.regs, Data: dataAddr, Mem: ref.mem, Comm: "comm"}
	if g.n(2) == 1 {
		ref.entry = g.regs()
		ctx.Entry = ref.entry
	}
	if a.PtrSize == 4 {
		for _, regs := range []*arch.Regs{ref.regs, ref.entry} {
			for i := range regs {
				regs[i] &= 0xffffffff
			}
		}
	}
	var args []spec.Arg
	for i := range 4 {
		arg := spec.Arg{Name: fmt.Sprintf("a%d", i), Fetch: g.fetch(0), Type: g.typ()}
		if _, err := Compile([]spec.Arg{arg}, a, genNames); err == nil {
			args = append(args, arg)
		}
	}
	c, err := Compile(args, a, genNames)
	if err != nil {
		t.Fatalf("each compiles, together they do not: %v", err)
	}
	var want []Value
	for i := range args {
		want = append(want, ref.value(&args[i]))
	}
	got := c.Run(ctx)
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: %+v\n got %+v\nwant %+v", a.Name, args, got, want)
	}
	if again := c.AppendTo(got[:0], ctx); !reflect.DeepEqual(again, want) {
		t.Fatalf("reused room: got %+v\nwant %+v", again, want)
	}
	checkPrint(t, &Event{Name: "e", Func: "f", Args: want})
	if _, err := FormatFile(&spec.Spec{Event: "e", Args: args}, 1, a); err != nil {
		t.Fatalf("compiles, but has no format: %v", err)
	}
	return len(args)
}

// checkPrint holds an event's forms to the promises for any event: text without a character that
// does not print; JSON that gives the values back.
func checkPrint(t *testing.T, e *Event) {
	t.Helper()
	for _, r := range string(e.AppendText(nil)) {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			t.Fatalf("%q in %q", r, e.AppendText(nil))
		}
	}
	line := e.AppendJSON(nil)
	if strings.ContainsFunc(string(line), func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Fatalf("JSON has characters that do not print: %q", line)
	}
	var got struct {
		Comm, Group, Event, Func, Ret string
		Addr                          string
		Args                          map[string]any
	}
	d := json.NewDecoder(strings.NewReader(string(line)))
	d.UseNumber()
	if err := d.Decode(&got); err != nil {
		t.Fatalf("%v in %q", err, line)
	}
	for _, s := range [][2]string{
		{got.Comm, e.Comm}, {got.Group, e.Group}, {got.Event, e.Name}, {got.Func, e.Func},
		{got.Addr, e.Addr.String()},
	} {
		if unescape(s[0]) != s[1] {
			t.Fatalf("JSON gives %q back as %q: %q", s[1], s[0], line)
		}
	}
	if e.Return && unescape(got.Ret) != e.RetSym {
		t.Fatalf("JSON gives %q back as %q", e.RetSym, got.Ret)
	}
	for i := range e.Args {
		v := &e.Args[i]
		if want := plain(v); !reflect.DeepEqual(unescaped(got.Args[escaped(v.Name)]), want) {
			t.Fatalf("JSON gives %+v back as %#v, want %#v", v, got.Args[v.Name], want)
		}
	}
}

// plain is a value as encoding/json is to give it back.
func plain(v *Value) any {
	switch {
	case v.Array:
		list := []any{}
		for i := range v.Elems {
			list = append(list, plain(&v.Elems[i]))
		}
		return list
	case v.Fault:
		return nil
	case isText(v.Base), v.Base == spec.Symbol && v.Text != "":
		return v.Text
	case v.Base == spec.Hex, v.Base == spec.Symbol:
		return fmt.Sprintf("%#x", v.Bits)
	case v.Base == spec.Char:
		return string([]byte{byte(v.Bits)})
	case v.Base == spec.Signed, v.Base == spec.Enumeration:
		shift := 64 - 8*v.Size
		return json.Number(fmt.Sprint(int64(v.Bits<<shift) >> shift))
	}
	return json.Number(fmt.Sprint(v.Bits))
}

func unescaped(x any) any {
	switch x := x.(type) {
	case string:
		return unescape(x)
	case []any:
		for i := range x {
			x[i] = unescaped(x[i])
		}
	}
	return x
}

// escaped is a string in JSON's escapes: the text that a reader gets.
func escaped(s string) (out string) {
	if err := json.Unmarshal(appendJSONText(nil, s), &out); err != nil {
		panic(err)
	}
	return out
}

// unescape takes every \xNN back.
func unescape(s string) string {
	var out []byte
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && looksEscaped(s[i:]) {
			var b byte
			fmt.Sscanf(s[i+2:i+4], "%x", &b)
			out = append(out, b)
			i += 3
			continue
		}
		out = append(out, s[i])
	}
	return string(out)
}

func TestCaptureEqualsReference(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	compiled := 0
	const rounds = 2000
	for range rounds {
		data := make([]byte, 400)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		compiled += checkCapture(t, data)
	}
	if compiled < rounds/2 {
		t.Errorf("only %d arguments compiled: the generator proves little", compiled)
	}
}

func FuzzCapture(f *testing.F) {
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) { checkCapture(t, data) })
}

func FuzzPrint(f *testing.F) {
	f.Add("head", "vfs_open", "a\nb\xff\\x41\u202e\U000e0001", uint64(1)<<63, byte(1), true)
	f.Fuzz(func(t *testing.T, comm, fn, s string, n uint64, base byte, ret bool) {
		v := Value{Name: s, Base: spec.Base(base), Size: 1 << (base >> 4 & 3), Text: s, Bits: n}
		v.Bits &= 1<<(8*v.Size-1)<<1 - 1
		list := Value{Name: "list" + s, Base: v.Base, Array: true, Elems: []Value{v, {Fault: true}}}
		e := &Event{
			Comm: comm, Group: fn, Name: s, Return: ret, Func: fn, Off: n, Size: n,
			Addr: arch.Addr(n), RetAddr: arch.Addr(n), RetSym: fn, Time: 1, CPU: int(int32(n)), TID: int(int32(n)),
			Args: []Value{v, list},
		}
		checkPrint(t, e)
		if got := unescape(string(appendText(nil, s))); got != s {
			t.Errorf("text gives %q back as %q", s, got)
		}
	})
}

// A string has the kernel's bound, whatever lies behind it.
func TestTextBound(t *testing.T) {
	mem := pages{}
	mem.put(0x1000, slices.Repeat([]byte{'a'}, 3*pageSize)...)
	c, err := Compile([]spec.Arg{{Name: "s", Fetch: spec.Fetch{Op: spec.Abs, N: 0x1001}, Type: text}}, arch.AMD64, nil)
	if err != nil {
		t.Fatal(err)
	}
	if v := c.Run(&Context{Mem: mem, Regs: new(arch.Regs)}); v[0].Text != strings.Repeat("a", 4095) {
		t.Errorf("got %d bytes, want 4095", len(v[0].Text))
	}
}

// Arguments of one object cost one read; the next hit reads again.
func TestReadsAreShared(t *testing.T) {
	mem := &counting{pages: pages{}}
	mem.put(0x1000, 1, 2, 3, 4)
	var args []spec.Arg
	for i := range 8 {
		args = append(args, spec.Arg{Name: fmt.Sprint("a", i), Fetch: deref(int64(i), reg("di"))})
	}
	c, err := Compile(args, arch.AMD64, nil)
	if err != nil {
		t.Fatal(err)
	}
	var regs arch.Regs
	regs[arch.DI] = 0x1000
	ctx := &Context{Regs: &regs, Mem: mem}
	if c.Run(ctx); mem.reads != 1 {
		t.Errorf("%d reads, want 1", mem.reads)
	}
	mem.put(0x1000, 9)
	if v := c.Run(ctx); v[0].Bits&0xff != 9 {
		t.Errorf("the second hit sees the first's memory: %#x", v[0].Bits)
	}
}

type counting struct {
	pages
	reads int
}

func (c *counting) ReadAt(addr arch.Addr, p []byte) error {
	c.reads++
	return c.pages.ReadAt(addr, p)
}

// Where the kernel and programs have the same addresses, the definition says whose
// memory is read; elsewhere it does not matter.
func TestUserMemory(t *testing.T) {
	kernel, program := pages{}, pages{}
	kernel.put(0x1000, 0, 0, 0, 0, 0, 0, 0x30, 0, 'k', 0)
	program.put(0x1000, 0, 0, 0, 0, 0, 0, 0x20, 0, 'p', 0)
	kernel.put(0x2000, 'K', 0)
	program.put(0x2000, 'P', 0)
	kernel.put(0x3000, 'N', 0)
	args := parse(t, "p f +8(%di):string +8(%di):ustring +u8(%di):string +8(%di):x8 +u8(%di):x8 +0(+u0(%di)):string +0(+0(%di)):ustring +u0(+u0(%di)):string").Args
	c, err := Compile(args, machines()[2], nil)
	if err != nil {
		t.Fatal(err)
	}
	var regs arch.Regs
	regs[arch.DI] = 0x1000
	for _, tt := range []struct {
		mem  arch.Reader
		want string
	}{
		{twoSpaces{kernel, program}, `"k" "p" "p" 0x6b 0x70 "K" (fault) "P"`},
		{kernel, `"k" "k" "k" 0x6b 0x6b "N" "N" "N"`},
	} {
		var got []string
		for _, v := range c.Run(&Context{Regs: &regs, Mem: tt.mem}) {
			_, text, _ := strings.Cut(string((&Event{Args: []Value{v}}).AppendText(nil)), "=")
			got = append(got, strings.TrimSpace(text))
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%v, want %s", got, tt.want)
		}
	}
}

type twoSpaces struct{ pages, program pages }

func (m twoSpaces) ReadAt(a arch.Addr, p []byte) error   { return m.pages.ReadAt(a, p) }
func (m twoSpaces) ReadUser(a arch.Addr, p []byte) error { return m.program.ReadAt(a, p) }

// The deepest nesting that the language allows compiles.
func TestDeepest(t *testing.T) {
	const depth = 14
	line := "p f " + strings.Repeat("+0(", depth) + "%di" + strings.Repeat(")", depth)
	if _, err := Compile(parse(t, line).Args, arch.AMD64, nil); err != nil {
		t.Error(err)
	}
	if _, err := spec.Parse(strings.Replace(line, "%di", "+0(%di)", 1), spec.Kprobes); err == nil {
		t.Error("the language allows more: raise depth")
	}
}

func reg(name string) spec.Fetch { return spec.Fetch{Op: spec.Reg, Name: name} }
func argN(n int64) spec.Fetch    { return spec.Fetch{Op: spec.ArgN, N: n} }
func deref(off int64, inner spec.Fetch) spec.Fetch {
	return spec.Fetch{Op: spec.Deref, N: off, Inner: &inner}
}

var (
	x64    = spec.Type{Written: "x64", Base: spec.Hex, Size: 8}
	text   = spec.Type{Written: "string", Base: spec.String}
	bytes4 = spec.Type{Written: "x8", Base: spec.Hex, Size: 1, Array: 4}
)

// Trees that the parser does not make, or that nothing here can place.
func TestCompileRefuses(t *testing.T) {
	self := spec.Fetch{Op: spec.Deref}
	self.Inner = &self
	str := func(f spec.Fetch) spec.Arg { return spec.Arg{Fetch: f, Type: text} }
	for _, c := range []struct {
		arg  spec.Arg
		is   error
		want string
	}{
		{spec.Arg{Fetch: reg("zz")}, nil, `no register "zz"`},
		{spec.Arg{Fetch: spec.Fetch{Op: spec.Sym, Name: "nosuch"}}, errUnknown, "no such symbol"},
		{spec.Arg{Fetch: spec.Fetch{Op: spec.Var, Name: "file"}}, ErrTypeInfo, `variable "file"`},
		{spec.Arg{Fetch: spec.Fetch{Op: spec.AllArgs}}, ErrTypeInfo, "$arg*"},
		{spec.Arg{Fetch: spec.Fetch{Op: spec.Retval, Fields: []spec.Field{{Name: "m"}}}}, ErrTypeInfo, "member m"},
		{spec.Arg{Fetch: reg("di"), Type: spec.Type{Written: "%pd", Base: spec.Dentry}}, ErrTypeInfo, "%pd"},
		{spec.Arg{Fetch: argN(0)}, nil, "count from 1"},
		{spec.Arg{Fetch: spec.Fetch{Op: spec.StackN, N: -1}}, nil, "no such word"},
		{spec.Arg{Fetch: spec.Fetch{Op: spec.Deref}}, nil, "dereference of nothing"},
		{spec.Arg{Fetch: deref(0, spec.Fetch{Op: spec.Comm})}, nil, "cannot be dereferenced"},
		{spec.Arg{Fetch: self}, nil, "nested dereferences"},
		{str(reg("di")), nil, "not a fetch of memory"},
		{str(argN(9)), nil, "not a fetch of memory"},
		{spec.Arg{Fetch: reg("di"), Type: bytes4}, nil, "not a fetch of memory"},
		{spec.Arg{Fetch: spec.Fetch{Op: spec.Comm}, Type: x64}, nil, "text has type string"},
		{spec.Arg{Fetch: spec.Fetch{Op: spec.Imm}, Type: spec.Type{Written: "symstr", Base: spec.SymStr}}, nil, "not for constants"},
		{spec.Arg{Fetch: deref(0, reg("di")), Type: spec.Type{Written: "x8", Base: spec.Hex, Size: 1, Array: 65}}, nil, "array of 65"},
		{spec.Arg{Fetch: reg("di"), Type: spec.Type{Written: "b9@0/8", Base: spec.Bitfield, Size: 1, BitW: 9}}, nil, "outside"},
		{spec.Arg{Fetch: reg("di"), Type: spec.Type{Written: "u24", Size: 3}}, nil, "3 bytes"},
	} {
		_, err := Compile([]spec.Arg{c.arg}, arch.AMD64, genNames)
		if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%+v: error %v, want %q", c.arg, err, c.want)
		}
	}
	if _, err := Compile([]spec.Arg{{Fetch: spec.Fetch{Op: spec.FileOff}}}, arch.AMD64, nil); err == nil {
		t.Error("a file offset without a Resolver: no error")
	}
}

// Where stacks are not walked a definition is refused, rather than each of its events without one.
func TestStacksOfOtherMachines(t *testing.T) {
	stack := []spec.Arg{{Name: "stack", Fetch: spec.Fetch{Op: spec.StackTrace}, Type: spec.Type{Base: spec.Trace}}}
	for _, a := range arch.All() {
		if _, err := Compile(stack, a, nil); (err == nil) != (a == arch.AMD64) || err != nil && !strings.Contains(err.Error(), "stacks are walked on x86-64 only, not on "+a.Name) {
			t.Errorf("%s: %v", a.Name, err)
		}
	}
}
