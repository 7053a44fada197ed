package kernel

import (
	"bytes"
	"strings"
	"testing"

	"kprobe/arch"
)

const someText = `0000000000000000 A fixed_percpu_data
0000000000001000 A cpu_debug_store
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000040 t vfs_readv
ffffffff81000100 T vfs_read
ffffffff81000100 W __weak_alias
ffffffff81000410 t helper
ffffffff81000500 t helper
ffffffff81000600 T _etext
ffffffff82000000 D jiffies
ffffffff83000000 B _end
ffffffffc0000000 t init_module	[dummy]
ffffffffc0000010 T dummy_setup	[dummy]
`

func TestText(t *testing.T) {
	table, modules, err := ReadText(strings.NewReader(someText))
	if err != nil {
		t.Fatal(err)
	}
	checkTable(t, table)
	var out bytes.Buffer
	table.WriteTo(&out)
	modules["dummy"].WriteTo(&out)
	if out.String() != someText {
		t.Errorf("printed:\n%s", &out)
	}
	for _, tt := range []struct {
		addr arch.Addr
		want string
		off  uint64
		size uint64
	}{
		{0xffffffff81000100, "vfs_read", 0, 0x310},
		{0xffffffff8100040f, "vfs_read", 0x30f, 0x310},
		{0xffffffff81000410, "helper", 0, 0xf0},
		{0xffffffff81000000, "_stext", 0, 0x40}, // the first of aliases
		{0xffffffff82fffff0, "jiffies", 0xfffff0, 0x1000000},
		{0xffffffff83000000, "", 0, 0}, // the end
		{0x10, "", 0, 0},               // a per-CPU offset is no address
		{0x7fffffffffff, "", 0, 0},
		{0xffffffffc0000000, "", 0, 0}, // a module's
	} {
		s, off, ok := table.At(tt.addr)
		if ok != (tt.want != "") || ok && (s.Name != tt.want || off != tt.off || s.Size != tt.size) {
			t.Errorf("at %v: %s+%#x/%#x, %v", tt.addr, s.Name, off, s.Size, ok)
		}
	}
	names := func(syms []Symbol) string {
		var out []string
		for _, s := range syms {
			out = append(out, s.Name)
		}
		return strings.Join(out, " ")
	}
	for glob, want := range map[string]string{
		"vfs_*": "vfs_read vfs_readv", "vfs_rea?": "vfs_read", "helper": "helper helper", "*": "__weak_alias _etext _stext _text helper helper vfs_read vfs_readv",
		"[h]*": "helper helper", "jif*": "", "nothing": "",
	} {
		if got := names(table.Match(glob)); got != want {
			t.Errorf("%s matches %q, not %q", glob, got, want)
		}
	}
	if got := table.Lookup("helper"); len(got) != 2 || got[0].Addr != 0xffffffff81000410 {
		t.Errorf("helper: %v", got)
	}
	if got := table.Sections(); len(got) != 1 || got[0].Name != ".text" || got[0].End != 0xffffffff81000600 {
		t.Errorf("sections: %v", got)
	}
	moved := table.Slide(0x1000000)
	if a, _ := moved.Addr("vfs_read"); a != 0xffffffff82000100 {
		t.Errorf("vfs_read moved to %v", a)
	}
	if a, _ := moved.Addr("cpu_debug_store"); a != 0x1000 {
		t.Errorf("a per-CPU offset moved to %v", a)
	}
	if s, _, ok := moved.At(0xffffffff82000110); !ok || s.Name != "vfs_read" || s.Size != 0x310 {
		t.Errorf("moved: %v %#x %v", &s, s.Size, ok)
	}
}

func TestTextErrors(t *testing.T) {
	good := "ffffffff81000000 T _text\n"
	for text, want := range map[string]string{
		good + "ffffffff81000000 T\n":           `line 2: not "ADDRESS TYPE NAME"`,
		good + "fffffffffffffffff T x\n":        `line 2: not "ADDRESS TYPE NAME"`,
		good + "xyz T x\n":                      `line 2: not "ADDRESS TYPE NAME"`,
		good + "ffffffff81000000 TT x\n":        `line 2: not "ADDRESS TYPE NAME"`,
		good + "ffffffff81000000 T x\t[mod\n":   `line 2: not "ADDRESS TYPE NAME"`,
		good + "\n":                             `line 2: not "ADDRESS TYPE NAME"`,
		good + strings.Repeat("a", maxLine+1):   "line 2: bufio.Scanner: token too long",
		"0000000000000000 T _text\n":            "the list has no addresses: its reader may not see them (kptr_restrict)",
		"":                                      "the list has no addresses: its reader may not see them (kptr_restrict)",
		"ffffffffffffffff B The real map is in": `line 1: not "ADDRESS TYPE NAME"`,
	} {
		if _, _, err := ReadText(strings.NewReader(text)); err == nil || err.Error() != want {
			t.Errorf("%.60q: %v", text, err)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add([]byte(someText))
	f.Fuzz(func(t *testing.T, b []byte) {
		table, modules, err := ReadText(bytes.NewReader(b))
		if err != nil {
			return
		}
		checkTable(t, table)
		table.Slide(0x200000)
		for _, m := range modules {
			checkTable(t, m)
		}
		// A printed list is read back as the same.
		var out bytes.Buffer
		table.WriteTo(&out)
		if again, _, err := ReadText(bytes.NewReader(out.Bytes())); err == nil && len(again.Symbols()) != len(table.Symbols()) {
			t.Fatalf("%d symbols are read back as %d", len(table.Symbols()), len(again.Symbols()))
		}
	})
}
