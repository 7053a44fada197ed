//go:build linux

package guardian

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// A part of a file is copied to its place, and nothing else: by the kernel, and of a file from which the
// kernel sends nothing.
func TestCopyPart(t *testing.T) {
	all := bytes.Repeat([]byte("0123456789abcde\n"), 1<<12)
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, all, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{plain, "/proc/self/environ"} {
		want, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		from, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		to, err := inMemory("copy")
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		at, end := len(want)/3, len(want)-7
		if err := copyPart(to, from, int64(at), int64(end-at)); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, end+1)
		n, _ := to.ReadAt(got, 0)
		if n != end || !bytes.Equal(got[at:end], want[at:end]) || len(bytes.Trim(got[:at], "\x00")) > 0 {
			t.Errorf("%s: %d bytes of %d, from %d on", name, n, end, at)
		}
	}
}
