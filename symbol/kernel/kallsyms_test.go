package kernel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
)

// form is one of the forms that kernels have kept their symbols in.
type form struct {
	name  string
	order binary.ByteOrder
	ptr   int
	enc   encoding
	late  bool // the order of 6.4
	seqs  bool // with seqs_of_names
	wide  bool // num_syms and markers as wide as a pointer
	loose bool // aligned to 4 bytes, whatever a pointer has
}

func (f form) arch() *arch.Arch { return &arch.Arch{Name: "test", Order: f.order, PtrSize: f.ptr} }

// forms are the forms of releases of x86-64, arm64, s390x and of 32-bit machines.
var forms = []form{
	{"4.4 amd64", binary.LittleEndian, 8, absolute, false, false, true, false},
	{"4.14 amd64", binary.LittleEndian, 8, percpuMixed, false, false, true, false},
	{"5.10 amd64", binary.LittleEndian, 8, percpuMixed, false, false, false, false},
	{"5.10 arm64", binary.LittleEndian, 8, baseRelative, false, false, false, false},
	{"5.10 s390x", binary.BigEndian, 8, baseRelative, false, false, false, false},
	{"6.1 amd64", binary.LittleEndian, 8, percpuMixed, false, true, false, false},
	{"6.1 s390x", binary.BigEndian, 8, baseRelative, false, true, false, false},
	{"6.1 ia64", binary.LittleEndian, 8, absolute, false, true, false, false},
	{"6.6 amd64", binary.LittleEndian, 8, percpuMixed, true, true, false, false},
	{"6.12 arm64", binary.LittleEndian, 8, baseRelative, true, true, false, false},
	{"6.12 s390x", binary.BigEndian, 8, baseRelative, true, true, false, false},
	{"6.12 absolute", binary.LittleEndian, 8, absolute, true, true, false, false},
	{"7.0 amd64", binary.LittleEndian, 8, placeRelative, true, true, false, false},
	{"7.0 s390x", binary.BigEndian, 8, placeRelative, true, true, false, false},
	{"7.2 amd64", binary.LittleEndian, 8, placeRelative, true, true, false, true},
	{"7.2 s390x", binary.BigEndian, 8, placeRelative, true, true, false, true},
	{"5.10 arm", binary.LittleEndian, 4, baseRelative, false, false, false, false},
	{"6.6 powerpc", binary.BigEndian, 4, absolute, true, true, false, false},
}

// someSymbols makes up n symbols of a kernel at base. With percpu, the first are
// per-CPU offsets.
func someSymbols(r *rand.Rand, n int, base uint64, percpu bool) []Symbol {
	words := strings.Fields("vfs read write sys do get put init exit lock page folio tcp sock 0 1 2 3 4 5 6 7 8 9 x64 irq")
	syms := make([]Symbol, n)
	addr := uint64(0)
	for i := range syms {
		if !percpu || i == n/50 {
			addr = max(addr, base)
		}
		if i > 0 && addr != base {
			addr += uint64(r.IntN(5)) * 16
		}
		name := words[r.IntN(len(words))]
		for range r.IntN(6) {
			name += "_" + words[r.IntN(len(words))]
		}
		if i%500 == 0 { // a length of two bytes
			name += strings.Repeat("_very_long", 30)
		}
		kind := "tTdDrRbB"[r.IntN(8)]
		if percpu && i < n/50 {
			kind = 'A'
		}
		syms[i] = Symbol{Name: name, Addr: arch.Addr(addr), Type: kind}
		if addr == base && i > 0 && syms[i-1].Addr == arch.Addr(base) {
			addr += 16
		}
	}
	syms[n/50].Name, syms[n/50].Type = "_text", 'T'
	syms[n/50+1].Name = "_stext"
	return syms
}

// image is memory that is being written.
type image struct {
	bytes.Buffer
	form
}

func (im *image) align() {
	unit := im.ptr
	if im.loose {
		unit = 4
	}
	for im.Len()%unit != 0 {
		im.WriteByte(0)
	}
}

func (im *image) word(v uint64, size int) {
	var b [8]byte
	switch size {
	case 2:
		im.order.PutUint16(b[:], uint16(v))
	case 4:
		im.order.PutUint32(b[:], uint32(v))
	case 8:
		im.order.PutUint64(b[:], v)
	}
	im.Write(b[:size])
}

// write writes the tables at the place where im is, as scripts/kallsyms.c does,
// whose virtual address is at.
func (im *image) write(syms []Symbol, at uint64) {
	place := func() uint64 { return at + uint64(im.Len()) }
	// Every byte that names use is its own token; the others are pairs.
	used := [256]bool{}
	for _, s := range syms {
		for _, c := range []byte(string(s.Type) + s.Name) {
			used[c] = true
		}
	}
	tokens := [256]string{}
	pairs := strings.Fields("_v re ad _s ys _d do _g et _p ut in it ex _l lo ck pa ge fo li")
	code := map[string]byte{}
	for c := range tokens {
		if used[c] {
			tokens[c] = string([]byte{byte(c)})
		} else if len(pairs) > 0 {
			tokens[c], pairs = pairs[0], pairs[1:]
		}
		if tokens[c] != "" {
			code[tokens[c]] = byte(c)
		}
	}
	width := 4
	if im.wide {
		width = im.ptr
	}
	base := uint64(syms[0].Addr)
	if im.enc == percpuMixed {
		base = uint64(syms[slices.IndexFunc(syms, func(s Symbol) bool { return s.Name == "_text" })].Addr)
	}
	addresses := func() {
		im.align()
		for _, s := range syms {
			switch a := uint64(s.Addr); {
			case im.enc == absolute:
				im.word(a, im.ptr)
			case im.enc == baseRelative:
				im.word(a-base, 4)
			case im.enc == percpuMixed && s.Type == 'A':
				im.word(a, 4)
			case im.enc == percpuMixed:
				im.word(base-1-a, 4)
			default:
				im.word(a-place(), 4)
			}
		}
		im.align()
		if im.enc == baseRelative || im.enc == percpuMixed {
			im.word(base, im.ptr)
		}
	}
	seqs := func() {
		im.align()
		if im.seqs {
			for i := range syms {
				im.Write([]byte{byte(i >> 16), byte(i >> 8), byte(i)})
			}
		}
	}
	if im.align(); !im.late {
		addresses()
	}
	im.align()
	im.word(uint64(len(syms)), width)
	im.align()
	names := im.Len()
	var markers []int
	for i, s := range syms {
		if i%256 == 0 {
			markers = append(markers, im.Len()-names)
		}
		var packed []byte
		for text := string(s.Type) + s.Name; text != ""; {
			if c, ok := code[text[:min(2, len(text))]]; ok && len(text) > 1 {
				packed, text = append(packed, c), text[2:]
			} else {
				packed, text = append(packed, code[text[:1]]), text[1:]
			}
		}
		if len(packed) >= 128 {
			im.WriteByte(byte(len(packed)) | 0x80)
			im.WriteByte(byte(len(packed) >> 7))
		} else {
			im.WriteByte(byte(len(packed)))
		}
		im.Write(packed)
	}
	im.align()
	for _, m := range markers {
		im.word(uint64(m), width)
	}
	if !im.late {
		seqs()
	}
	im.align()
	for _, t := range tokens {
		im.WriteString(t + "\x00")
	}
	im.align()
	at16 := 0
	for _, t := range tokens {
		im.word(uint64(at16), 2)
		at16 += len(t) + 1
	}
	if im.late {
		addresses()
		seqs()
	}
}

// junk fills memory with noise, in which digits stand as in a token table.
func (im *image) junk(r *rand.Rand, n int) {
	for im.Len()%8 != 0 {
		im.WriteByte(0xff)
	}
	for range n / 64 {
		for range 8 {
			im.word(r.Uint64(), 8/2)
			im.word(r.Uint64(), 8/2)
		}
	}
	im.WriteString("0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00abc")
}

// Each form is found in the midst of other things, and read back as it was.
func TestForms(t *testing.T) {
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, uint64(len(f.name))))
			base := uint64(0xffff_8000_1000_0000)
			if f.ptr == 4 {
				base = 0xc010_0000
			}
			syms := someSymbols(r, minSymbols+r.IntN(3000), base, f.enc == percpuMixed)
			im := &image{form: f}
			im.junk(r, 100_000+r.IntN(10_000))
			at := base + 0x20_0000 // of the first byte: after the text
			im.write(syms, at)
			im.junk(r, 100_000)
			found, err := Find(bytes.NewReader(im.Bytes()), int64(im.Len()), f.arch())
			if err != nil {
				t.Fatal(err)
			}
			if len(found) != 1 || found[0].encoding != f.enc {
				t.Fatalf("%d kernels, addresses %s", len(found), found[0].encoding)
			}
			got := found[0].Table.Symbols()
			if len(got) != len(syms) {
				t.Fatalf("%d symbols, not %d", len(got), len(syms))
			}
			bias := uint64(0)
			if f.enc == placeRelative {
				bias = at // nothing here tells where the memory lies
			}
			for i, want := range syms {
				if got[i].Name != want.Name || got[i].Type != want.Type || uint64(got[i].Addr)+bias != uint64(want.Addr) {
					t.Fatalf("symbol %d is %v, not %v", i, &got[i], &want)
				}
			}
		})
	}
}

// A guest may fill its memory with token tables that belong to nothing, or with kernels: the search
// ends, and tells its finds.
func TestCrowd(t *testing.T) {
	f := forms[3]
	im := &image{form: f}
	im.write(someSymbols(rand.New(rand.NewPCG(6, 6)), minSymbols, 0x10_0000, false), 0x40_0000)
	found, err := Find(bytes.NewReader(im.Bytes()), int64(im.Len()), f.arch())
	if err != nil {
		t.Fatal(err)
	}
	tokens := im.Bytes()[found[0].at:]
	crowd := bytes.Repeat(append(make([]byte, 16), tokens...), 2*maxSuspect)
	if found, err := Find(bytes.NewReader(crowd), int64(len(crowd)), f.arch()); err == nil || len(found) != 0 {
		t.Errorf("tokens of nothing: %d kernels, %v", len(found), err)
	}
	im.align()
	kernels := bytes.Repeat(append(im.Bytes(), make([]byte, 4096)...), maxFound+3)
	if found, err := Find(bytes.NewReader(kernels), int64(len(kernels)), f.arch()); err != nil || len(found) != maxFound {
		t.Errorf("many kernels: %d, %v", len(found), err)
	}
}

// Of several kernels the first that runs is taken, and nothing behind its surroundings is read.
func TestFindRunning(t *testing.T) {
	f := forms[3]
	im := &image{form: f}
	im.write(someSymbols(rand.New(rand.NewPCG(6, 6)), minSymbols, 0x10_0000, false), 0x80_0000)
	one := append(im.Bytes(), make([]byte, chunk-im.Len()%chunk)...)
	ram := append(append(bytes.Clone(one), one...), make([]byte, winBehind+64<<20)...)
	last := int64(len(ram)) - 32<<20 // from there on nothing can be read
	r := io.NewSectionReader(bytes.NewReader(ram), 0, last)
	asked := 0
	mem := readerFunc(func(_ arch.Addr, p []byte) error {
		if asked++; asked == 1 {
			return io.EOF
		}
		p[0] = 0x90
		return nil
	})
	got, err := FindRunning(r, int64(len(ram)), f.arch(), mem)
	if err != nil || got.at < int64(len(one)) || asked != 2 {
		t.Fatalf("%+v, %v, asked %d times", got, err, asked)
	}
	nothing := readerFunc(func(arch.Addr, []byte) error { return io.EOF })
	if _, err := FindRunning(r, last, f.arch(), nothing); err != errNotRunning {
		t.Errorf("none runs: %v", err)
	}
	if _, err := FindRunning(bytes.NewReader(ram[2*len(one):]), 1<<20, f.arch(), nothing); err != errNoTables {
		t.Errorf("no kernel: %v", err)
	}
}

type readerFunc func(arch.Addr, []byte) error

func (f readerFunc) ReadAt(addr arch.Addr, p []byte) error { return f(addr, p) }

// Where RAM holds the kernel, its place follows from the first task, which
// points to itself; with it the addresses of the newest form.
func TestPlace(t *testing.T) {
	for _, enc := range []encoding{baseRelative, placeRelative} {
		f := form{string(enc), binary.LittleEndian, 8, enc, true, true, false, false}
		r := rand.New(rand.NewPCG(2, 2))
		const start, virtual = 0x20_0000, 0xffff_ffff_9100_0000
		syms := someSymbols(r, minSymbols+99, virtual, false)
		im := &image{form: f}
		im.Write(make([]byte, start)) // RAM below
		banner, task := uint64(0x1240), uint64(0x8680)
		for uint64(im.Len()) < start+banner {
			im.WriteByte(0x90)
		}
		fmt.Fprintf(im, "Linux version 9.9")
		for uint64(im.Len()) < start+task {
			im.WriteByte(0x90)
		}
		for i := range uint64(2048) {
			v := i * 0x1234567
			if i == 100 || i == 101 || i == 110 {
				v = virtual + task
			}
			im.word(v, 8)
		}
		im.junk(r, 4096)
		syms = append(syms, Symbol{Name: "linux_banner", Addr: arch.Addr(virtual + banner), Type: 'D'},
			Symbol{Name: "init_task", Addr: arch.Addr(virtual + task), Type: 'D'},
			Symbol{Name: "_end", Addr: virtual + 0x100_0000, Type: 'B'})
		slices.SortStableFunc(syms, func(a, b Symbol) int {
			if a.Addr < b.Addr {
				return -1
			}
			return int(min(a.Addr-b.Addr, 1))
		})
		im.write(syms, virtual-start)
		for range 300 { // the log has the banner too, and a window needs the bytes behind it
			im.junk(r, 4096)
			fmt.Fprintf(im, "Linux version 9.9")
		}
		found, err := Find(bytes.NewReader(im.Bytes()), int64(im.Len()), f.arch())
		if err != nil {
			t.Fatal(enc, err)
		}
		if k := found[0]; !k.HasBias || k.Bias != virtual-start {
			t.Errorf("%s: bias %#x, %v", enc, k.Bias, k.HasBias)
		}
		if a, _ := found[0].Table.Addr("init_task"); uint64(a) != virtual+task {
			t.Errorf("%s: init_task at %v", enc, a)
		}
	}
}

// damage changes bytes of a copy of b: edits are places, four bytes, and the bytes to put there. A
// fuzzer finds more with few bytes to change than with many.
func damage(b, edits []byte) []byte {
	b = bytes.Clone(b)
	for ; len(edits) >= 5 && len(b) > 0; edits = edits[5:] {
		at := int(binary.LittleEndian.Uint32(edits)) % len(b)
		if edits[4] == 0xc5 { // cut
			b = b[:at]
			continue
		}
		b[at] = edits[4]
	}
	return b
}

// A table that was damaged anywhere is refused, or read rightly but for the damaged name or
// address.
func FuzzFind(f *testing.F) {
	images := make([][]byte, len(forms))
	for i, form := range forms {
		im := &image{form: form}
		im.write(someSymbols(rand.New(rand.NewPCG(3, 3)), minSymbols, 0xc010_0000, form.enc == percpuMixed), 0xc030_0000)
		images[i] = im.Bytes()
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{7, 100, 0, 0, 1, 0, 0, 1, 0, 9})
		f.Add(uint8(i), []byte{0, 100, 0, 0, 0xc5})
	}
	f.Fuzz(func(t *testing.T, which uint8, edits []byte) {
		form := forms[int(which)%len(forms)]
		b := damage(images[int(which)%len(forms)], edits)
		found, err := Find(bytes.NewReader(b), int64(len(b)), form.arch())
		if len(edits) < 5 && err != nil {
			t.Fatal(err)
		}
		for _, k := range found {
			checkTable(t, k.Table)
		}
	})
}

// checkTable holds what every table promises.
func checkTable(t *testing.T, table *Table) {
	t.Helper()
	syms := table.Symbols()
	for i, s := range syms {
		if i > 0 && s.Addr < syms[i-1].Addr {
			t.Fatalf("%v comes after %v", &s, &syms[i-1])
		}
		if i%64 != 0 {
			continue
		}
		if !slices.ContainsFunc(table.Lookup(s.Name), func(o Symbol) bool { return o == s }) {
			t.Fatalf("%v is not found by its name", &s)
		}
		if table.Bounds().Contains(s.Addr) && s.Size > 0 {
			if at, off, ok := table.At(s.Addr); !ok || off != 0 || at.Addr != s.Addr {
				t.Fatalf("%v is not found by its address, but %v", &s, &at)
			}
		}
	}
	table.Match("*_a?[b-d]*")
	table.Sections()
}

// foreignMachines are the machines besides x86-64 whose kernels are read, whole guests.
var foreignMachines = []*arch.Arch{arch.ARM64, arch.S390X}
