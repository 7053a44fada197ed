package lifeline

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// journalOf is a journal about a process, in a directory of the test's own.
func journalOf(t *testing.T, pid int) *Journal {
	t.Helper()
	t.Setenv("TMPDIR", t.TempDir())
	self := os.Getpid()
	return &Journal{PID: pid, Start: StartTime(pid), BuildID: "b", Base: 0x1000, ID: 7, Serial: 7, Controller: self, ControllerStart: StartTime(self)}
}

func TestJournalIsReadBack(t *testing.T) {
	j := journalOf(t, os.Getpid())
	if err := j.Save(); err != nil {
		t.Fatal(err)
	}
	paths, err := Journals(j.PID)
	if err != nil || !slices.Equal(paths, []string{j.Path()}) {
		t.Fatalf("found %v, %v", paths, err)
	}
	got, err := Load(paths[0])
	if err != nil {
		t.Fatal(err)
	}
	if got.file, got.by = "", 0; *got != *j {
		t.Errorf("%+v was written, %+v read", *j, *got)
	}
	if got.Abandoned() || !got.Current() {
		t.Error("neither its controller nor its process is gone")
	}
	got.ControllerStart++
	got.Start++
	if !got.Abandoned() || got.Current() {
		t.Error("other processes that have the same pids are taken for them")
	}
	if other, err := Journals(1); err != nil || len(other) > 0 {
		t.Errorf("of process 1 there are %v, %v", other, err)
	}
}

func TestWhatIsNoJournal(t *testing.T) {
	j := journalOf(t, os.Getpid())
	if err := j.Save(); err != nil {
		t.Fatal(err)
	}
	good, err := os.ReadFile(j.Path())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"", "\x00\x01", "{}", "[]", `{"pid":1,"more":2}`,
		string(good[:len(good)/2]), strings.Replace(string(good), fmt.Sprint(j.PID), "1", 1)} {
		if err := os.WriteFile(j.Path(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := Load(j.Path()); err == nil || !strings.Contains(err.Error(), filepath.Base(j.Path())) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// A user cannot make root change a process by writing a journal about it.
func TestJournalOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		return // only root reads other users' journals
	}
	j := journalOf(t, os.Getpid())
	if err := j.Save(); err != nil {
		t.Fatal(err)
	}
	const somebody = 65534
	if err := os.Chown(j.Path(), somebody, somebody); err != nil {
		t.Fatal(err)
	}
	if got, err := Load(j.Path()); err == nil {
		t.Errorf("root takes %+v from another user", got)
	}
}

// A folder for temporary files that is not there is not made: the name may be a mistake.
func TestMissingTemporaryFolder(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	t.Setenv("TMPDIR", missing)
	_, err := MakeDir()
	if err == nil || !strings.Contains(err.Error(), missing+" does not exist (TMPDIR") {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(missing); !os.IsNotExist(err) {
		t.Errorf("it was made: %v", err)
	}
	if err := os.Mkdir(missing, 0o700); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it may be there already
		if _, err := MakeDir(); err != nil {
			t.Error(err)
		}
	}
}
