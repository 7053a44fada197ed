// Signals that programs send to where they run.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

long answers[2];

SEC("uprobe/f")
int tell(struct pt_regs *ctx)
{
	answers[0] = bpf_send_signal(PT_REGS_PARM1(ctx));
	answers[1] = bpf_send_signal_thread(PT_REGS_PARM2(ctx));
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
