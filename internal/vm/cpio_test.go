package vm

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"
)

// busybox's cpio reads back what was written.
func TestCpio(t *testing.T) {
	k, err := Fetch("amd64", "")
	if err != nil {
		t.Fatal(err)
	}
	want := tree{}
	want.add("etc/deep/a", 0o755, []byte("three"))
	want.add("etc/b", 0o644, nil)
	want.add("c", 0o600, bytes.Repeat([]byte{0, 1, 2}, 1001))
	var archive bytes.Buffer
	if err := want.writeTo(&archive); err != nil {
		t.Fatal(err)
	}
	if archive.Len()%4 != 0 {
		t.Errorf("an archive of %d bytes", archive.Len())
	}
	cpio := func(args ...string) string {
		cmd := exec.Command(k.busybox(), append([]string{"cpio"}, args...)...)
		cmd.Stdin = bytes.NewReader(archive.Bytes())
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	if got := cpio("-t"); got != "c\netc\netc/b\netc/deep\netc/deep/a\n" {
		t.Errorf("names: %q", got)
	}
	long := cpio("-tv")
	for _, row := range []string{"-rw------- 0/0 3003", "drwxr-xr-x 0/0 0", "-rwxr-xr-x 0/0 5"} {
		if !strings.Contains(strings.Join(strings.Fields(long), " "), row) {
			t.Errorf("no %q in\n%s", row, long)
		}
	}
	for name, f := range want {
		if f.mode.IsDir() {
			continue
		}
		if got := cpio("-i", "--to-stdout", name); got != string(f.data) {
			t.Errorf("%s: %d bytes, want %d", name, len(got), len(f.data))
		}
	}
}
