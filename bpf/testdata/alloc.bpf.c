// What malloc gave and free has not taken back, with the stack that asked for it; and
// every block as a record.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct block {
	__u64 size;
	__u64 when;
	__s32 stack;
};

struct event {
	__u64 addr, size;
	__u32 tid;
	__u8 freed;
	char comm[16];
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct block);
} blocks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 256);
	__type(key, __u64);
	__type(value, __u64);
} sizes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 128);
	__uint(key_size, 4);
	__uint(value_size, 16 * 8);
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} events SEC(".maps");

static __noinline void report(__u64 addr, __u64 size, int freed)
{
	struct event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e)
		return;
	e->addr = addr;
	e->size = size;
	e->tid = (__u32)bpf_get_current_pid_tgid();
	e->freed = freed;
	bpf_get_current_comm(e->comm, sizeof(e->comm));
	bpf_ringbuf_submit(e, 0);
}

SEC("uprobe/libc.so.6:malloc")
int malloc_enter(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid(), size = PT_REGS_PARM1(ctx);

	bpf_map_update_elem(&sizes, &id, &size, BPF_ANY);
	return 0;
}

SEC("uretprobe/libc.so.6:malloc")
int malloc_exit(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid(), addr = PT_REGS_RC(ctx);
	__u64 *size = bpf_map_lookup_elem(&sizes, &id);
	struct block b = {};

	if (!size || !addr)
		return 0;
	b.size = *size;
	b.when = bpf_ktime_get_ns();
	b.stack = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK);
	bpf_map_update_elem(&blocks, &addr, &b, BPF_ANY);
	bpf_map_delete_elem(&sizes, &id);
	report(addr, b.size, 0);
	return 0;
}

SEC("uprobe/libc.so.6:free")
int free_enter(struct pt_regs *ctx)
{
	__u64 addr = PT_REGS_PARM1(ctx);
	struct block *b = bpf_map_lookup_elem(&blocks, &addr);

	if (!b)
		return 0;
	report(addr, b->size, 1);
	bpf_map_delete_elem(&blocks, &addr);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
