package source

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// builds are the ways in which the programs of testdata are compiled.
var builds = []struct {
	name string
	cc   []string
}{
	{"gcc -O0 dwarf4", []string{"gcc", "-O0", "-gdwarf-4"}},
	{"gcc -O2 dwarf4", []string{"gcc", "-O2", "-gdwarf-4"}},
	{"gcc -O0 dwarf5", []string{"gcc", "-O0", "-gdwarf-5"}},
	{"gcc -O2 dwarf5", []string{"gcc", "-O2", "-gdwarf-5"}},
	{"gcc -O2 zlib", []string{"gcc", "-O2", "-g", "-gz=zlib"}},
	{"gcc -O3 static", []string{"gcc", "-O3", "-g", "-static"}},
	{"clang -O0 dwarf5", []string{"clang", "-O0", "-gdwarf-5"}},
	{"clang -O2 dwarf4", []string{"clang", "-O2", "-gdwarf-4"}},
	{"clang -O2 dwarf5", []string{"clang", "-O2", "-gdwarf-5"}},
}

// build compiles a program of testdata and gives its path.
func build(t *testing.T, cc []string, name string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), strings.TrimSuffix(name, filepath.Ext(name)))
	testprog.Compile(t, out, cc, filepath.Join("testdata", name))
	return out
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	b, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v\n%s", name, args, err, b)
	}
	return string(b)
}

func open(t *testing.T, path string) *File {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	f, err := Open(r, Options{Split: func(dir, name string) (io.ReaderAt, error) {
		if name == "" {
			return os.Open(path + ".dwp")
		}
		if !filepath.IsAbs(name) {
			name = filepath.Join(dir, name)
		}
		return os.Open(name)
	}})
	if err != nil {
		t.Fatal(err)
	}
	return f
}
