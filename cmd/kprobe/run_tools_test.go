package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

// An object as tools with a loader of their own have it: programs for things that are not here,
// sections that name no real place, a map whose size is left open, CO-RE for a kernel's structures.
const toolProgram = `
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

struct task_struct { int pid; } __attribute__((preserve_access_index));

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(key_size, 4);
	__uint(pinning, LIBBPF_PIN_BY_NAME);
} stacks SEC(".maps");

struct padded { long n; } __attribute__((aligned(64)));
struct padded calls[16];

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} told SEC(".maps");

// No variable and no map is made of it: its BTF has no such type.
enum side { LEFT = -3, RIGHT };
typedef unsigned char byte;
struct local {
	int n;
	enum side side;
	union { const void *text; unsigned long number; } u;
	unsigned short low : 3, high : 5;
	byte line[10];
	struct local *next;
};

struct seen { char comm[16]; int n; };
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
	__type(value, struct seen);
} typed SEC(".maps");

SEC("uprobe/./jumpers:jumper")
int count(void *ctx)
{
	struct seen s = { .comm = "a name", .n = 7 };

	struct local l = { .n = -1, .side = RIGHT, .u = { .number = 16 }, .low = 5, .high = 17, .line = "a line" };

	if (calls[3].n == 0)
		bpf_perf_event_output(ctx, &told, BPF_F_CURRENT_CPU, &l, sizeof(l));
	if (calls[3].n == 0)
		bpf_ringbuf_output(&typed, &s, sizeof(s), 0);
	calls[3].n++;
	bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	return 0;
}

SEC("kprobe/dummy") int in_kernel(void *ctx) { calls[4].n++; return 0; }
SEC("uretprobe/dummy") int task(void *ctx) { return ((struct task_struct *)bpf_get_current_task())->pid; }
SEC("uretprobe/dummy") int asks(void *ctx)
{
	struct task_struct *t = (void *)bpf_get_current_task();

	return bpf_core_field_exists(t->pid) + BPF_CORE_READ(t, pid);
}
SEC("tracepoint/a/b") int point(void *ctx) { return 0; }

char LICENSE[] SEC("license") = "GPL";
`

func TestRunTools(t *testing.T) {
	object := compiled(t, toolProgram)
	file := testprog.Build(t, "jumpers", "-O2", "-fno-omit-frame-pointer")
	tool(t) // is built here
	t.Chdir(filepath.Dir(file))
	p := testprog.Start(t, file)
	pid := fmt.Sprint(p.Pid)
	want := p.Round("1000")[0]
	if r := run(t, "run", "-p", pid, object); r.OK() || !strings.Contains(r.Stderr, `program "in_kernel": no symbol "dummy"`) ||
		!strings.Contains(r.Stderr, "--without PROGRAM leaves it out; a kernel's functions are in a kernel, -k PLACE)") {
		t.Errorf("a program that has no place: %s", r)
	}
	if r := run(t, "run", "-p", pid, "--without", "in_kernel", "--at", "count=./jumpers:0xffffff", object); r.OK() || !strings.Contains(r.Stderr, `program "count": offset 0xffffff of `) {
		t.Errorf("an offset that is not there: %s", r)
	}
	// The program that counts goes to where its section says, by a symbol or by where that is in the file.
	if n := counted(t, p, object, "--without", "in_kernel", "--at", "count=./jumpers:"+offsetOf(t, file, "jumper")); n != "{n=1000}" {
		t.Errorf("by its offset it is called %s times", n)
	}
	k := started(t, tool(t, "run", "-p", pid, "--without", "in_kernel", object), p.Pid)
	if got := p.Round("1000")[0]; got != want {
		t.Errorf("the program's result is %q under probes, %q without", got, want)
	}
	k.Signal(syscall.SIGINT)
	r := k.Result()
	out := strings.Join(r.Lines, "\n") + "\n"
	for _, want := range []string{`told: {n=-1, side=RIGHT, u={text=0x10, number=16}, low=5, high=17, line="a line", next=0x0}` + "\n", "calls = [3: {n=1000}]\n", `typed: {comm="a name", n=7}` + "\n", ": jumper+0x0/0x8 < main+"} {
		if !r.OK() || !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s\n%s", want, out, r)
		}
	}
	for _, want := range []string{`left out: bpf: program "asks": `, `left out: bpf: program "task": `, `left out: bpf: program "point": `, `map "stacks" is pinned in a kernel: here it is this run's own`,
		`map "told": its records of 40 bytes are printed as struct local, the only one of that size; --as told=TYPE says otherwise`} {
		if !strings.Contains(r.Stderr, want) {
			t.Errorf("no %q:\n%s", want, r.Stderr)
		}
	}
	if r := run(t, "run", "-p", pid, "--without", "in_kernel", "--at", "asks=main", object); r.OK() || !strings.Contains(r.Stderr, `kprobe: bpf: program "asks": instruction`) {
		t.Errorf("a program that is placed is not left out: %s", r)
	}
	checkUntouched(t, p.Pid)
}

const openProgram = `
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__type(key, int);
	__type(value, long);
} first SEC(".maps"), second SEC(".maps");

SEC("uprobe/args:args_pointer")
int count(void *ctx)
{
	int key = 0;
	long one = 1;

	return bpf_map_update_elem(&first, &key, &one, 0) + bpf_map_update_elem(&second, &key, &one, 0);
}

char LICENSE[] SEC("license") = "GPL";
`

// TestRunOpenMaps says of all maps whose sizes are left open that they are, at once.
func TestRunOpenMaps(t *testing.T) {
	object := compiled(t, openProgram)
	p := testprog.Start(t, testprog.Build(t, "args", "-O2", "-g"))
	pid := fmt.Sprint(p.Pid)
	r := run(t, "run", "-p", pid, object)
	for _, want := range []string{"--entries first=NUMBER", "--entries second=NUMBER"} {
		if r.OK() || !strings.Contains(r.Stderr, want) {
			t.Errorf("no %q: %s", want, r)
		}
	}
	refused(t, run(t, "run", "-p", pid, "--entries", "first=10", object), "--entries second=NUMBER")
	checkUntouched(t, p.Pid)
}

// counted runs an object while the program calls jumper 1000 times, and answers what it has counted.
func counted(t *testing.T, p *testprog.Proc, object string, args ...string) string {
	t.Helper()
	k := started(t, tool(t, append(append([]string{"run", "-p", fmt.Sprint(p.Pid)}, args...), object)...), p.Pid)
	p.Round("1000")
	k.Signal(syscall.SIGINT)
	_, calls, _ := strings.Cut(strings.Join(k.Result().Lines, "\n"), "calls = [3: ")
	n, _, _ := strings.Cut(calls, "]")
	return n
}

// offsetOf is where in a program's file a function begins.
func offsetOf(t testing.TB, file, function string) string {
	t.Helper()
	f, err := elf.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		symbols, err = f.DynamicSymbols()
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == function && s.Section != elf.SHN_UNDEF {
			section := f.Sections[s.Section]
			return fmt.Sprintf("%#x", s.Value-section.Addr+section.Offset)
		}
	}
	t.Fatalf("%s has no %s", file, function)
	return ""
}

// Fields by their names: the program has them elsewhere.
const typesProgram = `
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

struct node { int value; struct node *next; } __attribute__((preserve_access_index));
long value;

SEC("uprobe/args:args_pointer")
int pointer(struct pt_regs *ctx)
{
	value = BPF_CORE_READ_USER((struct node *)PT_REGS_PARM1(ctx), next, value);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`

// TestRunTypes relocates an object for the program of the process, or for a file that is named.
func TestRunTypes(t *testing.T) {
	object := compiled(t, typesProgram)
	file := testprog.Build(t, "args", "-O2", "-g")
	p := testprog.Start(t, file)
	pid := fmt.Sprint(p.Pid)
	for _, args := range [][]string{nil, {"--types", file}} {
		k := started(t, tool(t, append(append([]string{"run", "-p", pid}, args...), object)...), p.Pid)
		p.Round("1")
		k.Signal(syscall.SIGINT)
		if r := k.Result(); !r.OK() || !strings.Contains(strings.Join(r.Lines, "\n")+"\n", "value = 4711\n") {
			t.Errorf("%q: %s", args, r)
		}
	}
	refused(t, run(t, "run", "-p", pid, "--types", "/bin/true", object), "asks where the fields of struct node are")
	refused(t, run(t, "run", "-p", pid, "--types", file+".none", object), "--types: open")
	checkUntouched(t, p.Pid)
}
