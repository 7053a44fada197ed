// Numbers that are read out of texts, of the target's, on the stack and in a global variable; ticks.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char text[80];
long value, answer;
unsigned long positive, ticks;
long positive_answer;
extern int CONFIG_HZ __kconfig;
long hz;

SEC("uprobe/f")
int numbers(struct pt_regs *ctx)
{
	unsigned long n = PT_REGS_PARM1(ctx);
	if (n > sizeof(text))
		n = sizeof(text);
	answer = bpf_strtol(text, n, PT_REGS_PARM2(ctx), &value);
	positive_answer = bpf_strtoul(text, n, PT_REGS_PARM2(ctx), &positive);
	return 0;
}

SEC("uprobe/f")
int of_target(struct pt_regs *ctx)
{
	char own[24] = {};
	long v;
	unsigned long u;
	bpf_probe_read_user_str(own, sizeof(own), (void *)PT_REGS_PARM1(ctx));
	answer = bpf_strtol(own, sizeof(own), 0, &v);
	value = v;
	positive_answer = bpf_strtoul(own, 8, 16, &u);
	positive = u;
	return 0;
}

// Texts of any characters that a number may have, for where contexts are numbers.
SEC("uprobe/f")
int made_up(struct pt_regs *ctx)
{
	static const char of[] = "0123456789 -xfA7";
	unsigned long w = PT_REGS_PARM3(ctx) * 0x9e3779b97f4a7c15 ^ PT_REGS_PARM4(ctx) << 44;
	char own[16];
#pragma unroll
	for (int i = 0; i < 16; i++)
		own[i] = of[w >> 4 * i & 15];
	answer = bpf_strtol(own, 1 + (PT_REGS_PARM1(ctx) & 15), PT_REGS_PARM2(ctx) & 24, &value);
	positive_answer = bpf_strtoul(own + 1, PT_REGS_PARM1(ctx) & 15, PT_REGS_PARM2(ctx) & 24, &positive);
	return 0;
}

SEC("uprobe/f")
int time_of(struct pt_regs *ctx)
{
	ticks = bpf_jiffies64();
	hz = CONFIG_HZ;
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
