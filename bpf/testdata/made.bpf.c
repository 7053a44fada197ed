// Helpers that are made of others: tail calls, texts compared, stacks.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

long last, walked;
__u64 frames[6];
char comm[16];

int first(struct pt_regs *ctx);
int second(struct pt_regs *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 4);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} next SEC(".maps") = {
	.values = {
		[0] = (void *)&first,
		[2] = (void *)&second,
	},
};

SEC("uprobe")
int second(struct pt_regs *ctx)
{
	last = last * 10 + 2;
	return 0;
}

SEC("uprobe")
int first(struct pt_regs *ctx)
{
	last = last * 10 + 1;
	return 0;
}

SEC("uprobe/f")
int calls(struct pt_regs *ctx)
{
	last = 5;
	bpf_tail_call(ctx, &next, PT_REGS_PARM1(ctx));
	last = last * 10 + 9;
	return 0;
}

SEC("uprobe/f")
int texts(struct pt_regs *ctx)
{
	bpf_get_current_comm(comm, sizeof(comm));
	last = bpf_strncmp(comm, sizeof(comm), "redis-server");
	if (bpf_strncmp(comm, 3, "red") == 0)
		walked++;
	return 0;
}

SEC("uprobe/f")
int stacks(struct pt_regs *ctx)
{
	walked = bpf_get_stack(ctx, frames, sizeof(frames), BPF_F_USER_STACK | (PT_REGS_PARM1(ctx) & 3));
	return 0;
}

SEC("uprobe.s/f")
int others(struct pt_regs *ctx)
{
	struct bpf_pidns_info ns = {};
	last = bpf_get_ns_current_pid_tgid(0, 0, &ns, sizeof(ns));
	walked = ((long)ns.tgid << 32) | ns.pid;
	if (bpf_copy_from_user(comm, 8, (void *)PT_REGS_PARM1(ctx)))
		comm[0] = '!';
	return 0;
}
