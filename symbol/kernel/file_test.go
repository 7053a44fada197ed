package kernel

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/vm"
)

var amd64Moves = &Moves{Start: 0xffffffff80000000, End: 0xffffffffc0000000, Step: 2 << 20}

// Every kind of file gives the running kernel's symbols, to the last; one of another
// kernel is refused by its name, and why.
func testFile(t *testing.T, v *vm.VM, k *Kernel, im *Image) {
	boot, err := os.ReadFile(v.Kernel.Image())
	if err != nil {
		t.Fatal(err)
	}
	var plain []byte // vmlinux, without its symbols
	for _, at := range packed(boot) {
		if b, _, _ := unpack(boot[at:]); len(b) > minImage {
			plain = b
			break
		}
	}
	list := func(tab *Table, change func([]Symbol) []Symbol) []byte {
		var b bytes.Buffer
		syms := slices.Clone(tab.Symbols())
		if change != nil {
			syms = change(syms)
		}
		for _, s := range syms {
			fmt.Fprintln(&b, s.String())
		}
		return b.Bytes()
	}
	banner, _ := im.Table.Addr("linux_banner")
	said := (&view{mem: im, arch: arch.AMD64}).cstring(banner, 512)
	for _, tt := range []struct {
		name string
		b    []byte
		want string // "" for the running kernel's
	}{
		{"vmlinuz", boot, ""},
		{"vmlinux", plain, ""},
		{"System.map", list(im.Table, nil), ""},
		{"kallsyms", []byte(run(t, v, "cat /proc/kallsyms")), ""},
		{"kallsyms of another boot", list(k.Table().Slide(32<<20), nil), ""},

		{"of another build", bytes.ReplaceAll(plain, []byte(said[:20]), []byte(said[:19]+"x")), `the file is of "` + said[:19] + "x"},
		{"of another build id", flip(plain, im, "__start_notes", 20), "the build id is another"},
		{"of another configuration", list(im.Table, func(all []Symbol) []Symbol {
			for i := range all {
				if all[i].Name == "filp_open" || all[i].Name == "filp_close" {
					all[i].Addr += 16
				}
			}
			return all
		}), "is elsewhere"},
		{"of another version", list(im.Table, func(all []Symbol) []Symbol {
			for i := range all {
				if all[i].Addr >= im.Table.Symbols()[len(all)/2].Addr {
					all[i].Addr += 16
				}
			}
			return all
		}), "no kernel that runs there has its banner"},
		{"of functions", list(im.Table, func(all []Symbol) []Symbol {
			return slices.DeleteFunc(all, func(s Symbol) bool { return !s.Code() })
		}), "there is no linux_banner"},
		{"without exports", list(im.Table, func(all []Symbol) []Symbol {
			return slices.DeleteFunc(all, func(s Symbol) bool { return strings.HasPrefix(s.Name, "__ksymtab") })
		}), "nothing proves that they are"},
		{"hidden", []byte("0000000000000000 T _text\n0000000000000000 T _stext\n"), "kptr_restrict"},
		{"garbage", boot[:1<<20], "no kernel"},
	} {
		name := filepath.Join(t.TempDir(), strings.ReplaceAll(tt.name, " ", "-"))
		if err := os.WriteFile(name, tt.b, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := OpenFile(name, arch.AMD64)
		var got *Table
		if err == nil {
			got, err = f.Place(k.mem, arch.AMD64, amd64Moves)
		}
		switch {
		case tt.want != "":
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v, want %s", tt.name, err, tt.want)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.name, err)
		default:
			// Aliases may come in another order from a list.
			if a, b := lines(got), lines(k.Table()); !slices.Equal(a, b) {
				t.Errorf("%s: %d symbols are not the kernel's %d", tt.name, len(a), len(b))
			}
		}
	}
}

func lines(t *Table) (all []string) {
	for _, s := range t.Symbols() {
		all = append(all, s.String())
	}
	slices.Sort(all)
	return all
}

// flip is a kernel with one bit changed, at an offset from a symbol.
func flip(plain []byte, im *Image, symbol string, off int) []byte {
	at, _ := im.Table.Addr(symbol)
	b := bytes.Clone(plain)
	for _, p := range im.parts {
		if d := uint64(at) + uint64(off) - p.addr; d < p.file {
			b[p.off+int64(d)] ^= 1
		}
	}
	return b
}
