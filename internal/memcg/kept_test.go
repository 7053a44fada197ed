package memcg

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A file that is kept says what it says now. It is opened once, and anew where another has its name and the first cannot be read.
func TestFilesAreKept(t *testing.T) {
	k := files{open: make(map[string]int)}
	name := filepath.Join(t.TempDir(), "limit")
	says := func(want string) {
		t.Helper()
		if b, err := k.read(name, 8); err != nil || string(b) != want {
			t.Errorf("it says %q, %v, want %q", b, err, want)
		}
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("1")
	says("1")
	if len(k.open) != 0 {
		t.Errorf("%d files are kept for nobody", len(k.open))
	}
	k.use()
	says("1")
	write("a longer one than there is room for")
	says("a longer one than there is room for")
	if err := os.Remove(name); err != nil {
		t.Fatal(err)
	}
	says("a longer one than there is room for") // it is open
	k.drop(name)
	if _, err := k.read(name, 8); !os.IsNotExist(err) {
		t.Errorf("a file that is gone: %v", err)
	}
	for i := range 3 * most {
		name = filepath.Join(t.TempDir(), fmt.Sprint(i))
		write(strings.Repeat("x", i))
		says(strings.Repeat("x", i))
	}
	if len(k.open) != most {
		t.Errorf("%d files are kept, want %d", len(k.open), most)
	}
	k.leave()
	if len(k.open) != 0 {
		t.Errorf("%d files are kept when nobody uses them", len(k.open))
	}
}
