package proc_test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/proc"
	"kprobe/internal/testprog"
)

// A process whose first thread has ended is read by another one.
func TestProcessWithoutItsFirstThread(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "lives", "-O2"))
	of := proc.Process(p.Pid)
	start, exe := of.Start(), readlink(t, of)
	p.Send("leader_leaves")
	p.Expect("done")
	testprog.Until(t, "the first thread ends", p.Pid, func() bool { return !proc.Thread(p.Pid).HasMemory() })
	if got := of.Start(); got != start || start == 0 {
		t.Errorf("started at %d, not %d", got, start)
	}
	if got := readlink(t, of); got != exe {
		t.Errorf("it executes %s, not %s", got, exe)
	}
	for _, name := range []string{"maps", "auxv", "cmdline", "status"} {
		if b, err := of.Read(name); err != nil || len(b) == 0 {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	f, err := of.Open("mem")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	maps, err := of.Read("maps")
	if err != nil {
		t.Fatal(err)
	}
	if at := firstAddress(t, string(maps)); at != 0 {
		var magic [4]byte
		if _, err := f.ReadAt(magic[:], at); err != nil || string(magic[1:]) != "ELF" {
			t.Errorf("at %#x: %q, %v", at, magic, err)
		}
	}
}

// A process that has ended has no start, and its files are errors.
func TestEndedProcess(t *testing.T) {
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	of := proc.Process(cmd.Process.Pid)
	testprog.Until(t, "it is a zombie", int(of), func() bool { return of.Start() == 0 })
	if _, err := of.Readlink("exe"); err == nil {
		t.Error("a zombie has a program")
	}
	if of.WithMemory() != 0 {
		t.Error("a zombie has memory")
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

func readlink(t *testing.T, of proc.Process) string {
	t.Helper()
	exe, err := of.Readlink("exe")
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

func firstAddress(t *testing.T, maps string) (at int64) {
	t.Helper()
	from, _, _ := strings.Cut(maps, "-")
	for _, c := range from {
		at = at<<4 | int64(strings.IndexRune("0123456789abcdef", c))
	}
	return at
}

// No other package makes names below /proc/PID: such a name is the first thread's, whether that
// lives or not.
func TestOneWayIntoProc(t *testing.T) {
	named := regexp.MustCompile(`"/proc/%d|"/proc/" ?\+`)
	may := map[string]string{
		"internal/proc/proc.go":          "",
		"target/gdbremote/program.go":    "a stub's files, on its host",
		"script/cgroup.go":               "a group outlives the thread",
		"internal/testprog/leftovers.go": "the tests' own eyes",
	}
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(root, path)
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || strings.HasPrefix(filepath.ToSlash(name), "test/") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		_, allowed := may[filepath.ToSlash(name)]
		if in := named.FindIndex(text); in != nil && !allowed {
			t.Errorf("%s:%d makes a name below /proc/PID by itself: kprobe/internal/proc does it by a thread that lives", name, 1+strings.Count(string(text[:in[0]]), "\n"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A field of a stat file is the same, however it is read, and whatever the program is named.
func TestStatField(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "lives", "-O2"))
	for _, text := range []string{
		"7 (a b) c) S 1 2 3 ) 5\n", "7 (a) S", "7 (a)", "7 (a) ", "7 (a\n) S 1", "", "7", ")", ") ",
		string(read(t, fmt.Sprintf("/proc/%d/stat", p.Pid))), string(read(t, "/proc/self/stat")),
	} {
		want := proc.Stat([]byte(text))
		for i := range len(want) + 3 {
			field := ""
			if i < len(want) {
				field = want[i]
			}
			if got := proc.StatField([]byte(text), i+3); string(got) != field {
				t.Errorf("%q: field %d is %q, want %q", text, i+3, got, field)
			}
		}
	}
}

func read(t *testing.T, file string) []byte {
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
