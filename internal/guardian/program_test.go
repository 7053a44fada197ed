//go:build linux

package guardian_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/lifeline"
	"kprobe/internal/testprog"
)

// A user's program that imports this project. Its packages say when they are initialised: one is a
// library, one comes first in the order of Go's linker, and one is main.
var userProgram = map[string]string{
	"go.mod": "module example.com/aaa\n",
	"first/first.go": `package first

import "os"

var Said = Say("first")

func Say(who string) bool {
	f, err := os.OpenFile(os.Getenv("SAID"), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		panic(err)
	}
	defer f.Close()
	_, err = f.WriteString(who + "\n")
	return err == nil
}

func init() { Say("first's init") }
`,
	"main.go": `package main

import (
	"fmt"
	"os"
	"strconv"

	"example.com/aaa/first"
	"kprobe"
	"kprobe/target/ptrace"
)

var _ = first.Say("main")

func init() { first.Say("main's init") }

func main() {
	pid, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	p, err := ptrace.Attach(pid)
	if err != nil {
		panic(err)
	}
	s, err := kprobe.Open(p, nil)
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"ret_fib", "ret_nested"} {
		k := &kprobe.Kprobe{SymbolName: name, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
		if err := s.RegisterKprobe(k); err != nil {
			panic(err)
		}
	}
	fmt.Println("armed")
	fmt.Scanln()
	if err := s.Close(); err != nil {
		panic(err)
	}
}
`}

// buildUser builds the program as a module of its own.
func buildUser(t *testing.T, flags ...string) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range userProgram {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		if name == "go.mod" { // the project's own requirements, and the project
			mod, err := os.ReadFile(filepath.Join(root, name))
			if err != nil {
				t.Fatal(err)
			}
			_, rest, _ := strings.Cut(string(mod), "\n")
			text += rest + "\nrequire kprobe v0.0.0\nreplace kprobe => " + root + "\n"
		}
		if err := os.WriteFile(at, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "go.sum"), sum, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "user")
	cmd := exec.Command("go", append(append([]string{"build", "-mod=mod"}, flags...), "-o", out, ".")...)
	cmd.Dir = dir
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, b)
	}
	return out
}

// The packages of a program that imports this project are initialised once, whatever becomes of it;
// and its guardian does its work.
func TestProgramIsNotInitialisedAgain(t *testing.T) {
	for _, build := range []struct {
		name  string
		flags []string
	}{
		{"plain", nil},
		{"with C's linker", []string{"-ldflags=-linkmode=external"}},
		{"stripped", []string{"-trimpath", "-ldflags=-s -w"}},
		{"position independent", []string{"-buildmode=pie"}},
	} {
		if testing.Short() && build.name != "plain" {
			continue // they link with all of C's symbols, or compile the standard library once more
		}
		t.Run(build.name, func(t *testing.T) {
			program := buildUser(t, build.flags...)
			for _, end := range []string{"closed", "killed"} {
				target := testprog.Start(t, testprog.Build(t, "rets", "-O2"))
				want := strings.Join(target.Round("12"), "\n")
				said := filepath.Join(t.TempDir(), "said")
				session(t, program, target.Pid, said, end)
				if got := strings.Join(target.Round("12"), "\n"); got != want {
					t.Errorf("%s: the target's results differ:\n%s\nand before:\n%s", end, got, want)
				}
				testprog.Restored(t, target.Pid, lifeline.Journals)
				b, err := os.ReadFile(said)
				if err != nil {
					t.Fatal(err)
				}
				if got, want := string(b), "first\nfirst's init\nmain\nmain's init\n"; got != want {
					t.Errorf("%s: it was initialised again:\n%s", end, got)
				}
			}
		})
	}
}

// session runs the program on a process until its probes are in place, and ends it.
func session(t *testing.T, program string, pid int, said, end string) {
	t.Helper()
	cmd := exec.Command(program, fmt.Sprint(pid))
	cmd.Env = append(os.Environ(), "SAID="+said)
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if line == "armed\n" {
		guardianIs(t, cmd.Process.Pid, "kprobe-guardian")
	}
	if end == "killed" {
		cmd.Process.Kill()
	}
	in.Close()
	cmd.Wait() // for the guardian too, which has its standard error
	if line != "armed\n" || complaints.Len() > 0 {
		t.Fatalf("%q, and: %s", line, &complaints)
	}
}

// guardianIs checks the name of the one child of a controller.
func guardianIs(t *testing.T, controller int, name string) {
	t.Helper()
	found := ""
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", controller))
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for _, pid := range strings.Fields(string(pids)) {
			threads, _ := filepath.Glob("/proc/" + pid + "/task/*/comm")
			for _, thread := range threads {
				if comm, err := os.ReadFile(thread); err == nil && string(comm) != name+"\n" {
					t.Errorf("a thread is called %q", comm)
				}
			}
			comm, _ := os.ReadFile("/proc/" + pid + "/comm")
			found += string(comm)
		}
	}
	if found != name+"\n" {
		t.Errorf("its children are %q", found)
	}
}
