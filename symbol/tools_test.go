package symbol

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// The tests judge the package by real files, those of the system and those
// built here, and by what binutils and the Go tools say of them.

const libcPath = "/lib/x86_64-linux-gnu/libc.so.6"

// run runs a command that the tests cannot do without.
func run(t testing.TB, name string, args ...string) []byte {
	t.Helper()
	cmd := exec.Command(name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out
}

// need skips a test whose compiler is not installed.
func need(t testing.TB, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err != nil {
		t.Skipf("%s is not installed", tool)
	}
}

// write puts text in a file of the test's own directory.
func write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// build compiles source text with a compiler and flags, and returns the path.
func build(t testing.TB, compiler, name, text string, flags ...string) string {
	t.Helper()
	need(t, compiler)
	out := filepath.Join(t.TempDir(), "prog")
	testprog.CompileText(t, out, []string{compiler}, name, text, flags...)
	return out
}

func open(t testing.TB, path string, debug bool) *File {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	opt := &Options{Path: path}
	if debug {
		opt.Debug = DebugFinder("")
	}
	f, err := Open(r, opt)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func openBytes(t testing.TB, b []byte) *File {
	t.Helper()
	f, err := Open(bytes.NewReader(b), nil)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func hexa(t testing.TB, s string) uint64 {
	t.Helper()
	v, err := strconv.ParseUint(strings.TrimPrefix(s, "0x"), 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func lines(b []byte) []string {
	var out []string
	s := bufio.NewScanner(bytes.NewReader(b))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		out = append(out, s.Text())
	}
	return out
}

// place is a name at an address, as oracles give them.
type place struct {
	name string
	addr uint64
}

// nm lists the functions that binutils' nm finds in an unstripped file.
func nm(t testing.TB, path string) map[place]bool {
	t.Helper()
	found := map[place]bool{}
	for _, line := range lines(run(t, "nm", path)) {
		f := strings.Fields(line)
		if len(f) == 3 && strings.ContainsAny(f[1], "tTwWi") && f[2][0] != '.' {
			found[place{f[2], hexa(t, f[0])}] = true
		}
	}
	if len(found) == 0 {
		t.Fatalf("nm finds nothing in %s", path)
	}
	return found
}

func copyFile(t testing.TB, to, from string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
}

// withoutSections is an ELF64 file as if all section headers were stripped.
func withoutSections(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[0x28:0x30]) // e_shoff
	clear(b[0x3c:0x40]) // e_shnum, e_shstrndx
	return b
}

// failingReader stands for a file that cannot be read any more.
type failingReader struct{}

func (failingReader) ReadAt([]byte, int64) (int, error) { return 0, io.ErrUnexpectedEOF }
