package rights

import (
	"io/fs"
	"os"
	"testing"
)

// A process gains the rights that the file gives where it lies, less those that it has already.
func TestGains(t *testing.T) {
	self, user, group := os.Getpid(), uint64(os.Geteuid()), uint64(os.Getegid())
	const all = fs.FileMode(0o755)
	other, others := user+1, group+1
	caps := func(revision byte, low, high, root byte) []byte {
		return []byte{1, 0, 0, revision, 0, low, 0, 0, 0, 0, 0, 0, high, 0, 0, 0, 0, 0, 0, 0, root, 0, 0, 0}
	}
	tests := []struct {
		name string
		file File
		want bool
	}{
		{"an ordinary file", File{Mode: all, UID: other, GID: others}, false},
		{"of another user", File{Mode: all | fs.ModeSetuid, UID: other, GID: others}, true},
		{"of its own user", File{Mode: all | fs.ModeSetuid, UID: user, GID: others}, false},
		{"of another group", File{Mode: all | fs.ModeSetgid, UID: other, GID: others}, true},
		{"of its own group", File{Mode: all | fs.ModeSetgid, UID: other, GID: group}, false},
		{"a group that locks", File{Mode: 0o745 | fs.ModeSetgid, GID: others}, false},
		{"where nothing has rights", File{Mode: all | fs.ModeSetuid, UID: other, NoSuid: true}, false},
		{"no program", File{Mode: 0o644 | fs.ModeSetuid, UID: other}, false},
		{"a folder", File{Mode: all | fs.ModeDir | fs.ModeSetgid, GID: others}, false},
	}
	for _, tt := range tests {
		tt.want = tt.want && number(self, "NoNewPrivs", 0, 10) == 0
		if got := tt.file.Gains(self); (got != "") != tt.want {
			t.Errorf("%s: %q", tt.name, got)
		}
	}
	for _, tt := range []struct {
		caps []byte
		want uint64
	}{
		{nil, 0},
		{caps(1, 0x20, 0x1, 0)[:12], 0x2000},
		{caps(2, 0x20, 0x1, 0)[:20], 0x1_00002000},
		{caps(3, 0x20, 0x1, 0), 0x1_00002000},
		{caps(3, 0x20, 0x1, 7), 0}, // another namespace's root
	} {
		if got := (&File{Caps: tt.caps}).permitted(); got != tt.want {
			t.Errorf("% x: %#x, want %#x", tt.caps, got, tt.want)
		}
	}
}

// A file is found as the process would find it.
func TestLookAs(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	if err := os.WriteFile("program", nil, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod("program", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"program", "./program", dir + "/program"} {
		f, err := LookAs(os.Getpid(), name)
		if err != nil || f.Mode != 0o755 || f.UID != uint64(os.Getuid()) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
	if _, err := LookAs(os.Getpid(), dir+"/none"); err == nil {
		t.Error("there is no such file")
	}
}
