package lifeline

import (
	"os"
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
	// A machine is as good as a process: only who probes it must live.
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
