package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/internal/vm/vmtest"
)

// A kernel is booted and probed by commands alone, as the README has it.
func TestKernel(t *testing.T) {
	testprog.Long(t, "it boots a guest")
	dir, err := os.MkdirTemp("", "vm") // short: it holds sockets
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	guest := testprog.StartCmd(t, tool(t, "vm", "--smp", "2", "--stay", "--dir", dir))
	guest.Line()
	guest.Expect("ready")

	plan := run(t, "plan", "-k", dir, "p vfs_read", "p vfs_read+5", "r ksys_sync", "p exc_int3")
	refused(t, plan, "1 of 4 places cannot be probed")
	for i, want := range []string{"vmlinux:vfs_read  0xffffffff", "vmlinux:vfs_read+0x5  0xffffffff", "vmlinux:ksys_sync  0xffffffff", "must not be probed: it is noinstr"} {
		if i >= len(plan.Lines) || !strings.Contains(plan.Lines[i], want) {
			t.Errorf("plan, line %d: no %q in %s", i, want, plan)
		}
	}
	if i := slices.IndexFunc(plan.Lines, func(l string) bool { return strings.Contains(l, "ksys_sync") }); i < 0 || !strings.Contains(plan.Lines[i], "jump whole") {
		t.Errorf("plan: a return would be a stop: %s", plan)
	}
	for _, how := range []string{"skip  stop", "step  stop"} {
		if count(plan.Lines, how) != 1 {
			t.Errorf("plan: no %q in %s", how, plan)
		}
	}
	black := run(t, "blacklist", "-k", dir)
	if count(black.Lines, "\texc_int3\t") != 1 {
		t.Errorf("blacklist: %d lines, and no exc_int3", len(black.Lines))
	}

	// A folder that has a stub only is read through that.
	bare := filepath.Join(dir, "bare")
	if err := os.Mkdir(bare, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "gdb"), filepath.Join(bare, "gdb")); err != nil {
		t.Fatal(err)
	}
	slow := run(t, "plan", "-k", bare, "p vfs_read")
	if slow.Status != 0 || count(slow.Lines, "vmlinux:vfs_read") != 1 || count(slow.Lines, "jump whole") != 0 {
		t.Errorf("plan without a file of its memory: %s", slow)
	}
	if err := os.RemoveAll(bare); err != nil {
		t.Fatal(err)
	}

	// What counts stops nothing: the timer is hit all the time.
	stat := run(t, "stat", "-k", dir, "-d", "2s", "p ksys_sync", "p:tick tick_sched_timer", "r:took tick_sched_timer")
	if stat.Status != 0 || count(stat.Lines, "took at vmlinux:tick_sched_timer takes") != 1 || count(stat.Lines, "vmlinux:ksys_sync") != 1 || count(stat.Lines, " tick  vmlinux:tick_sched_timer") != 1 {
		t.Errorf("stat: %s", stat)
	}

	// Who has called is counted, at stops. The guest goes at its own pace: what is sent and not run yet would be in the way later. Its shell
	// has no child, which might end while it reads.
	guest.Send("sh -c 'until [ -e /tmp/over ]; do sync; md5sum /proc/version >/dev/null; usleep 50000; done &'\n")
	stat = run(t, "stat", "--by", "stack", "-k", dir, "-d", "3s", "p:sync ksys_sync")
	for _, want := range []string{" => ksys_sync", " => do_syscall_64"} {
		if stat.Status != 0 || count(stat.Lines, want) == 0 {
			t.Errorf("stat --by stack: no %q in %s", want, stat)
		}
	}

	// Calls lie in each other, whatever interrupts them.
	drawn := run(t, "graph", "-k", dir, "-d", "3s", "ksys_read", "vfs_read")
	guest.Send(">/tmp/over\n")
	if !drawn.OK() || !readOfFile.MatchString(strings.Join(drawn.Lines, "\n")) {
		t.Errorf("graph: %s", drawn)
	}

	// One that is killed leaves its jumps, and the next takes them out.
	killed := onGuest(t, guest, "stat", "-k", dir, "p ksys_sync", "p:tick tick_sched_timer", "r ksys_sync")
	testprog.Until(t, "stat puts something into the kernel", killed.Pid, func() bool { return vmtest.Journalled(t, filepath.Join(dir, "window")) })
	list := awaitListed(t, killed, dir)
	for _, want := range []string{"  k  ksys_sync+0x0    ", "  k  tick_sched_timer+0x0    "} {
		if count(list.Lines, want) != 1 {
			t.Errorf("list: no %q in %s", want, list)
		}
	}
	killed.Signal(syscall.SIGKILL)
	killed.Result()
	if list := run(t, "list", "-k", "unix:"+dir+"/gdb"); list.Status != 0 || len(list.Lines) != 0 {
		t.Errorf("list of one that was killed: %s", list)
	}
	plan = run(t, "plan", "-k", dir, "p ksys_sync", "p tick_sched_timer")
	if plan.Status != 0 || count(plan.Lines, "0f 1f 44 00 00") != 2 || count(plan.Lines, "jump whole") != 2 {
		t.Errorf("after a controller that was killed: %s", plan)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "window")); err != nil || len(bytes.Trim(b, "\x00")) != 0 {
		t.Errorf("the window is not empty: %v", err)
	}

	k := onGuest(t, guest, "trace", "-k", "unix:"+dir+"/gdb", "--ram", dir+"/ram", "-n", "2",
		"p:entry do_sys_openat2 file=+0(%si):ustring", "r:back do_sys_openat2 $retval")
	stop := keepSending(t, guest, "cat /proc/version >/dev/null")
	r := k.Result()
	stop()
	if len(r.Lines) != 2 || r.Status != 0 || !strings.Contains(r.Stderr, "vmlinux:do_sys_openat2") {
		t.Errorf("trace: %s", r)
	}
	for _, line := range r.Lines {
		if !strings.Contains(line, "do_sys_openat2") {
			t.Errorf("trace: %q", line)
		}
	}
	runInKernel(t, dir, guest)
	scriptInKernel(t, dir, guest)
	guest.CloseStdin() // it stays
	for _, bad := range []struct {
		says string
		args []string
	}{
		{"either -p or -k", []string{"trace", "-k", dir, "-p", "1", "p vfs_read"}},
		{"--ram, --window and --symbols are for -k", []string{"plan", "-p", "1", "--ram", "x", "p vfs_read"}},
		{"--ram, --window and --symbols are for -k", []string{"plan", "-p", "1", "--symbols", "x", "p vfs_read"}},
		{"no such", []string{"list", "-k", "unix:" + dir + "/none"}},
		{"connect", []string{"plan", "-k", "unix:" + dir + "/none", "p vfs_read"}},
		{"no such", []string{"plan", "-k", dir, "--ram", dir + "/none", "p vfs_read"}},
		{"unknown_function", []string{"trace", "-k", dir, "p unknown_function"}},
	} {
		refused(t, run(t, bad.args...), bad.says)
	}
	last := onGuest(t, guest, "stat", "-k", dir, "p ksys_sync")
	awaitListed(t, last, dir) // else its table has no line yet
	guest.Signal(syscall.SIGINT)
	if r := guest.Result(); r.Status != 0 {
		t.Errorf("the guest ended: %s", r)
	}
	if r := last.Result(); r.Status.ExitStatus() != 1 || count(r.Lines, "vmlinux:ksys_sync") != 1 || !strings.Contains(r.Stderr, "the target is gone") && !strings.Contains(r.Stderr, "the machine has ended") {
		t.Errorf("stat of a kernel that has ended: %s", r)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// readOfFile is how a file of the kernel's own is read.
var readOfFile = regexp.MustCompile(`\|  ksys_read\(.*\{\n.*\|    vfs_read\(.*; /\* ret=.*\n.*\|  \} /\* ksys_read ret=`)

// runInKernel has a program read memory there and tell of it: without a window it could not.
func runInKernel(t *testing.T, dir string, guest *testprog.Proc) {
	t.Helper()
	object := compiled(t, `
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct name { char text[32]; };

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} told SEC(".maps");

int bad;

SEC("kprobe/do_sys_openat2")
int BPF_KPROBE(opened, int dfd, const char *file)
{
	struct name n = {};

	if (bpf_probe_read_kernel(&n, sizeof(n), (void *)1) < 0)
		bad++;
	if (bpf_probe_read_user_str(n.text, sizeof(n.text), file) == sizeof("/proc/cpuinfo"))
		bpf_ringbuf_output(&told, &n, sizeof(n), 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`)
	k := onGuest(t, guest, "run", "-k", dir, object)
	stop := keepSending(t, guest, "cat /proc/cpuinfo >/dev/null")
	k.Expect(`told: {text="/proc/cpuinfo"}`)
	stop()
	k.Signal(syscall.SIGINT)
	r := k.Result()
	if !r.OK() || !strings.Contains(strings.Join(r.Lines, "\n"), "bad = ") {
		t.Errorf("run: %s", r)
	}

	// What follows frame pointers would be wrong there.
	object = compiled(t, `
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

long frames[16];

SEC("kprobe/ksys_sync")
int synced(void *ctx)
{
	bpf_get_stack(ctx, frames, sizeof(frames), 0);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`)
	refused(t, run(t, "run", "-k", dir, object), `"synced" follows frame pointers (get_stack; get_stackid does not), which cannot be done in a kernel`)
}

// scriptInKernel has a script ask the kernel's types, its task and its system calls for one and the same work.
func scriptInKernel(t *testing.T, dir string, guest *testprog.Proc) {
	t.Helper()
	k := onGuest(t, guest, "script", "-q", "-k", dir, "-e", `
		tracepoint:syscalls:sys_enter_openat { @name[tid] = args.filename; @number = args.__syscall_nr; }
		tracepoint:syscalls:sys_exit_openat /has_key(@name, tid)/ { @opened[str(@name[tid]), curtask->comm == comm, curtask->pid == tid, curtask->tgid == pid, args.ret > 2, uid] = count(); delete(@name, tid); }
		fentry:vfs_read /str(args.file->f_path.dentry->d_name.name) == "version"/ { @fentry[((struct file *)arg0)->f_inode->i_sb->s_id, args.count == arg2] = count(); }
		fexit:vfs_read /str(args.file->f_path.dentry->d_name.name) == "version" && retval > 0/ { @fexit[retval > 60] = count(); if (@times++ > 2) { exit(); } }
		kprobe:vfs_rea? { @kprobe[probe, func] = count(); }
		fentry:vfs_read /str(args.file->f_path.dentry->d_name.name) == "version"/ { @stack[kstack(3)] = count(); }
		kretprobe:vfs_read { @kretprobe[args.count > 0, PIDTYPE_TGID] = count(); }`)
	stop := keepSending(t, guest, "md5sum /proc/version >/dev/null") // which reads: cat has it sent
	r := k.Result()
	stop()
	for _, want := range []string{"@number: 257", "@opened[/proc/version, true, true, true, true, 0]: ", "@fentry[proc, true]: ", "@fexit[true]: ", "@kprobe[kprobe:vfs_read, vfs_read]: ", "@kretprobe[true, PIDTYPE_TGID]: ", "ksys_read+"} {
		if count(r.Lines, want) != 1 {
			t.Errorf("script: no %q in %s", want, r)
		}
	}
	if r.Status != 0 {
		t.Errorf("script: %s", r)
	}
	// Trace events, whose records the kernel itself makes, as long as a script asks for them; texts behind the record, variables of the kernel.
	k = onGuest(t, guest, "script", "-q", "-k", dir, "-e", `
		tracepoint:sched:sched_process_exec { @exec[str(args.filename), args.pid == pid] = count(); if (@n++ > 2) { exit(); } }
		t:sched:sched_process_for? { @fork[args.parent_comm, args.child_pid > 1, probe] = count(); }
		tracepoint:sched:sched_switch { @switch[args.prev_state >= 0] = count(); }
		rawtracepoint:sched_switch { @raw[args.prev->pid == tid, ((struct task_struct *)arg1)->pid == tid] = count(); }
		profile:hz:49 { @sample[curtask->pid == tid, cpu < ncpus && ncpus == 2] = count(); @idle[kstack, comm] = count(); }
		interval:ms:100 { @ticks = *kaddr("jiffies") > 1000; }`)
	stop = keepSending(t, guest, "sh -c :") // which the guest's shell executes; for most it forks only
	r = k.Result()
	stop()
	for _, want := range []string{"@exec[/proc/self/exe, true]: ", "@fork[sh, true, tracepoint:sched:sched_process_fork]: ", "@switch[true]: ", "@raw[true, true]: ", "@sample[true, true]: ", "do_idle+", "@ticks: true"} {
		if count(r.Lines, want) == 0 {
			t.Errorf("script, trace events: no %q in %s", want, r)
		}
	}
	for pattern, want := range map[string][]string{
		"kprobe:vfs_rea[dv]":             {"kprobe:vfs_read"},
		"f:vfs_read":                     {"fentry:vmlinux:vfs_read", "    struct file * file", "    char * buf", "    size_t count", "    loff_t * pos"},
		"rt:sched_process_exit":          {"rawtracepoint:sched_process_exit", "    struct task_struct * p"},
		"tracepoint:sched:sched_wait_t*": {"tracepoint:sched:sched_wait_task", "    char comm[16]", "    pid_t pid", "    int prio"},
		"*_sched_process_hang":           nil,
		"struct path":                    {"struct path {", "\tstruct vfsmount *mnt;", "\tstruct dentry *dentry;", "};"},
	} {
		if r := run(t, "script", "-k", dir, "-lv", pattern); !r.OK() || want != nil && !slices.Equal(r.Lines, want) || want == nil && len(r.Lines) < 2 {
			t.Errorf("-lv %s: %s", pattern, r)
		}
	}
	guest.Send("cat /sys/kernel/tracing/events/sched/enable\n")
	guest.Expect("0")
	for text, says := range map[string]string{
		"uprobe:/bin/sh:main { } kprobe:vfs_read { }": "a script has one target",
		"kprobe:no_such_module:vfs_read { }":          "Unable to attach probe: kprobe:no_such_module:vfs_read.",
		"kprobe:vfs_read,kprobe:zzz { }":              "Unable to attach probe: kprobe:zzz.",
		"kprobe:zzz*,kprobe:yyy* { }":                 "No matches for kprobe zzz*",
		"uprobe:/bin/sh:main { }":                     "and the target is a kernel",
		"software:cpu-clock:100 { }":                  "are not counted from outside",
		"tracepoint:sched:sched_swatch { }":           "the kernel has no such trace event",
		"kprobe:do_sys_openat2 { override(-1); }":     "no program may override",
	} {
		if r := run(t, "script", "--unsafe", "-k", dir, "-e", text); r.OK() || !strings.Contains(r.Stderr, says) {
			t.Errorf("%s: no %q in %s", text, says, r)
		}
	}
	// A function is not run, of who is meant: the kernel does not allow it of any, so that has to be asked for.
	k = onGuest(t, guest, "script", "-q", "--unsafe", "--override-any", "-k", dir, "-e", `
		kprobe:do_sys_openat2 /comm == "dd"/ { @denied = count(); @times++; override(-1); }
		interval:ms:100 /@times > 2/ { exit(); }`)
	stop = keepSending(t, guest, "dd count=0 of=/tmp/denied 2>>/tmp/why || true")
	r = k.Result()
	stop()
	guest.Send("grep -o 'denied.*not permitted' /tmp/why | uniq; rm /tmp/why\n")
	guest.Expect("denied': Operation not permitted")
	if count(r.Lines, "@denied: ") != 1 || r.Status != 0 {
		t.Errorf("script, override: %s", r)
	}
}

// onGuest runs kprobe on a guest. What it waits for is the guest's work.
func onGuest(t *testing.T, guest *testprog.Proc, args ...string) *testprog.Proc {
	t.Helper()
	k := testprog.StartCmd(t, tool(t, args...))
	k.For = guest
	return k
}

// awaitListed waits until a command's probes in a guest are listed, which is when it has registered all.
func awaitListed(t *testing.T, k *testprog.Proc, dir string) (list testprog.Result) {
	t.Helper()
	testprog.Until(t, "the probes are listed", k.Pid, func() bool {
		list = run(t, "list", "-k", dir)
		return len(list.Lines) > 0
	})
	return list
}

// keepSending has a guest do something again and again, until it is stopped: nothing tells
// when probes are in place, and what is done before goes by. It is done once more only when it has been done.
func keepSending(t *testing.T, guest *testprog.Proc, line string) (stop func()) {
	const done = "it is done"
	over := make(chan struct{})
	var sending sync.WaitGroup
	sending.Go(func() {
		for {
			guest.Send("%s; echo %s", line, done)
			if !guest.Until(done) {
				return // it has ended
			}
			select {
			case <-over:
				return
			default:
			}
		}
	})
	stop = sync.OnceFunc(func() { close(over); sending.Wait() })
	t.Cleanup(stop) // before the guest's: a test that has failed sends nothing more
	return stop
}
