// A latency histogram: the time between a function's entry and its return, by
// thread, in powers of two. What a user writes, but for the section's names.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u64);
} start SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} hist SEC(".maps");

const volatile __u64 least = 1; // set before loading
__u64 total;

static __always_inline __u32 log2l(__u64 v)
{
	__u32 r = 0;

	for (int i = 32; i > 0; i >>= 1)
		if (v >> i) {
			v >>= i;
			r += i;
		}
	return r;
}

SEC("uprobe/libc.so.6:malloc")
int enter(struct pt_regs *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&start, &tid, &now, BPF_ANY);
	return 0;
}

SEC("uretprobe/libc.so.6:malloc")
int leave(struct pt_regs *ctx)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 *begin = bpf_map_lookup_elem(&start, &tid);
	__u64 delta, *count;
	__u32 slot;

	if (!begin)
		return 0;
	delta = bpf_ktime_get_ns() - *begin;
	bpf_map_delete_elem(&start, &tid);
	if (delta < least)
		return 0;
	__sync_fetch_and_add(&total, 1);
	slot = log2l(delta);
	count = bpf_map_lookup_elem(&hist, &slot);
	if (count)
		*count += 1;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
