// Loops of all kinds that programs have: callbacks, number iterators, and counted rounds.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 8);
	__type(key, __u32);
	__type(value, __u64);
} slots SEC(".maps");

struct sum {
	__u64 total, last;
};

__u64 sums[4];

static long add(__u32 i, struct sum *s)
{
	s->total += i;
	s->last = i;
	return s->total > 100000;
}

SEC("uprobe/f")
int looped(struct pt_regs *ctx)
{
	struct sum s = {};
	long n = bpf_loop(PT_REGS_PARM1(ctx) & 1023, add, &s, 0);

	sums[0] += s.total * 3 + s.last * 5 + n;
	__u32 key = s.last & 7;
	__u64 one = s.total;
	bpf_map_update_elem(&seen, &key, &one, BPF_ANY);
	return n;
}

static long nested(__u32 i, struct sum *s)
{
	struct sum inner = {};

	bpf_loop(i & 3, add, &inner, 0);
	s->total += inner.total + 1;
	return 0;
}

SEC("uprobe/f")
int twice(struct pt_regs *ctx)
{
	struct sum s = {};

	bpf_loop(20, nested, &s, 0);
	bpf_loop(PT_REGS_PARM2(ctx) & 15, add, &s, 0);
	sums[1] += s.total;
	return s.total;
}

static long collect(void *map, __u32 *key, __u64 *value, struct sum *s)
{
	s->total += *value * 31 + *key;
	s->last++;
	*value += 1;
	return 0;
}

SEC("uprobe/f")
int walked(struct pt_regs *ctx)
{
	struct sum s = {};
	long n = bpf_for_each_map_elem(&seen, collect, &s, 0);

	n += 100 * bpf_for_each_map_elem(&slots, collect, &s, 0);
	sums[2] += s.total + s.last;
	return n;
}

struct bpf_iter_num {
	__u64 opaque;
} __attribute__((aligned(8)));

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __attribute__((weak)) __ksym;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) __attribute__((weak)) __ksym;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __attribute__((weak)) __ksym;

SEC("uprobe/f")
int iterated(struct pt_regs *ctx)
{
	struct bpf_iter_num it;
	__u64 total = 0;
	int *n, from = -3, to = PT_REGS_PARM1(ctx) & 255;

	if (bpf_iter_num_new(&it, from, to) == 0) {
		while ((n = bpf_iter_num_next(&it))) {
			if (*n == 77)
				break;
			total += *n * 7;
			if (*n >= 0 && *n < 4)
				sums[*n] += 1;
		}
	}
	bpf_iter_num_destroy(&it);
	if (bpf_iter_num_new(&it, 5, 4) < 0)
		total++;
	bpf_iter_num_destroy(&it);
	return total;
}

// may_goto, for a clang that does not know it.
#define COUNTED(out) asm volatile goto("1: .byte 0xe5; .byte 0; .long ((%l[" #out "] - 1b - 8) / 8) & 0xffff; .short 0" : : : : out)

SEC("uprobe/f")
int counted(struct pt_regs *ctx)
{
	unsigned long v = PT_REGS_PARM1(ctx), rounds = 0;

	while (v != 1 && v != 0) {
		COUNTED(out);
		v = v & 1 ? v * 3 + 1 : v / 2;
		if (++rounds > 5000)
			break;
	}
out:
	sums[3] += rounds;
	return rounds;
}

char LICENSE[] SEC("license") = "GPL";
