package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
)

// fake is memory that a test makes up.
type fake map[arch.Addr]byte

func (f fake) ReadAt(addr arch.Addr, p []byte) error {
	for i := range p {
		b, ok := f[addr+arch.Addr(i)]
		if !ok {
			return fmt.Errorf("nothing is mapped at %v", addr+arch.Addr(i))
		}
		p[i] = b
	}
	return nil
}

func (f fake) put(addr arch.Addr, values ...any) arch.Addr {
	for _, v := range values {
		b, ok := v.(string)
		if !ok {
			b = string(must(binary.Append(nil, binary.LittleEndian, v)))
		}
		for i := range len(b) {
			f[addr] = b[i]
			addr++
		}
	}
	return addr
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

const (
	fakeText    = arch.Addr(0xffffffff81000000)
	fakeHead    = arch.Addr(0xffffffff82000000) // modules
	fakeTables  = arch.Addr(0xffffffff82100000)
	fakeModules = arch.Addr(0xffffffffc0000000)
)

// fakeKernel has types as since 6.4, and as many modules of two symbols each.
func fakeKernel(t testing.TB, modules int) (*Kernel, fake) {
	types, err := parseTypes(compiled(t, "kernel64.c", binary.LittleEndian), nil, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	mem := fake{}
	mem.put(fakeTables, make([]byte, 64*8))
	table := kernelTable([]Symbol{
		{Name: "_stext", Addr: fakeText, Type: 'T'}, {Name: "_etext", Addr: fakeText + 0x1000, Type: 'T'},
		{Name: "modules", Addr: fakeHead, Type: 'D'}, {Name: "__start___ex_table", Addr: fakeHead + 16, Type: 'R'}, {Name: "__stop___ex_table", Addr: fakeHead + 16, Type: 'R'},
		{Name: "kprobe_table", Addr: fakeTables, Type: 'b'}, {Name: "_end", Addr: fakeTables + 64*8, Type: 'B'},
	})
	k := &Kernel{arch: arch.AMD64, mem: mem, types: types, table: table}
	field := func(tag, path string) arch.Addr {
		off, _, err := types.field(tag, path)
		if err != nil {
			t.Fatal(err)
		}
		return arch.Addr(off)
	}
	list := field("module", "list")
	heads := []arch.Addr{fakeHead}
	for i := range modules {
		text := fakeModules + arch.Addr(i)*0x100000
		data := text + 0x10000
		m := data + 0x100
		heads = append(heads, m+list)
		mem.put(m, make([]byte, must(types.structure("module")).Size))
		mem.put(m+field("module", "name"), fmt.Sprintf("mod%d\x00", i))
		base, size := field("module_memory", "base"), field("module_memory", "size")
		step := arch.Addr(must(types.structure("module_memory")).Size)
		for kind, part := range []struct {
			base arch.Addr
			size uint32
		}{{text, 0x2000}, {data, 0x1000}, {text + 0x20000, 0x1000}, {}, {text + 0x30000, 0x1000}} {
			at := m + field("module", "mem") + arch.Addr(kind)*step
			mem.put(at+base, uint64(part.base))
			mem.put(at+size, part.size)
		}
		// Symbols: none, an undefined one, a function, its variable; exported is the function.
		syms, names, kinds := data+0x500, text+0x20000, data+0x700
		mem.put(m+field("module", "kallsyms"), uint64(data+0x800))
		mem.put(data+0x800, uint64(syms), uint64(4), uint64(names), uint64(kinds))
		mem.put(syms, make([]byte, 24), uint32(1), uint8(0), uint8(0), uint16(0), uint64(0), uint64(0),
			uint32(5), uint8(0), uint8(0), uint16(1), uint64(text+0x40), uint64(16),
			uint32(10), uint8(0), uint8(0), uint16(2), uint64(data+8), uint64(8))
		mem.put(names, "\x00und\x00func\x00var\x00", make([]byte, 0x1000))
		mem.put(kinds, "?utd")
		mem.put(m+field("module", "syms"), uint64(data+0x900))
		mem.put(m+field("module", "num_syms"), uint32(1))
		mem.put(data+0x900, int32(text+0x40-(data+0x900)), int32(0), int32(0))
		// One entry in each table; the second jump label is in text that is gone.
		rel := func(at, to arch.Addr) int32 { return int32(to - at) }
		mem.put(m+field("module", "jump_entries"), uint64(data+0xa00))
		mem.put(m+field("module", "num_jump_entries"), uint32(2))
		mem.put(data+0xa00, rel(data+0xa00, text+0x50), int32(0), uint64(0), rel(data+0xa10, text+0x30000), int32(0), uint64(0))
		mem.put(text+0x50, []byte{0xeb, 0})
		mem.put(m+field("module", "extable"), uint64(data+0xb00))
		mem.put(m+field("module", "num_exentries"), uint32(1))
		mem.put(data+0xb00, rel(data+0xb00, text+0x60), rel(data+0xb04, text+0x70), int32(0))
		mem.put(m+field("module", "bug_table"), uint64(data+0xc00))
		mem.put(m+field("module", "num_bugs"), uint32(1))
		mem.put(data+0xc00, rel(data+0xc00, text+0x80), int32(0), uint32(0))
	}
	for i, h := range heads {
		mem.put(h, uint64(heads[(i+1)%len(heads)]), uint64(heads[(i+len(heads)-1)%len(heads)]))
	}
	return k, mem
}

// The layout of 6.4 and later: several kinds of memory for each module.
func TestModuleMemory(t *testing.T) {
	k, mem := fakeKernel(t, 2)
	loaded, gone, err := k.Update()
	if err != nil || len(loaded) != 2 || len(gone) != 0 {
		t.Fatalf("loaded %v, gone %v, %v", loaded, gone, err)
	}
	m := loaded[1]
	text := fakeModules + 0x100000
	if got := m.String(); got != fmt.Sprintf("mod1 %d Live %v", 0x2000+0x1000*3, text) {
		t.Error(got)
	}
	var lines []string
	for _, s := range m.Table.Symbols() {
		lines = append(lines, fmt.Sprintf("%v/%#x", &s, s.Size))
	}
	want := []string{fmt.Sprintf("%016x T func\t[mod1]/%#x", uint64(text+0x40), 0x1fc0), fmt.Sprintf("%016x d var\t[mod1]/%#x", uint64(text+0x10008), 0xff8)}
	if !slices.Equal(lines, want) {
		t.Errorf("%q, not %q", lines, want)
	}
	if !k.IsText(text+0x1fff) || k.IsText(text+0x2000) || k.IsText(text+0x30000) || !k.IsText(fakeText) {
		t.Error("what is text is mistaken")
	}
	if got := k.Name(text + 0x44); got != "func+0x4/0x1fc0 [mod1]" {
		t.Error(got)
	}
	sites, err := k.Foreign(text, text+0x2000)
	if want := "[{0xffffffffc0100050 2 jump label} {0xffffffffc0100080 2 BUG}]"; err != nil || fmt.Sprint(sites) != want {
		t.Errorf("%v, %v, not %s", sites, err, want)
	}
	fixups, err := k.FixupsIn(text, text+0x2000)
	if want := "[{0xffffffffc0100060 0xffffffffc0100070}]"; err != nil || fmt.Sprint(fixups) != want {
		t.Errorf("%v, %v, not %s", fixups, err, want)
	}

	// The guest unloads one while we look: the list does not hold together.
	second := k.Modules()[1].at + 8
	saved := make([]byte, 16)
	mem.ReadAt(second, saved)
	mem.put(second, uint64(0xdead), uint64(0xdead))
	if _, _, err := k.Update(); err == nil {
		t.Error("a broken list was believed")
	}
	if len(k.Modules()) != 2 {
		t.Error("what was known is forgotten")
	}
	mem.put(second, saved)

	// One that is being made has nothing to tell yet; one that goes does.
	mem.put(k.Modules()[0].at, uint32(raw))
	mem.put(k.Modules()[1].at, uint32(Going))
	if _, gone, err := k.Update(); err != nil || len(gone) != 1 || len(k.Modules()) != 1 || k.Modules()[0].State != Going {
		t.Errorf("gone %v, %v; now %v", gone, err, k.Modules())
	}
}

// The guest's own probes, one of them optimized.
func TestGuestProbes(t *testing.T) {
	k, mem := fakeKernel(t, 0)
	if sites, err := k.Foreign(fakeText, fakeText+0x1000); err != nil || len(sites) != 0 {
		t.Fatal(sites, err)
	}
	first, second := fakeTables+0x1000, fakeTables+0x2000
	mem.put(first, uint64(second), uint64(0), make([]byte, 24), uint64(fakeText+0x10), uint32(0))
	mem.put(second, uint64(0), uint64(0), make([]byte, 24), uint64(fakeText+0x20), uint32(4))
	mem.put(fakeTables+8*5, uint64(first))
	sites, err := k.Foreign(fakeText, fakeText+0x1000)
	if want := "[{0xffffffff81000010 1 kprobe} {0xffffffff81000020 5 kprobe}]"; err != nil || fmt.Sprint(sites) != want {
		t.Errorf("%v, %v, not %s", sites, err, want)
	}
	mem.put(second, uint64(first)) // in a circle
	if _, err := k.Foreign(fakeText, fakeText+1); !errors.Is(err, errChanged) {
		t.Errorf("a circle: %v", err)
	}
	mem.put(second, uint64(0x1234))
	if _, err := k.Foreign(fakeText, fakeText+1); err == nil || !strings.Contains(err.Error(), "nothing is mapped at 0x12") {
		t.Errorf("a wild pointer: %v", err)
	}
}

// hostile is memory that has an answer at every address, and always another one.
type hostile struct {
	fake
	noise []byte
	reads int
}

func (h *hostile) ReadAt(addr arch.Addr, p []byte) error {
	if h.reads += 1 + len(p)/256; h.reads > 1<<20 {
		return errors.New("read too much")
	}
	if len(h.noise) == 0 || h.fake.ReadAt(addr, p) == nil && h.noise[h.reads%len(h.noise)] != 0 {
		return nil
	}
	for i := range p {
		p[i] = h.noise[(int(addr)+i+h.reads)&0x7fffffff%len(h.noise)]
	}
	return nil
}

// A walk over a guest's memory comes to an end, whatever is in it.
func FuzzHostile(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 1, 0xff, 0xff, 0xff, 0xff, 0x10, 0, 0, 0x81, 0xff})
	f.Add([]byte("\x00\x00\x00\x00\x00\x00\x82\xff\xff\xff\xff\x01"))
	k, mem := fakeKernel(f, 2)
	f.Fuzz(func(t *testing.T, noise []byte) {
		h := &hostile{mem, noise, 0}
		k := &Kernel{arch: k.arch, types: k.types, table: k.table, mem: h}
		k.Update()
		k.Sites()
		k.Foreign(fakeText, fakeText+0x1000)
		k.Blacklist()
		h.reads = 0
		untyped := &Kernel{arch: k.arch, table: k.table, mem: h}
		untyped.Update()
		untyped.Sites()
		if h.reads > 1<<20 {
			t.Log("it was stopped")
		}
	})
}
