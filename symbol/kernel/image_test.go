package kernel

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"
	"github.com/ulikunitz/xz/lzma"

	"kprobe/arch"
)

// plainKernel is a kernel that is just its bytes, of some megabytes, with text
// at its beginning.
func plainKernel(t testing.TB, f form) (*image, []Symbol) {
	r := rand.New(rand.NewPCG(4, 4))
	syms := someSymbols(r, minSymbols+77, 0x10_0000, f.enc == percpuMixed)
	im := &image{form: f}
	for im.Len() < minImage { // text that packs well, and some that does not
		im.WriteString("push mov call ret nop ")
		im.word(r.Uint64(), 8)
	}
	im.write(syms, 0x10_0000)
	im.junk(r, 1<<16)
	return im, syms
}

// packer packs as the kernel's build does: into one stream.
func packer(t testing.TB, name string, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	with := func(w io.WriteCloser, err error) {
		if err == nil {
			_, err = w.Write(b)
		}
		if err == nil {
			err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tool := func(args ...string) {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Stdin, cmd.Stdout = bytes.NewReader(b), &out
		if err := cmd.Run(); err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
	switch name {
	case "gzip":
		with(gzip.NewWriter(&out), nil)
	case "xz":
		with(xz.NewWriter(&out))
	case "lzma":
		with(lzma.NewWriter(&out))
	case "zstd":
		with(zstd.NewWriter(&out))
	case "lz4":
		tool("lz4", "-l", "-9", "-c")
	case "bzip2":
		tool("bzip2", "-c")
	default:
		return b
	}
	return out.Bytes()
}

// A kernel is found in a boot image, however it was packed, and whatever else stands there.
func TestPacked(t *testing.T) {
	f := forms[9] // arm64: without percpu
	plain, syms := plainKernel(t, f)
	for _, name := range []string{"plain", "gzip", "xz", "lzma", "zstd", "lz4", "bzip2"} {
		t.Run(name, func(t *testing.T) {
			packed := packer(t, name, plain.Bytes())
			boot := bytes.Clone(packed)
			if name != "plain" {
				// A boot program, with something packed and something that only looks so,
				// before; the length of the kernel and a signature behind.
				boot = slices.Concat([]byte("MZ boot \x1f\x8b\x08 not packed BZh91AY&SY neither"), packer(t, "gzip", make([]byte, 5000)),
					packed, binary.LittleEndian.AppendUint32(nil, uint32(plain.Len())), []byte("signature"))
			}
			im, err := OpenImage(bytes.NewReader(boot), int64(len(boot)), f.arch())
			if err != nil {
				t.Fatal(err)
			}
			if got := im.Table.Symbols(); len(got) != len(syms) {
				t.Errorf("%d symbols, not %d", len(got), len(syms))
			}
			start := im.Table.Bounds().Start
			b := make([]byte, 32)
			if err := im.ReadAt(start+10, b); err != nil || !bytes.Equal(b, plain.Bytes()[10:42]) {
				t.Errorf("text: %q, %v", b, err)
			}
			if err := im.ReadAt(start-1, b); err == nil {
				t.Error("what is before the image was read")
			}
			if err := im.ReadAt(start+arch.Addr(plain.Len())-31, b); err == nil {
				t.Error("what is behind the image was read")
			}
		})
	}
}

func TestImageErrors(t *testing.T) {
	f := forms[9]
	plain, _ := plainKernel(t, f)
	lz4 := packer(t, "lz4", plain.Bytes())
	lzo := append([]byte("\x89LZO\x00\r\n\x1a\n"), make([]byte, 100)...)
	for _, tt := range []struct {
		b    []byte
		want string
	}{
		{nil, "no kernel: " + errNoTables.Error()},
		{make([]byte, 1<<20), "no kernel: " + errNoTables.Error()},
		{lzo, "no kernel: lzo data at 0x0: LZO is not known here"},
		{lz4[:len(lz4)/2], "no kernel: lz4 data at 0x0: damaged LZ4 data"},
	} {
		if _, err := OpenImage(bytes.NewReader(tt.b), int64(len(tt.b)), f.arch()); err == nil || err.Error() != tt.want {
			t.Errorf("%.20q: %v, not %s", tt.b, err, tt.want)
		}
	}
	exe, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer exe.Close()
	big := &arch.Arch{Name: "s390x", Order: binary.BigEndian, PtrSize: 8}
	if _, err := openPlain(exe, 1<<20, big); err == nil || !strings.Contains(err.Error(), "another machine") {
		t.Errorf("an ELF file of another machine: %v", err)
	}
}

// A vmlinux with .symtab: the same symbols are read as nm prints.
func TestELF(t *testing.T) {
	dir := t.TempDir()
	src := &strings.Builder{}
	src.WriteString("__asm__(\".globl _stext\\n_stext:\\n.weak weak\\nweak: nop\\n.set number,77\\n\");\n")
	for i := range minSymbols {
		if i%2 == 0 {
			src.WriteString("static ")
		}
		switch i % 8 {
		case 0, 1:
			src.WriteString("const ")
		}
		switch i % 4 {
		case 2, 3:
			src.WriteString("__attribute__((used)) int x" + itoa(i) + "(void) { return 1; }\n")
		default:
			src.WriteString("__attribute__((used)) int x" + itoa(i) + " = " + itoa(i%3) + ";\n")
		}
	}
	src.WriteString("int bss[1000]; void _start(void) {}\n")
	if err := os.WriteFile(dir+"/k.c", []byte(src.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	run("gcc", "-nostdlib", "-static", "-no-pie", "-o", dir+"/k", dir+"/k.c")
	f, err := os.Open(dir + "/k")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, _ := f.Stat()
	im, err := OpenImage(f, st.Size(), arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	checkTable(t, im.Table)
	var got []string
	for _, s := range im.Table.Symbols() {
		got = append(got, s.String())
	}
	want := strings.Split(strings.TrimSpace(run("nm", dir+"/k")), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("%d symbols, nm has %d; the first that differs: %q, nm has %q", len(got), len(want), got[i], want[i])
			}
		}
		t.Fatalf("%d symbols, nm has %d", len(got), len(want))
	}
	a, _ := im.Table.Addr("bss")
	b := []byte{1, 2, 3}
	if err := im.ReadAt(a+3000, b); err != nil || !bytes.Equal(b, []byte{0, 0, 0}) {
		t.Errorf("bss: %v, %v", b, err)
	}
	a, _ = im.Table.Addr("x0002")
	if err := im.ReadAt(a, b); err != nil || bytes.Equal(b, []byte{0, 0, 0}) {
		t.Errorf("text: %v, %v", b, err)
	}
}

func itoa(i int) string { return fmt.Sprintf("%04d", i) }

// The LZ4 decoder agrees with the tool, and no damage makes it panic or grow.
func FuzzLZ4(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 5))
	for _, n := range []int{1, 12, 13, 100, 70_000} {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(r.IntN(4))
		}
		packed := packer(f, "lz4", b)
		if plain, name, err := unpack(packed); name != "lz4" || err != nil || !bytes.Equal(plain, b) {
			f.Errorf("%d bytes: %s %v, %d bytes come back", n, name, err, len(plain))
		}
		f.Add(packed[8:])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if out, err := unlz4(b); err == nil && len(out) > lz4Block {
			t.Fatalf("%d bytes from a block", len(out))
		}
	})
}

// Damaged boot images are refused, or are as before but for the damage.
func FuzzImage(f *testing.F) {
	plain, _ := plainKernel(f, forms[3])
	var boots [][]byte
	for i, name := range []string{"plain", "gzip", "xz", "lzma", "zstd", "lz4", "bzip2"} {
		boots = append(boots, packer(f, name, plain.Bytes()))
		f.Add(uint8(i), []byte{})
		f.Add(uint8(i), []byte{8, 1, 0, 0, 99})
		f.Add(uint8(i), []byte{0, 0, 10, 0, 0xc5})
	}
	f.Fuzz(func(t *testing.T, which uint8, edits []byte) {
		b := damage(boots[int(which)%len(boots)], edits)
		im, err := OpenImage(bytes.NewReader(b), int64(len(b)), arch.AMD64)
		if err != nil {
			if len(edits) < 5 {
				t.Fatal(err)
			}
			return
		}
		checkTable(t, im.Table)
		im.ReadAt(im.Table.Bounds().Start, make([]byte, 100))
	})
}

// No header makes the ELF reader, or the one of EFI's header, panic or grow.
func FuzzHeaders(f *testing.F) {
	exe, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(exe[:1<<12])
	f.Add([]byte("MZ" + strings.Repeat("\x00", 0x3a) + "\x40\x00\x00\x00PE\x00\x00" + strings.Repeat("\x01", 48)))
	f.Fuzz(func(t *testing.T, b []byte) {
		if im, err := openPlain(bytes.NewReader(b), int64(len(b)), arch.AMD64); err == nil {
			checkTable(t, im.Table)
		}
		textOffset(bytes.NewReader(b))
	})
}
