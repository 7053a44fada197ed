// What malloc gave and nobody has given back, with the stack that asked for it. Blocks
// under a size are left out.
//
//	clang -target bpf -D__TARGET_ARCH_x86 -O2 -g -c allocs.bpf.c
//	kprobe run -p PID --set least=1000 allocs.bpf.o
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stddef.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define DEPTH 32

struct block {
	__u64 size;
	__u64 when;  // nanoseconds
	__s64 stack; // an id in stacks, or an error
};

const volatile __u64 least = 0; // bytes

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__type(key, __u32); // thread
	__type(value, __u64);
} asked SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 100000);
	__type(key, __u64); // address
	__type(value, struct block);
} blocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1024);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, DEPTH * sizeof(__u64));
} stacks SEC(".maps");

SEC("uprobe/libc.so.6:malloc")
int BPF_KPROBE(malloc_enter, size_t size)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 bytes = size;

	if (bytes >= least)
		bpf_map_update_elem(&asked, &tid, &bytes, BPF_ANY);
	return 0;
}

SEC("uretprobe/libc.so.6:malloc")
int BPF_KRETPROBE(malloc_exit, void *block)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid();
	__u64 *size = bpf_map_lookup_elem(&asked, &tid), addr = (__u64)block;
	struct block b = {};

	if (!size)
		return 0;
	b.size = *size;
	b.when = bpf_ktime_get_ns();
	bpf_map_delete_elem(&asked, &tid);
	if (!addr)
		return 0;
	b.stack = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	bpf_map_update_elem(&blocks, &addr, &b, BPF_ANY);
	return 0;
}

SEC("uprobe/libc.so.6:free")
int BPF_KPROBE(free_enter, void *block)
{
	__u64 addr = (__u64)block;

	bpf_map_delete_elem(&blocks, &addr);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
