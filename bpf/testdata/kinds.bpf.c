// Maps that are stored as others, and helpers that are made: see stored.go and made.go.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct job {
	__u64 id;
	char name[12];
	__u32 weight;
};

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 5);
	__type(value, struct job);
} jobs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_STACK);
	__uint(max_entries, 3);
	__uint(value_size, 7);
} pile SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_BLOOM_FILTER);
	__uint(max_entries, 100);
	__uint(map_extra, 3);
	__type(value, __u64);
} seen SEC(".maps");

struct net {
	__u32 prefixlen;
	__u8 addr[5];
} __attribute__((packed));

struct {
	__uint(type, BPF_MAP_TYPE_LPM_TRIE);
	__uint(max_entries, 64);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct net);
	__type(value, __u64);
} nets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct job);
} tasks SEC(".maps");

long last, found;
struct job got;
char top[7];

SEC("uprobe/f")
int push(struct pt_regs *ctx)
{
	struct job j = {.id = PT_REGS_PARM1(ctx), .name = "a job", .weight = 7};
	last = bpf_map_push_elem(&jobs, &j, PT_REGS_PARM2(ctx) & 3);
	return 0;
}

SEC("uprobe/f")
int pop(struct pt_regs *ctx)
{
	struct job j;
	if (PT_REGS_PARM1(ctx) & 1)
		last = bpf_map_peek_elem(&jobs, &j);
	else
		last = bpf_map_pop_elem(&jobs, &j);
	got = j;
	return 0;
}

SEC("uprobe/f")
int stack(struct pt_regs *ctx)
{
	char v[7] = "stacked";
	v[0] = PT_REGS_PARM1(ctx);
	switch (PT_REGS_PARM2(ctx) & 3) {
	case 0:
		last = bpf_map_push_elem(&pile, v, BPF_ANY);
		break;
	case 1:
		last = bpf_map_push_elem(&pile, v, BPF_EXIST);
		break;
	case 2:
		last = bpf_map_pop_elem(&pile, top);
		break;
	default:
		last = bpf_map_peek_elem(&pile, top);
	}
	return 0;
}

SEC("uprobe/f")
int bloom(struct pt_regs *ctx)
{
	__u64 v = PT_REGS_PARM1(ctx);
	if (PT_REGS_PARM2(ctx) & 1)
		last = bpf_map_push_elem(&seen, &v, 0);
	else
		last = bpf_map_peek_elem(&seen, &v);
	return 0;
}

SEC("uprobe/f")
int trie(struct pt_regs *ctx)
{
	__u64 a = PT_REGS_PARM1(ctx), *v;
	struct net n = {.prefixlen = PT_REGS_PARM2(ctx) & 63, .addr = {a >> 32, a >> 24, a >> 16, a >> 8, a}};
	switch (PT_REGS_PARM3(ctx) & 3) {
	case 0:
		last = bpf_map_update_elem(&nets, &n, &a, BPF_ANY);
		break;
	case 1:
		last = bpf_map_delete_elem(&nets, &n);
		break;
	default:
		v = bpf_map_lookup_elem(&nets, &n);
		last = v ? 0 : -2;
		found = v ? *v : -1;
	}
	return 0;
}

SEC("uprobe/f")
int task(struct pt_regs *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct job *j;
	if (PT_REGS_PARM2(ctx) & 1) {
		last = bpf_task_storage_delete(&tasks, t);
		return 0;
	}
	j = bpf_task_storage_get(&tasks, t, 0, PT_REGS_PARM3(ctx) & 1 ? BPF_LOCAL_STORAGE_GET_F_CREATE : 0);
	found = j ? j->id : -1;
	if (j)
		j->id += PT_REGS_PARM1(ctx);
	return 0;
}
