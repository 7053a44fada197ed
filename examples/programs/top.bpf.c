// Which environment variables a program asks for most: a count by name. A name that is
// new is told at once, as a record.
//
//	clang -target bpf -D__TARGET_ARCH_x86 -O2 -g -c top.bpf.c
//	kprobe run -p PID top.bpf.o
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

struct name {
	char text[32];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct name);
	__type(value, __u64);
} counts SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 * 1024);
} fresh SEC(".maps");

SEC("uprobe/libc.so.6:getenv")
int BPF_KPROBE(asked, const char *name)
{
	struct name key = {}, *told;
	__u64 one = 1, *count;

	if (bpf_probe_read_user_str(key.text, sizeof(key.text), name) < 0)
		return 0;
	count = bpf_map_lookup_elem(&counts, &key);
	if (count) {
		*count += 1;
		return 0;
	}
	bpf_map_update_elem(&counts, &key, &one, BPF_NOEXIST);
	told = bpf_ringbuf_reserve(&fresh, sizeof(*told), 0);
	if (told) {
		*told = key;
		bpf_ringbuf_submit(told, 0);
	}
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
