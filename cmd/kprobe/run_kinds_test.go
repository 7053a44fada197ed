package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

const kindsProgram = `
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

enum side { LEFT, RIGHT = -7 };

struct event {
	int n;
	enum side side;
	unsigned char low : 3, high : 5;
	bool odd;
	short pair[2];
	char comm[16];
} *unused_event __attribute__((unused)), last_event;

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} told SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 3);
	__type(value, int);
} newest SEC(".maps");

struct net { __u32 prefixlen; __u8 data[4]; };

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct net);
	__type(value, long);
} halves SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__uint(value_size, 4);
} next SEC(".maps");

struct tally {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, long);
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 4);
	__type(key, int);
	__array(values, struct tally);
} tallies SEC(".maps");

long calls, odds, evens, deep;
__u64 frames[16];

SEC("uprobe") int odd(void *ctx) { odds++; return 0; }
SEC("uprobe") int even(void *ctx) { evens++; return 0; }

SEC("uprobe/jumpers:jumper")
int call(struct pt_regs *ctx)
{
	int n = PT_REGS_PARM2(ctx);
	struct net key = { .prefixlen = 1, .data = { n << 7 } };
	long one = 1, *v;
	struct event *e;
	__u64 back = 0;

	calls++;
	bpf_probe_read_user(&back, sizeof(back), (void *)PT_REGS_SP(ctx));
	if (bpf_get_stack(ctx, frames, sizeof(frames), BPF_F_USER_STACK) >= 16 && frames[0] == PT_REGS_IP(ctx) && frames[1] == back)
		deep++;
	bpf_map_push_elem(&newest, &n, BPF_EXIST);
	key.prefixlen = 32;
	v = bpf_map_lookup_elem(&halves, &key);
	if (v) {
		(*v)++;
	} else {
		key.prefixlen = 1;
		bpf_map_update_elem(&halves, &key, &one, BPF_ANY);
	}
	if (n == 77 && (e = bpf_ringbuf_reserve(&told, sizeof(*e), 0))) {
		e->n = -n;
		e->side = RIGHT;
		e->low = 5;
		e->high = 17;
		e->odd = n & 1;
		e->pair[0] = 1;
		e->pair[1] = -1;
		bpf_get_current_comm(e->comm, sizeof(e->comm));
		last_event = *e;
		bpf_ringbuf_submit(e, 0);
	}
	int thousands = n >= 1000, half = n >= 500;
	void *tally = bpf_map_lookup_elem(&tallies, &thousands);
	if (tally && (v = bpf_map_lookup_elem(tally, &half)))
		(*v)++;
	bpf_tail_call(ctx, &next, n & 1);
	calls = -1000000;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`

// Maps and calls that become others run in a live target as they do in the interpreter, and are
// printed by the object's types.
func TestRunKinds(t *testing.T) {
	object := compiled(t, kindsProgram)
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2", "-fno-omit-frame-pointer"))
	want := p.Round("1000")[0]
	pid := fmt.Sprint(p.Pid)
	k := started(t, tool(t, "run", "-p", pid, "--tail", "next[0]=even", "--tail", "next[1]=odd", "--inner", "tallies[0]=low", "--as", "told=event", object), p.Pid)
	if got := p.Round("1000")[0]; got != want {
		t.Errorf("the program's result is %q under probes, %q without", got, want)
	}
	k.Signal(syscall.SIGINT)
	r := k.Result()
	out := strings.Join(r.Lines, "\n")
	const event = `{n=-77, side=RIGHT, low=5, high=17, odd=true, pair=[1, -1], comm="jumpers"}`
	for _, want := range []string{
		"told: " + event + "\n",
		"last_event = " + event + "\n",
		"newest\n  997\n  998\n  999\n",
		"  {prefixlen=1, data=[0, 0, 0, 0]}: 500\n", "  {prefixlen=1, data=[128, 0, 0, 0]}: 500\n",
		"calls = 1000\n", "odds = 500\n", "evens = 500\n", "deep = 1000\n",
		"low\n  0: 500\n  1: 500\n",
	} {
		if !strings.Contains(out+"\n", want) {
			t.Errorf("no %q", want)
		}
	}
	if t.Failed() || !r.OK() {
		t.Errorf("%s\n%s", out, r)
	}
	checkUntouched(t, p.Pid)
	refused(t, run(t, "run", "-p", pid, "--tail", "next[2]=odd", object), "2 places, none of index 2")
	refused(t, run(t, "run", "-p", pid, "--tail", "next=odd", object), "it must be MAP[NUMBER]=NAME")
	refused(t, run(t, "run", "-p", pid, "--inner", "tallies[0]=halves", object), "is not like those")
	refused(t, run(t, "run", "-p", pid, "--inner", "tallies[0]=low", "--tail", "next[0]=odd", "--as", "told=nothing", object), `no type "nothing"`)
	if r := run(t, "run", "-p", pid, "--inner", "tallies[0]=low", "--as", "told=nothing", object); r.OK() || !strings.Contains(r.Stderr, `no program is in the program array "next"`) {
		t.Errorf("a program array that is empty is not told: %s", r)
	}
}

const signalProgram = `
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

SEC("uprobe/jumpers:jumper")
int call(struct pt_regs *ctx)
{
	if (PT_REGS_PARM2(ctx) == 77)
		bpf_send_signal(10); /* SIGUSR1, which ends it */
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`

// A program's signal comes to the process that it runs in, if that is allowed.
func TestRunSignal(t *testing.T) {
	object := compiled(t, signalProgram)
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	refused(t, run(t, "run", "-p", fmt.Sprint(p.Pid), object), "is not supported here unless it is allowed: --unsafe does")
	k := started(t, tool(t, "run", "-p", fmt.Sprint(p.Pid), "--unsafe", object), p.Pid)
	p.Send("1000")
	if w := p.Wait(); !w.Signaled() || w.Signal() != syscall.SIGUSR1 {
		t.Errorf("the program ended with %#x, not by signal %d", uint32(w), syscall.SIGUSR1)
	}
	if r := k.Result(); !r.OK() {
		t.Error(r)
	}
}

const sessionProgram = `
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

extern bool bpf_session_is_return(void) __ksym;
extern __u64 *bpf_session_cookie(void) __ksym;

long entered, returned, sum;

SEC("uprobe.session/jumpers:jump*")
int both(struct pt_regs *ctx)
{
	__u64 *kept = bpf_session_cookie();

	if (bpf_session_is_return()) {
		returned++;
		sum += *kept;
		return 0;
	}
	entered++;
	*kept = PT_REGS_PARM2(ctx);
	return PT_REGS_PARM2(ctx) & 1;
}

char LICENSE[] SEC("license") = "GPL";
`

// A program for a function's entry and its return, which says at the entry whether it is for the return, too.
func TestRunSession(t *testing.T) {
	object := compiled(t, sessionProgram)
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	want := p.Round("1000")[0]
	k := started(t, tool(t, "run", "-p", fmt.Sprint(p.Pid), object), p.Pid)
	if got := p.Round("1000")[0]; got != want {
		t.Errorf("the program's result is %q under probes, %q without", got, want)
	}
	k.Signal(syscall.SIGINT)
	r := k.Result()
	out := strings.Join(r.Lines, "\n") + "\n"
	for _, want := range []string{"entered = 1000\n", "returned = 500\n", "sum = 249500\n"} {
		if !r.OK() || !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s\n%s", want, out, r)
		}
	}
	checkUntouched(t, p.Pid)
}

const writeProgram = `
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct node { struct node *next; int value; const char *name; };

long wrote, nowhere, text;

SEC("uprobe/args:args_pointer")
int change(struct pt_regs *ctx)
{
	struct node *first = (void *)PT_REGS_PARM1(ctx), *second = 0;
	int value = 815;

	bpf_probe_read_user(&second, sizeof(second), &first->next);
	wrote = !bpf_probe_write_user(&second->value, &value, sizeof(value));
	nowhere = bpf_probe_write_user(0, &value, sizeof(value));
	text = bpf_probe_write_user((void *)PT_REGS_IP(ctx), &value, sizeof(value));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
`

// A program may write to its process's memory, if that is allowed, and where the process may.
func TestRunWrites(t *testing.T) {
	object := compiled(t, writeProgram)
	p := testprog.Start(t, testprog.Build(t, "args", "-O2", "-g"))
	refused(t, run(t, "run", "-p", fmt.Sprint(p.Pid), object), "(bpf_probe_write_user) is not supported here unless it is allowed: --unsafe does")
	k := started(t, tool(t, "run", "-p", fmt.Sprint(p.Pid), "--unsafe", object), p.Pid)
	if got := strings.Join(p.Round("1"), "\n"); !strings.Contains(got, "args_pointer 815 second -42") {
		t.Errorf("the program prints\n%s", got)
	}
	k.Signal(syscall.SIGINT)
	r := k.Result()
	out := strings.Join(r.Lines, "\n") + "\n"
	for _, want := range []string{"wrote = 1\n", "nowhere = -14\n", "text = -14\n"} {
		if !r.OK() || !strings.Contains(out, want) {
			t.Errorf("no %q:\n%s\n%s", want, out, r)
		}
	}
	checkUntouched(t, p.Pid)
}
