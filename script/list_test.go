package script_test

import (
	"testing"

	"kprobe/internal/testprog"
	"kprobe/script"
)

// Places are listed by the file alone, and what is listed can be probed.
func TestList(t *testing.T) {
	path := testprog.Build(t, "args", "-O2")
	places, err := script.List("u:" + path + ":args_[ks]*")
	ok(t, err)
	want := []string{"args_kept", "args_string", "args_struct"}
	if len(places) != len(want) {
		t.Fatalf("%q", places)
	}
	for i, name := range want {
		if places[i] != "uprobe:"+path+":"+name {
			t.Errorf("%q, not %s", places[i], name)
		}
	}
	if libc, err := script.List("uretprobe:libc:mallo[c]"); err != nil || len(libc) != 1 {
		t.Errorf("%q, %v", libc, err)
	}
	for _, bad := range []string{"uprobe:no-such-file:x", "kprobe:vfs_read", "uprobe:/no/such:x"} {
		if _, err := script.List(bad); err == nil {
			t.Errorf("%s is listed", bad)
		}
	}
}
