package lifeline

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestListsOfDeadControllersGo(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := MakeDir()
	if err != nil {
		t.Fatal(err)
	}
	stale := filepath.Join(dir, "1.1.999999999.1.list")
	if err := os.WriteFile(stale, []byte("old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	half := filepath.Join(dir, "1.1.1.journal.new")
	if err := os.WriteFile(half, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	long := time.Now().Add(-time.Hour)
	if err := os.Chtimes(half, long, long); err != nil {
		t.Fatal(err)
	}
	self := os.Getpid()
	l := NewList(Process(self))
	l.Save("text\n")
	if _, err := os.Stat(stale); !os.IsNotExist(err) {
		t.Errorf("the stale list is still there: %v", err)
	}
	if _, err := os.Stat(half); !os.IsNotExist(err) {
		t.Errorf("half a file is still there: %v", err)
	}
	if got := Lists(Process(self)); len(got) != 1 || got[0].List != "text\n" || got[0].Controller != self {
		t.Errorf("lists are %+v", got)
	}
	// A machine is as good as a process: only its controller must live.
	m := NewList(Place("unix:/socket"))
	m.Save("other\n")
	if got := Lists(Place("unix:/socket")); len(got) != 1 || got[0].List != "other\n" {
		t.Errorf("lists of a machine are %+v", got)
	}
	if got := Lists(Place("unix:/other")); len(got) != 0 {
		t.Errorf("lists of another machine are %+v", got)
	}
	m.Remove()
	l.Remove()
	if got := Lists(Process(self)); len(got) != 0 {
		t.Errorf("after removal: %+v", got)
	}
}

func TestADirectoryOpenToOthersIsRefused(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	dir, err := MakeDir()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeDir(); err == nil {
		t.Error("it was taken")
	}
}

// A process that sees other pids looks elsewhere, in the same temporary folder: to it every process
// here would be dead.
func TestOtherNamespacesAreLeftAlone(t *testing.T) {
	if os.Getenv("KPROBE_TEST_NAMESPACE") != "" {
		NewList(Process(os.Getpid())).Save("theirs\n")
		if got := Lists(Process(1)); len(got) != 1 || got[0].List != "theirs\n" {
			t.Errorf("lists are %+v", got)
		}
		if got, err := Journals(0); err != nil || len(got) != 0 {
			t.Errorf("journals are %v, %v", got, err)
		}
		return
	}
	t.Setenv("TMPDIR", t.TempDir())
	self := os.Getpid()
	l := NewList(Process(self))
	l.Save("ours\n")
	j := &Journal{PID: self, Start: StartTime(self), Serial: 1, Controller: self, ControllerStart: StartTime(self)}
	if err := j.Save(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc",
		os.Args[0], "-test.run", "^TestOtherNamespacesAreLeftAlone$")
	cmd.Env = append(os.Environ(), "KPROBE_TEST_NAMESPACE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if got := Lists(Process(self)); len(got) != 1 || got[0].List != "ours\n" {
		t.Errorf("lists are %+v", got)
	}
	if _, err := os.Stat(j.Path()); err != nil {
		t.Error(err)
	}
}

// A list with an unchanged text is not written again, and one with a new text is.
func TestListIsWrittenWhenItChanges(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	l := NewList(Process(os.Getpid()))
	if l == nil {
		t.Fatal("no list")
	}
	defer l.Remove()
	stat := func() os.FileInfo {
		fi, err := os.Stat(l.path)
		if err != nil {
			t.Fatal(err)
		}
		return fi
	}
	l.Save("one\n")
	first := stat()
	l.Save("one\n")
	if !os.SameFile(first, stat()) {
		t.Error("it is another file, with the same text")
	}
	l.Save("two\n")
	if text, err := os.ReadFile(l.path); string(text) != "two\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}
