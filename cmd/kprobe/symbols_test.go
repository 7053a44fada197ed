package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/symbol/kernel"
)

// Where no memory is shared, and the stub is far away, a file says what the kernel's symbols are: each kind
// of them serves a command from its beginning to its end.
func TestKernelSymbolsFromFiles(t *testing.T) {
	v := vmtest.Boot(t, vm.Config{})
	list, err := v.Run("cat /proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	im := openImage(t, v.Kernel.Image())
	var linked bytes.Buffer
	for _, s := range im.Table.Symbols() {
		fmt.Fprintln(&linked, s.String())
	}
	place := overTCP(t, strings.TrimPrefix(v.Stub(), "unix:"))
	dir := t.TempDir()
	for name, content := range map[string][]byte{"System.map": linked.Bytes(), "vmlinux": elfOf(t, im), "kallsyms": []byte(list), "bzImage": nil} {
		file := filepath.Join(dir, name)
		if content == nil {
			file = v.Kernel.Image()
		} else if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		k := testprog.StartCmd(t, tool(t, "trace", "-k", place, "--symbols", file, "-n", "1", "p:synced ksys_sync"))
		ended, over := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			for {
				select {
				case <-ended:
					return
				case <-time.After(100 * time.Millisecond):
					v.Run("sync")
				}
			}
		}()
		r := k.Result()
		close(ended)
		<-over
		if r.Status != 0 || len(r.Lines) != 1 || !strings.Contains(r.Lines[0], " synced: (ksys_sync+0x0") {
			t.Errorf("%s: %s", name, r)
		}
	}
	// One of another kernel is refused, and nothing is left behind.
	other := bytes.ReplaceAll(linked.Bytes(), []byte(" linux_banner\n"), []byte(" linux_banter\n"))
	if err := os.WriteFile(filepath.Join(dir, "other"), other, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, run(t, "plan", "-k", place, "--symbols", filepath.Join(dir, "other"), "p ksys_sync"), "there is no linux_banner")
	if out, err := v.Run("sync; echo goes on"); err != nil || !strings.Contains(out, "goes on") {
		t.Errorf("the guest: %q, %v", out, err)
	}
}

func openImage(t *testing.T, path string) *kernel.Image {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	im, err := kernel.OpenImage(f, st.Size(), arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	return im
}

// elfOf is a vmlinux of one segment: the kernel's memory as it was linked.
func elfOf(t *testing.T, im *kernel.Image) []byte {
	t.Helper()
	start, ok1 := im.Table.Addr("_text")
	end, ok2 := im.Table.Addr("__bss_start")
	if !ok1 || !ok2 || end <= start {
		t.Fatal("the kernel has no bounds")
	}
	const page = 4096
	memory := make([]byte, (end-start+page-1)/page*page)
	for at := 0; at < len(memory); at += page {
		im.ReadAt(start+arch.Addr(at), memory[at:][:page]) // between its parts there are holes
	}
	var b bytes.Buffer
	b.WriteString("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00")
	for _, part := range []any{
		[]uint16{2, 62}, uint32(1), []uint64{uint64(start), 64, 0}, uint32(0), []uint16{64, 56, 1, 64, 0, 0},
		[]uint32{1, 7}, []uint64{page, uint64(start), uint64(start), uint64(len(memory)), uint64(len(memory)), page},
		make([]byte, page-64-56), memory,
	} {
		if err := binary.Write(&b, binary.LittleEndian, part); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// overTCP makes a socket reachable by TCP.
func overTCP(t *testing.T, path string) (place string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("unix", path)
			if err != nil {
				near.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
				go func() {
					io.Copy(way[0], way[1])
					way[0].Close()
				}()
			}
		}
	}()
	return "tcp:" + l.Addr().String()
}
