package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	if err := os.WriteFile(object, testprog.CompileBPF(t, source), 0o644); err != nil {
		t.Fatal(err)
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
	refused(t, run(t, "run", "-p", fmt.Sprint(p.Pid), "--without", "none", object), `no program "none"`)
}

// Each way that a program has to its context: by loads, and by addresses that helpers read from,
// known and not.
const contextProgram = `
struct pt_regs { unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp, ss; };
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

unsigned long by_load, by_address, by_index, failed, beside;

SEC("uprobe")
int loads(struct pt_regs *ctx)
{
	__sync_fetch_and_add(&by_load, ctx->ax);
	return 0;
}

SEC("uprobe")
int address(struct pt_regs *ctx)
{
	unsigned long v = 0;

	if (bpf_probe_read_kernel(&v, sizeof(v), &ctx->ax))
		__sync_fetch_and_add(&failed, 1);
	__sync_fetch_and_add(&by_address, v);
	return 0;
}

volatile short where = 80, beyond = 168, before = -8;

SEC("uprobe")
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

// A program gets its own hit's words, whichever way it asks: all threads hammer at once.
func TestRunContext(t *testing.T) {
	object := compiled(t, contextProgram)
	for _, width := range []string{"-m64", "-m32"} {
		t.Run(width, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "threads", "-O2", width), "4")
			want := p.Round("200")
			value := func(program, name string) string {
				k := started(t, tool(t, "run", "-p", fmt.Sprint(p.Pid), "--at", program+"=hammer_mul", object), p.Pid)
				for range 3 { // by traps first, then by jumps
					if got := p.Round("200"); !slices.Equal(got, want) {
						t.Errorf("%s: %q under probes, %q without", program, got, want)
					}
				}
				k.Signal(syscall.SIGINT)
				r := k.Result()
				out := strings.Join(r.Lines, "\n")
				if !r.OK() || strings.Contains(out, "failed") || program == "indexed" && !strings.Contains(out, "beside = 4800") {
					t.Errorf("%s %s: %s\n%s", width, program, out, r)
				}
				for _, line := range r.Lines {
					if v, ok := strings.CutPrefix(line, name+" = "); ok {
						return v
					}
				}
				t.Errorf("%s %s: %s\n%s", width, program, out, r)
				return ""
			}
			sum := value("loads", "by_load")
			for program, name := range map[string]string{"address": "by_address", "indexed": "by_index"} {
				if got := value(program, name); got != sum {
					t.Errorf("%s %s: a sum of %s, by loads it is %s", width, program, got, sum)
				}
			}
			checkUntouched(t, p.Pid)
		})
	}
}

const staticProgram = `
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

long by_register, by_memory, by_constant, by_byte, count, absent, texts;

SEC("usdt/statics:statics:plain")
int BPF_USDT(plain, long a, short b, int c, unsigned char d)
{
	long e;

	by_register += a;
	by_memory += b;
	by_constant += c;
	by_byte += d;
	count += bpf_usdt_arg_cnt(ctx);
	absent += bpf_usdt_arg(ctx, 4, &e) == -2;
	return 0;
}

SEC("usdt")
int BPF_USDT(guarded, unsigned a, char *text)
{
	char s[16];

	if (bpf_probe_read_user_str(s, sizeof(s), text) == 10)
		texts += a;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`

// Static probes: arguments of all kinds, and the program is told that somebody listens.
func TestRunStaticProbes(t *testing.T) {
	object := compiled(t, staticProgram)
	for _, width := range []string{"-m64", "-m32"} {
		t.Run(width, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "statics", "-O2", width))
			want := p.Round("1000")
			k := started(t, tool(t, "run", "-p", fmt.Sprint(p.Pid), "--at", "guarded=statics:statics:guarded", object), p.Pid)
			awaitRound(t, p, "0", "semaphore 1") // it is raised when the probes stand
			if got := p.Round("1000"); got[0] != want[0] || got[1] != "wanted 1000" {
				t.Errorf("%q under probes, %q without", got, want)
			}
			k.Signal(syscall.SIGINT)
			r := k.Result()
			for _, line := range []string{"by_register = 499500", "by_memory = -488064", "by_constant = -9000",
				"by_byte = 124716", "count = 4000", "absent = 1000", "texts = 499500"} {
				if !r.OK() || !slices.Contains(r.Lines, line) {
					t.Errorf("%s: no %s:\n%s\n%s", width, line, strings.Join(r.Lines, "\n"), r)
				}
			}
			if got := p.Round("1000"); !slices.Equal(got, want) {
				t.Errorf("%s: in the end %q, want %q", width, got, want)
			}
			checkUntouched(t, p.Pid)
			refused(t, run(t, "run", "-p", fmt.Sprint(p.Pid), "--at", "plain=statics:statics:none", object), "has no static probe statics:none")
			refused(t, run(t, "run", "-p", fmt.Sprint(p.Pid), "--at", "plain=libnone.so:a:b", object), "libnone.so is not mapped")
		})
	}
}

// An argument in a variable is read by the variable's symbol. One that cannot be read costs no other.
func TestRunStaticProbesOfVariables(t *testing.T) {
	object := compiled(t, `
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/usdt.bpf.h>

long counters, elements, numbers, unread, count;

SEC("usdt/statics:statics:variables")
int variables(struct pt_regs *ctx)
{
	long a = 0, b = 0, c = 0, d = 0;

	bpf_usdt_arg(ctx, 0, &a);
	unread += bpf_usdt_arg(ctx, 1, &b) == -22;
	bpf_usdt_arg(ctx, 2, &c);
	bpf_usdt_arg(ctx, 3, &d);
	counters += a;
	elements += c;
	numbers += d;
	count += bpf_usdt_arg_cnt(ctx);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`)
	p := testprog.Start(t, testprog.Build(t, "statics", "-O2", "-DVARIABLES"))
	k := started(t, tool(t, "run", "-p", fmt.Sprint(p.Pid), object), p.Pid)
	p.Round("1000")
	k.Signal(syscall.SIGINT)
	r := k.Result()
	for _, line := range []string{"counters = -999000", "elements = 504500", "numbers = 499500", "unread = 1000", "count = 4000"} {
		if !r.OK() || !slices.Contains(r.Lines, line) {
			t.Errorf("no %s:\n%s", line, r)
		}
	}
	if want := "programs get an error for argument 1, 8f@%xmm0: it is no integer"; !strings.Contains(r.Stderr, want) {
		t.Errorf("not told: %s", r)
	}
	checkUntouched(t, p.Pid)
}

// Structs of usdt.bpf.h are of the program, and those of libbpf differ by age: the arguments are right with each, or refused.
func TestRunStaticProbesOfEveryHeader(t *testing.T) {
	header, err := os.ReadFile("/usr/include/bpf/usdt.bpf.h")
	testprog.Need(t, "libbpf's usdt.bpf.h", err == nil)
	const kind, last, unknown = "\tenum __bpf_usdt_arg_type arg_type;\n", "\tBPF_USDT_ARG_REG_DEREF,\n", "\tdefault:\n\t\treturn -EINVAL;\n"
	for _, part := range []string{kind, last, unknown} {
		testprog.Need(t, "a usdt.bpf.h of before libbpf 1.7, which knows no index", strings.Count(string(header), part) == 1)
	}
	byIndex := strings.Replace(staticProgram, "char LICENSE", `
long by_index;

SEC("usdt/statics:statics:indexed")
int BPF_USDT(indexed, int a)
{
	by_index += a;
	return 0;
}

char LICENSE`, 1)
	const scaled = `	case BPF_USDT_ARG_SIB: {
		unsigned long index;

		if (bpf_probe_read_kernel(&val, sizeof(val), (void *)ctx + arg_spec->reg_off) ||
		    bpf_probe_read_kernel(&index, sizeof(index), (void *)ctx + arg_spec->idx_reg_off))
			return -EFAULT;
		if (bpf_probe_read_user(&val, sizeof(val), (void *)(val + (index << arg_spec->scale_bitshift) + arg_spec->val_off)))
			return -EFAULT;
		break;
	}
`
	for _, age := range []struct{ name, kind, says string }{
		{"without indexes, 16 bytes", "", "the program's usdt.bpf.h is older than that"},
		{"libbpf 1.7, 24 bytes", "\tenum __bpf_usdt_arg_type arg_type: 8;\n\t__u16 idx_reg_off: 12;\n\t__u16 scale_bitshift: 4;\n\t__u8 __reserved: 8;\n", ""},
		{"in 16 bytes", "\t__u32 arg_type: 8, idx_reg_off: 12, scale_bitshift: 4, __reserved: 8;\n", ""},
		{"of no libbpf", "\tenum __bpf_usdt_arg_type what;\n", "is of no usdt.bpf.h that is known: an argument's arg_type has 0 bits"},
	} {
		t.Run(age.name, func(t *testing.T) {
			text := string(header)
			if age.kind != "" {
				text = strings.Replace(text, kind, age.kind, 1)
				text = strings.Replace(text, last, last+"\tBPF_USDT_ARG_SIB,\n", 1)
				text = strings.Replace(text, unknown, scaled+unknown, 1)
				text = strings.ReplaceAll(text, "#include <linux/errno.h>", "#include <linux/errno.h>\n#include <linux/types.h>")
			}
			if strings.Contains(age.kind, "what") {
				text = strings.ReplaceAll(text, "arg_spec->arg_type", "arg_spec->what")
				text = strings.Replace(text, scaled, "", 1)
			}
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "usdt.bpf.h"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			object := compiled(t, strings.Replace(byIndex, "<bpf/usdt.bpf.h>", strconv.Quote(filepath.Join(dir, "usdt.bpf.h")), 1))
			p := testprog.Start(t, testprog.Build(t, "statics", "-O2", "-DINDEXED"))
			cmd := tool(t, "run", "-p", fmt.Sprint(p.Pid), "--at", "guarded=statics:statics:guarded", object)
			if age.says != "" {
				r := testprog.StartCmd(t, cmd).Result()
				if r.OK() || !strings.Contains(r.Stderr, age.says) {
					t.Errorf("%s", r)
				}
				return
			}
			k := started(t, cmd, p.Pid)
			awaitRound(t, p, "0", "semaphore 1")
			p.Round("1000")
			k.Signal(syscall.SIGINT)
			r := k.Result()
			for _, line := range []string{"by_register = 499500", "by_memory = -488064", "by_constant = -9000", "by_byte = 124716",
				"count = 4000", "absent = 1000", "texts = 499500", "by_index = -4500"} {
				if !r.OK() || !slices.Contains(r.Lines, line) {
					t.Errorf("no %s:\n%s", line, r)
				}
			}
			checkUntouched(t, p.Pid)
		})
	}
}

const printProgram = `
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

SEC("uretprobe/libc.so.6:getenv")
int returned(struct pt_regs *ctx)
{
	char comm[16];

	bpf_get_current_comm(comm, sizeof(comm));
	bpf_printk("%s: %d %s", comm, 7, (char *)PT_REGS_RC(ctx));
	bpf_printk("%s %d %d %d %s", "many", 1, 2, 3, comm);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`

// What %s prints is the text, from wherever it is: the program's stack, its constants, the target.
func TestRunPrintsText(t *testing.T) {
	object := compiled(t, printProgram)
	for _, width := range []string{"-m64", "-m32"} {
		t.Run(width, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "environs", "-O2", width))
			k := started(t, tool(t, "run", "-p", fmt.Sprint(p.Pid), object), p.Pid)
			p.Round("2")
			k.Signal(syscall.SIGINT)
			r := k.Result()
			head := fmt.Sprintf("environs-%d: ", p.Pid)
			for _, line := range []string{"environs: 7 a value of it", "environs: 7 (efault)", "many 1 2 3 environs"} {
				if !r.OK() || !slices.Contains(r.Lines, head+line) {
					t.Errorf("%s: no %s:\n%s\n%s", width, line, strings.Join(r.Lines, "\n"), r)
				}
			}
			checkUntouched(t, p.Pid)
		})
	}
}
