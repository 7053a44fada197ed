package event

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"kprobe/arch"
)

// Text next to a page that is not mapped, in a real process: ours.
func TestRealMemory(t *testing.T) {
	page := make([]byte, os.Getpagesize())
	copy(page, "start\x00")
	copy(page[len(page)-6:], "end!\x00x")
	mem, addr := realPage(t, page)
	end := addr + arch.Addr(len(page))
	// x runs into the hole, w is half in it, z is NULL.
	c, err := Compile(parse(t, `p f s=+0(%di):string e=-6(%si):string x=-1(%si):string `+
		`w=-4(%si):x64 a=-2(%si):x8[4] z=@0:string`).Args, arch.AMD64, nil)
	if err != nil {
		t.Fatal(err)
	}
	var regs arch.Regs
	regs[arch.DI], regs[arch.SI] = uint64(addr), uint64(end)
	var got []byte
	for _, v := range c.Run(&Context{Regs: &regs, Mem: fileMemory{mem}}) {
		got = v.AppendText(append(append(append(got, ' '), v.Name...), '='))
	}
	const want = ` s="start" e="end!" x=(fault) w=(fault) a={0x0,0x78,(fault),(fault)} z=(fault)`
	if string(got) != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
}

type fileMemory struct{ f *os.File }

func (m fileMemory) ReadAt(addr arch.Addr, p []byte) error {
	_, err := m.f.ReadAt(p, int64(addr))
	return err
}

// realPage maps a page with the given content, and a hole behind it, into this
// process, and gives its address and this process's memory. The hole is the
// part of a mapping that is behind its file's end: no right makes it readable.
// The address is got from print, so that no pointer is made a number here.
func realPage(t *testing.T, page []byte) (*os.File, arch.Addr) {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "page")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.Write(page); err != nil {
		t.Fatal(err)
	}
	b, err := syscall.Mmap(int(file.Fd()), 0, 2*len(page), syscall.PROT_READ, syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	mem, err := os.Open("/proc/self/mem")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mem.Close() })
	var addr uint64
	if _, err := fmt.Sscanf(fmt.Sprintf("%p", b), "0x%x", &addr); err != nil {
		t.Fatal(err)
	}
	return mem, arch.Addr(addr)
}
