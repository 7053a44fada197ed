// Counts by a key that is a string of the target: top-N by command, in one hash.
// With functions, a bounded loop, bpf_printk, and a filter set before loading.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct key {
	char name[32];
};

struct count {
	__u64 calls, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 256);
	__type(key, struct key);
	__type(value, struct count);
} top SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, 4);
	__uint(value_size, 4);
} lines SEC(".maps");

const volatile int verbose = 1;
__u64 letters[32];

static __noinline int upper(char *s, int n)
{
	int changed = 0;

	for (int i = 0; i < 32; i++) {
		if (i >= n)
			break;
		if (s[i] >= 'a' && s[i] <= 'z') {
			s[i] -= 32;
			changed++;
		}
	}
	return changed;
}

SEC("uprobe/redis-server:call+4")
int count(struct pt_regs *ctx)
{
	struct count *c, first = {1, 0};
	struct key k = {};
	long n = bpf_probe_read_user_str(k.name, sizeof(k.name), (void *)PT_REGS_PARM1(ctx));

	if (n <= 0)
		return 0;
	upper(k.name, n);
	letters[(k.name[0] - 'A') & 31]++;
	c = bpf_map_lookup_elem(&top, &k);
	if (c) {
		c->calls++;
		c->bytes += PT_REGS_PARM2(ctx);
	} else {
		first.bytes = PT_REGS_PARM2(ctx);
		bpf_map_update_elem(&top, &k, &first, BPF_NOEXIST);
	}
	if (verbose)
		bpf_printk("%s %d", k.name, (int)n);
	bpf_perf_event_output(ctx, &lines, BPF_F_CURRENT_CPU, &k, n & 31);
	return 0;
}

SEC("kprobe/do_nanosleep")
int deny(struct pt_regs *ctx)
{
	bpf_override_return(ctx, -1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
