// Maps of maps: arrays and hashes that have others, looked up in two steps.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct counts {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4);
	__type(key, __u32);
	__type(value, __u64);
} reads SEC(".maps"), writes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 4);
	__uint(key_size, sizeof(__u32));
	__array(values, struct counts);
} calls SEC(".maps") = {
	.values = { [0] = &reads, [2] = &writes },
};

struct sizes {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} small SEC(".maps"), large SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 2);
	__type(key, __u32);
	__array(values, struct sizes);
} classes SEC(".maps") = {
	.values = { &small, &large },
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 8);
	__type(key, __u64);
	__array(values, struct sizes);
} users SEC(".maps"); // which the loader fills

long missing, found;

SEC("uprobe/f")
int count(struct pt_regs *ctx)
{
	__u32 call = PT_REGS_PARM1(ctx), element = PT_REGS_PARM2(ctx);
	void *inner = bpf_map_lookup_elem(&calls, &call);
	if (!inner) {
		missing++;
		return 0;
	}
	__u64 *n = bpf_map_lookup_elem(inner, &element);
	if (n)
		*n += 1;
	return 0;
}

SEC("uprobe/f")
int size(struct pt_regs *ctx)
{
	__u64 size = PT_REGS_PARM1(ctx);
	__u32 class = size > 4096, id = PT_REGS_PARM2(ctx) & 15;
	void *inner = bpf_map_lookup_elem(&classes, &class);
	if (inner && bpf_map_update_elem(inner, &id, &size, BPF_NOEXIST))
		bpf_map_delete_elem(inner, &id);
	return 0;
}

SEC("uprobe/f")
int by_user(struct pt_regs *ctx)
{
	__u64 user = PT_REGS_PARM1(ctx), one = 1;
	__u32 id = PT_REGS_PARM2(ctx) & 15;
	void *inner = bpf_map_lookup_elem(&users, &user);
	found = inner != 0;
	if (!inner)
		return 0;
	__u64 *n = bpf_map_lookup_elem(inner, &id);
	if (n)
		__sync_fetch_and_add(n, 1);
	else
		bpf_map_update_elem(inner, &id, &one, BPF_NOEXIST);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
