package lifeline

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/arch"
	"kprobe/internal/testprog"
)

func TestHandlerIsItsSource(t *testing.T) {
	for _, tt := range []struct {
		machine            *Machine
		tools, name, flag  string
		restorer, returner []byte
	}{
		{AMD64, "", "amd64_trap.S", "-m64", []byte{0xb8, 0x0f, 0, 0, 0, 0x0f, 0x05}, []byte{0x48, 0x8d, 0xa4, 0x24, 0x78, 0xff, 0xff, 0xff}},
		{I386, "", "i386_trap.S", "-m32", []byte{0xb8, 0xad, 0, 0, 0, 0xcd, 0x80}, []byte{0x8d, 0x64, 0x24, 0xfc}},
		{RISCV64, "riscv64-linux-gnu-", "riscv64_trap.S", "-g0", []byte{0x93, 0x08, 0xb0, 0x08, 0x73, 0, 0, 0}, []byte{0x79, 0x71, 0x16, 0xe0}},
		{PPC64LE, "powerpc64le-linux-gnu-", "ppc64le_trap.S", "-g0", []byte{0xac, 0, 0, 0x38, 2, 0, 0, 0x44}, []byte{0xb0, 0xfd, 0x8c, 0x39}},
		{S390X, "s390x-linux-gnu-", "s390x_trap.S", "-march=z10", []byte{0x0a, 0xad}, []byte{0xc0, 0x50}},
		{ARM64, "aarch64-linux-gnu-", "arm64_trap.S", "-g0", []byte{0x68, 0x11, 0x80, 0xd2, 1, 0, 0, 0xd4}, []byte{0xff, 0xc3, 0x00, 0xd1}},
	} {
		as, err := exec.LookPath(tt.tools + "gcc")
		testprog.Need(t, tt.tools+"gcc assembles the handler", err == nil)
		dir := t.TempDir()
		object, binary := filepath.Join(dir, "trap.o"), filepath.Join(dir, "trap.bin")
		for _, c := range [][]string{
			{as, tt.flag, "-c", filepath.Join("testdata", tt.name), "-o", object},
			{tt.tools + "objcopy", "-O", "binary", "-j", ".text", object, binary},
		} {
			if out, err := exec.Command(c[0], c[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", c, err, out)
			}
		}
		image, err := os.ReadFile(binary)
		if err != nil {
			t.Fatal(err)
		}
		code := tt.machine.handler
		if want := image[offCode:]; !bytes.Equal(code, want) {
			for i := 0; i < len(want); i += 16 {
				fmt.Printf("\t")
				for _, c := range want[i:min(i+16, len(want))] {
					fmt.Printf("0x%02x, ", c)
				}
				fmt.Println()
			}
			t.Errorf("%s: the bytes are not those of the source; see above for what they should be", tt.name)
		}
		if len(code) > handlerRoom {
			t.Errorf("%s: the handler has %d bytes, room is for %d", tt.name, len(code), handlerRoom)
		}
		if !bytes.HasPrefix(code[restorerAt:], tt.restorer) {
			t.Errorf("%s: the restorer is elsewhere", tt.name)
		}
		if !bytes.HasPrefix(code[returnerAt:], tt.returner) {
			t.Errorf("%s: the returner is elsewhere", tt.name)
		}
	}
}

// memory is a target's, for Read.
type memory map[arch.Addr]byte

func (m memory) write(a arch.Addr, p []byte) {
	for i, b := range p {
		m[a+arch.Addr(i)] = b
	}
}

func (m memory) read(a arch.Addr, p []byte) error {
	for i := range p {
		p[i] = m[a+arch.Addr(i)]
	}
	return nil
}

func TestWhatIsWrittenIsFound(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range 20 {
		m := make(memory)
		tr := NewTrap(AMD64, 0x10000, rnd.Uint64())
		old := [SigactSize]byte{1, 2, 3}
		m.write(tr.Base, tr.Image(old))
		var es []Entry
		seen := map[arch.Addr]Entry{}
		for range rnd.IntN(50) {
			e := Entry{Addr: arch.Addr(rnd.Uint32()), Slot: arch.Addr(rnd.Uint32()), Original: [7]byte{byte(rnd.Uint32())}, Len: byte(rnd.Uint32N(8))}
			if _, dup := seen[e.Addr]; !dup {
				seen[e.Addr] = e
				es = append(es, e)
			}
		}
		for _, w := range tr.SetEntries(0x900000, es) {
			m.write(w.Addr, w.New)
		}
		for _, w := range tr.SetReturn(0x1234) {
			m.write(w.Addr, w.New)
		}
		driven := Driven{rnd.Uint64(), rnd.Uint64(), rnd.Uint64()}
		w := Drive(arch.AMD64, tr.Base, driven)
		m.write(w.Addr, w.New)
		m.write(tr.FrameSlot(tr.FrameIndex(0x7fff1000)), Frame(arch.AMD64, 0x7fff1000, 0x4444))
		f, err := Read(arch.AMD64, tr.Base, m.read)
		if err != nil {
			t.Fatal(err)
		}
		if f.ID != tr.ID || f.Return != 0x1234 || f.Old != old || len(f.Entries) != len(es) || f.Driven != driven || f.Frames[0x7fff1000] != 0x4444 || len(f.Frames) != 1 {
			t.Fatalf("found %+v", f)
		}
		for i, e := range f.Entries {
			if seen[e.Addr] != e || i > 0 && f.Entries[i-1].Addr >= e.Addr {
				t.Fatalf("entry %d is %+v", i, e)
			}
		}
	}
}

func TestForeignMemoryIsRefused(t *testing.T) {
	if f, err := Read(arch.AMD64, 0x1000, make(memory).read); err == nil {
		t.Errorf("zeros were taken for %+v", f)
	}
}
