// A function that does not run: its callers get an answer of our choice.
//
//	clang -target bpf -D__TARGET_ARCH_x86 -O2 -g -c deny.bpf.c
//	kprobe run -p PID --set answer=4242 deny.bpf.o
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>

const volatile __u64 answer = 0;
__u64 denied;

SEC("uprobe/libc.so.6:getpid")
int deny(struct pt_regs *ctx)
{
	bpf_override_return(ctx, answer);
	if (++denied == 1)
		bpf_printk("the first call is told %d", answer);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
