package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

const runProgram = `
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} calls SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} told SEC(".maps");

const volatile int tell = 0;
int passed;

SEC("uprobe/jumpers:jumper")
int count(void *ctx)
{
	__u32 zero = 0;
	__u64 *n = bpf_map_lookup_elem(&calls, &zero);

	if (passed++ == tell - 1)
		bpf_ringbuf_output(&told, &passed, sizeof(passed), 0);

	if (n && ++*n == 1)
		bpf_printk("the first of %d", 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`

// compiled is an object of a program, beside its source.
func compiled(t *testing.T, text string) (object string) {
	t.Helper()
	dir := t.TempDir()
	source, object := filepath.Join(dir, "count.bpf.c"), filepath.Join(dir, "count.bpf.o")
	if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	arch, err := exec.Command("gcc", "-print-multiarch").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("clang", "-target", "bpf", "-D__TARGET_ARCH_x86", "-O2", "-g", "-I/usr/include/"+strings.TrimSpace(string(arch)), "-c", source, "-o", object)
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	return object
}

func TestRun(t *testing.T) {
	object := compiled(t, runProgram)
	source := strings.TrimSuffix(object, ".o") + ".c"
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	want := p.Round("1000")[0]
	k := started(t, tool(t, "run", "-p", fmt.Sprint(p.Pid), "--set", "tell=77", object), p.Pid)
	if got := p.Round("1000")[0]; got != want {
		t.Errorf("the program's result is %q under probes, %q without", got, want)
	}
	k.Signal(syscall.SIGINT)
	r := k.Result()
	if out := strings.Join(r.Lines, "\n"); !r.OK() || !strings.Contains(out, fmt.Sprintf("jumpers-%d: the first of 1", p.Pid)) || !strings.Contains(out, "told: 77\n") ||
		!strings.HasSuffix(out, "calls\n  0: 1000\npassed = 1000") {
		t.Errorf("%s\n%s", out, r)
	}
	checkUntouched(t, p.Pid)
	refused(t, run(t, "run", "-p", fmt.Sprint(p.Pid), source), "count.bpf.c")
	refused(t, run(t, "run", object), "no process given")
	refused(t, run(t, "run", "-p", fmt.Sprint(p.Pid), "--set", "told=1", object), `no global variable "told"`)
	refused(t, run(t, "run", "-p", fmt.Sprint(p.Pid), "--set", "tell", object), "it must be NAME=NUMBER")
}

// Each way that a program has to its context: by loads, and by addresses that helpers read from,
// known and not.
const contextProgram = `
struct pt_regs { unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss; };
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

unsigned long by_load, by_address, by_index, failed, beside;

SEC("uprobe/hammer:hammer_mul")
int loads(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&by_load, ctx->di);
	return 0;
}

SEC("uprobe/hammer:hammer_mul")
int address(struct pt_regs *ctx)
{
	unsigned long v = 0;

	if (bpf_probe_read_kernel(&v, sizeof(v), &ctx->di))
		__sync_fetch_and_add(&failed, 1);
	__sync_fetch_and_add(&by_address, v);
	return 0;
}

volatile short where = 112, beyond = 168, before = -8;

SEC("uprobe/hammer:hammer_mul")
int indexed(struct pt_regs *ctx)
{
	unsigned long v = 0;

	if (bpf_probe_read_kernel(&v, sizeof(v), (void *)ctx + where))
		__sync_fetch_and_add(&failed, 1);
	__sync_fetch_and_add(&by_index, v);
	if (bpf_probe_read_kernel(&v, sizeof(v), (void *)ctx + beyond) && v == 0)
		__sync_fetch_and_add(&beside, 1);
	if (bpf_probe_read_kernel(&v, sizeof(v), (void *)ctx + before) && v == 0)
		__sync_fetch_and_add(&beside, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`
