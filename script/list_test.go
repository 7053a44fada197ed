package script_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/script"
)

// Places are listed by the file alone, and what is listed can be probed.
func TestList(t *testing.T) {
	path := testprog.Build(t, "args", "-O2")
	places, err := script.List("u:"+path+":args_[ks]*", false, 0)
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
	// With parameters, where debug data tells them.
	places, err = script.List("u:"+path+":args_[ps]*", true, 0)
	ok(t, err)
	wantAll := "args_pointer\n    struct node* n\n    int** pp\n" +
		"args_string\n    const char* s\n    size_t n\nargs_struct\n    struct pair p\n    struct mixed m\n    struct large l\n    int last"
	if got := strings.ReplaceAll(strings.Join(places, "\n"), "uprobe:"+path+":", ""); got != wantAll {
		t.Errorf("listed:\n%s", got)
	}
	if bare, err := script.List("u:"+testprog.Build(t, "args", "-g0")+":args_string", true, 0); err != nil || len(bare) != 1 {
		t.Errorf("%q, %v", bare, err)
	}
	if libc, err := script.List("uretprobe:libc:mallo[c]", false, 0); err != nil || len(libc) != 1 {
		t.Errorf("%q, %v", libc, err)
	}
	for _, bad := range []string{"uprobe:no-such-file:x", "iter:task", "uprobe:/no/such:x"} {
		if _, err := script.List(bad, false, 0); err == nil {
			t.Errorf("%s is listed", bad)
		}
	}
}

// Functions of the kernel that runs are listed, though none of it can be probed.
func TestListSystem(t *testing.T) {
	for _, pattern := range []string{"kprobe:vfs_rea[d]", "k:vfs_read", "kretprobe:vfs_read*"} {
		all, err := script.List(pattern, false, 0)
		ok(t, err)
		if provider, _, _ := strings.Cut(all[0], ":"); all[0] != provider+":vfs_read" || strings.HasPrefix(pattern, "k:") && provider != "kprobe" {
			t.Errorf("%s: %q", pattern, all)
		}
	}
	if all, err := script.List("kprobe:no_such_function*", false, 0); err != nil || len(all) != 0 {
		t.Errorf("%q %v", all, err)
	}
	for pattern, want := range map[string]string{"*vfs_read": "kprobe:vfs_read", "k*:vfs_read": "kretprobe:vfs_read", "s*:page-f*": "software:page-faults:"} {
		if all, err := script.List(pattern, false, 0); err != nil || !slices.Contains(all, want) {
			t.Errorf("%s: %q without %s, %v", pattern, all, want, err)
		}
	}
	all, err := script.List("fentry:vfs_read", true, 0)
	ok(t, err)
	if _, there := os.Stat("/sys/kernel/btf/vmlinux"); there == nil && (len(all) < 2 || all[0] != "fentry:vmlinux:vfs_read" || !strings.HasPrefix(all[1], "    struct file *")) {
		t.Errorf("%q", all)
	}
}

// Tracepoints of system calls are listed with their parameters, and programs for them are such as may run.
func TestTracepoints(t *testing.T) {
	all, err := script.List("t:syscalls:sys_*_openat", true, 0)
	ok(t, err)
	want := "tracepoint:syscalls:sys_enter_openat\n    int __syscall_nr\n    int dfd\n    const char * filename\n    int flags\n    umode_t mode\n" +
		"tracepoint:syscalls:sys_exit_openat\n    int __syscall_nr\n    long ret"
	if got := strings.Join(all, "\n"); got != want {
		t.Errorf("listed:\n%s", got)
	}
	s, err := script.Compile(`t:syscalls:sys_enter_open,t:syscalls:sys_enter_openat /args.flags & 1/ { @[probe, str(args.filename)] = count(); }
		t:syscalls:sys_* { @n[probe] = count(); } t:raw_syscalls:sys_exit { print(args); @h = hist(args.ret); } t:raw_syscalls:sys_enter { print(args); }`, script.Options{})
	ok(t, err)
	ok(t, s.Verify())
}
