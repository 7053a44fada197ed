// How long calls of a function take: a histogram in powers of two of microseconds.
//
//	clang -target bpf -D__TARGET_ARCH_x86 -O2 -g -c latency.bpf.c
//	kprobe run -p PID latency.bpf.o
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define SLOTS 26

const volatile __u64 unit = 1000; // nanoseconds
__u32 hist[SLOTS];

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32);
	__type(value, __u64);
} starts SEC(".maps");

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

SEC("uprobe/libc.so.6:usleep")
int BPF_KPROBE(entered)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 now = bpf_ktime_get_ns();

	bpf_map_update_elem(&starts, &tid, &now, BPF_ANY);
	return 0;
}

SEC("uretprobe/libc.so.6:usleep")
int BPF_KRETPROBE(returned)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), slot;
	__u64 *start = bpf_map_lookup_elem(&starts, &tid);

	if (!start)
		return 0;
	slot = log2l((bpf_ktime_get_ns() - *start) / unit);
	if (slot >= SLOTS)
		slot = SLOTS - 1;
	__sync_fetch_and_add(&hist[slot], 1);
	bpf_map_delete_elem(&starts, &tid);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
