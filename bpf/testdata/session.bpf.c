// One program at a function's entry and at its return.
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

extern bool bpf_session_is_return(void *ctx) __ksym;
extern __u64 *bpf_session_cookie(void *ctx) __ksym;

long entered, returned, last;

SEC("uprobe.session/jumpers:jumper")
int both(struct pt_regs *ctx)
{
	__u64 *kept = bpf_session_cookie(ctx);

	if (bpf_session_is_return(ctx)) {
		returned += *kept;
		last = PT_REGS_RC(ctx);
		return 0;
	}
	entered++;
	*kept = PT_REGS_PARM2(ctx);
	return PT_REGS_PARM2(ctx) & 1; // of every other call the return is not wanted
}

SEC("uprobe.session/jumpers:jump*")
int all(void *ctx)
{
	return 1;
}

char LICENSE[] SEC("license") = "GPL";
