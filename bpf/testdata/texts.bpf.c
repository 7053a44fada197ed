// Texts put together: bpf_snprintf in all its forms.
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define SIZE 96
char numbers[SIZE], fields[SIZE], words[SIZE], cut[8], local[SIZE], plain[SIZE], own[SIZE], cut_own[8];
long answers[12];
char comm[16];

SEC("uprobe/f")
int put_numbers(struct pt_regs *ctx)
{
	long a = PT_REGS_PARM1(ctx);
	answers[0] = BPF_SNPRINTF(numbers, sizeof(numbers), "%d %u %x %X %ld %lu %llx %i|%c%%", a, a, a, a, a, a, a, a, a);
	return 0;
}

SEC("uprobe/f")
int put_fields(struct pt_regs *ctx)
{
	long a = PT_REGS_PARM1(ctx);
	answers[1] = BPF_SNPRINTF(fields, sizeof(fields), "[%6d|%-6d|%06d|%+d|% d|%+05d|%08x|%-4x|%3c|%-3c]", a, a, a, a, a, a, a, a, a, a);
	return 0;
}

SEC("uprobe/f")
int put_words(struct pt_regs *ctx)
{
	char *at = (char *)PT_REGS_PARM1(ctx);
	bpf_get_current_comm(comm, sizeof(comm));
	answers[2] = BPF_SNPRINTF(words, sizeof(words), "%s:%12s:%-12s:%p:%px:%pus, %s", at, at, at, at, at, at, comm);
	return 0;
}

SEC("uprobe/f")
int put_cut(struct pt_regs *ctx)
{
	answers[3] = BPF_SNPRINTF(cut, sizeof(cut), "size %lu", PT_REGS_PARM1(ctx));
	answers[4] = BPF_SNPRINTF(cut, PT_REGS_PARM2(ctx) & 7, "%d of 100%%", (int)PT_REGS_PARM1(ctx));
	return 0;
}

SEC("uprobe/f")
int put_local(struct pt_regs *ctx)
{
	char text[40];
	answers[5] = BPF_SNPRINTF(text, sizeof(text), "tid %d", (int)bpf_get_current_pid_tgid());
	__builtin_memcpy(local, text, sizeof(text));
	answers[6] = BPF_SNPRINTF(plain, sizeof(plain), "100%% %s of %s", "all", "it");
	return 0;
}

SEC("uprobe/f")
int put_own(struct pt_regs *ctx)
{
	char comm[16], text[24];
	bpf_get_current_comm(comm, sizeof(comm));
	bpf_probe_read_user_str(text, sizeof(text), (void *)PT_REGS_PARM1(ctx));
	answers[7] = BPF_SNPRINTF(own, sizeof(own), "%s is %s|%12s|%-12s|%3s|%-3s|%d", comm, text, text, text, text, text, 7);
	answers[8] = BPF_SNPRINTF(cut_own, sizeof(cut_own), "%s+%s", comm, text);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
