package symbol

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"kprobe/arch"
)

// TestJITMap reads a map of this process as it grows: later code lies over older code, and text
// that is no line is passed over.
func TestJITMap(t *testing.T) {
	path := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	t.Cleanup(func() { os.Remove(path) })
	j := NewJIT(os.Getpid())
	write := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		j.looked = time.Time{}
	}
	at := func(addr arch.Addr, want string) {
		t.Helper()
		name, off, file, ok := j.At(addr)
		if got := fmt.Sprintf("%s+%#x", name, off); ok != (want != "") || ok && (got != want || file != path) {
			t.Errorf("%v is %s of %s, want %q", addr, got, file, want)
		}
	}
	write("nonsense\n1000 100 first one\n1200 40 second\n1400 fffffffffffffff0 beyond\n1500 10 hal")
	at(0x1000, "first one+0x0")
	at(0x10ff, "first one+0xff")
	at(0x1100, "")
	at(0x1239, "second+0x39")
	at(0x1504, "")
	write("f\n10f0 20 over\n0x1600 0x8 prefixed\n")
	at(0x1504, "half+0x4")
	at(0x10ef, "first one+0xef")
	at(0x10f1, "over+0x1")
	at(0x1607, "prefixed+0x7")
	write("1000 80 again\n")
	at(0x1010, "again+0x10")
	at(0x1090, "first one+0x90")
}

// TestJITTrust reads no map that is a link, which may lead anywhere.
func TestJITTrust(t *testing.T) {
	path := fmt.Sprintf("/tmp/perf-%d.map", os.Getpid())
	real := t.TempDir() + "/map"
	if err := os.WriteFile(real, []byte("1000 100 secret\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(real, path); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	if name, _, _, ok := NewJIT(os.Getpid()).At(0x1000); ok {
		t.Errorf("a link was read: %s", name)
	}
}

// TestJITDump reads a jitdump file in two parts, of which the first ends in the middle of a record.
func TestJITDump(t *testing.T) {
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		b := order.AppendUint32(nil, dumpMagic)
		for _, n := range []uint32{1, dumpHead + 8, 62, 0, 4711} {
			b = order.AppendUint32(b, n)
		}
		b = append(b, make([]byte, 8+8+8)...) // time, flags, and fields that a later version may add
		record := func(id uint32, body []byte) {
			b = order.AppendUint32(b, id)
			b = order.AppendUint32(b, uint32(recordHead+len(body)))
			b = append(append(b, make([]byte, 8)...), body...)
		}
		words := func(ns ...uint64) (out []byte) {
			out = make([]byte, 8)
			for _, n := range ns {
				out = order.AppendUint64(out, n)
			}
			return out
		}
		record(codeLoad, append(words(0x1000, 0x1000, 0x40, 1), "compiled\x00\x90\x90"...))
		record(2, make([]byte, 24))
		half := len(b) + 20
		record(codeMove, words(0x3000, 0x1000, 0x3000, 0x40, 1))

		j, f := NewJIT(0), &jitFile{path: "dump", dump: true}
		j.readDump(bufio.NewReader(bytes.NewReader(b[:half])), f)
		if len(j.codes) != 1 || j.codes[0].name != "compiled" || j.codes[0].start != 0x1000 || j.codes[0].end != 0x1040 {
			t.Fatalf("%v: %+v", order, j.codes)
		}
		j.readDump(bufio.NewReader(bytes.NewReader(b[f.at:])), f)
		if len(j.codes) != 2 || j.codes[1].name != "compiled" || j.codes[1].start != 0x3000 {
			t.Errorf("%v: %+v", order, j.codes)
		}
		if f.at != int64(len(b)) {
			t.Errorf("%v: %d bytes are read of %d", order, f.at, len(b))
		}
		// Nothing that is no dump does harm, wherever it breaks off.
		for i := range b {
			bad := bytes.Clone(b)
			bad[i] ^= 0xff
			NewJIT(0).readDump(bufio.NewReader(bytes.NewReader(bad)), &jitFile{dump: true})
			NewJIT(0).readDump(bufio.NewReader(bytes.NewReader(b[:i])), &jitFile{dump: true})
		}
	}
}
