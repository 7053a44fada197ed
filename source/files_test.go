package source

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// TestFileNames holds that a file has one name, however it was named to the compiler and wherever that ran: its full one, or
// the one that the compiler was told to put in its place.
func TestFileNames(t *testing.T) {
	const text = "static int twice(int n) { return n * 2; }\nint main(int argc, char **argv)\n{\n\treturn twice(argc) - 2;\n}\n"
	compile := func(cc string, in, name string, flags ...string) *File {
		path, err := exec.LookPath(cc)
		testprog.Need(t, cc, err == nil)
		dir := t.TempDir()
		for _, folder := range []string{"build", "sub"} {
			if err := os.Mkdir(filepath.Join(dir, folder), 0o777); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "sub/names.c"), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		run := func(args ...string) {
			for i, a := range args {
				args[i] = os.Expand(a, func(string) string { return dir })
			}
			c := exec.Command(path, args...)
			c.Dir = filepath.Join(dir, in)
			if b, err := c.CombinedOutput(); err != nil {
				t.Fatalf("%v: %v\n%s", c.Args, err, b)
			}
		}
		run(slices.Concat(flags, []string{"-g", "-c", "-o", "names.o", name})...)
		// As packages are built: no option for the compiler is given when it links.
		run(slices.Concat(slices.DeleteFunc(flags, func(f string) bool { return strings.HasPrefix(f, "-ffile") }), []string{"-g", "-o", "names", "names.o"})...)
		return open(t, filepath.Join(dir, in, "names"))
	}
	names := []string{"$DIR/sub/names.c", "../sub/names.c", "./../sub/names.c"}
	ways := [][]string{{"-O2"}, {"-O2", "-gdwarf-4"}, {"-O2", "-flto"}, {"-O2", "-flto", "-ffile-prefix-map=$DIR=."},
		{"-O0"}, {"-O2", "-ffile-prefix-map=$DIR=."}, {"-O2", "-flto", "-ffile-prefix-map=$DIR=/usr/src/names-1"}}
	if testing.Short() {
		names, ways = names[:2], ways[:4]
	}
	for _, cc := range []string{"gcc", "clang"} {
		for _, name := range names {
			for _, flags := range ways {
				if cc == "clang" && flags[len(flags)-1] == "-flto" {
					flags = append(flags, "-fuse-ld=lld")
				} else if cc == "clang" && len(flags) > 2 && flags[1] == "-flto" {
					continue // nothing is made when it links
				}
				f := compile(cc, "build", name, append([]string{}, flags...)...)
				for _, ask := range []string{"names.c", "sub/names.c"} {
					sites, err := f.Line(ask, 4)
					if err != nil || len(sites) != 1 || sites[0].Func != "main" {
						t.Errorf("%s %v %s: %s:4 is %+v, %v", cc, flags, name, ask, sites, err)
						continue
					}
					if got, line := f.LineOf(sites[0].Addr); line != 4 || filepath.Base(got) != "names.c" || !f.HasFile(got) {
						t.Errorf("%s %v %s: it is %s:%d", cc, flags, name, got, line)
					} else if fns, err := f.Function("main", got); err != nil || fns[0].File != got {
						t.Errorf("%s %v %s: main is of %+v, %v; its line of %s", cc, flags, name, fns, err, got)
					}
				}
			}
		}
	}
}
