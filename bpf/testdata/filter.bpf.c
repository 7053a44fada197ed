// A filter by control groups as tools have it, which is off.
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
const volatile bool filter_cg = false;
long calls;
struct { __uint(type, BPF_MAP_TYPE_CGROUP_ARRAY); __type(key, __u32); __type(value, __u32); __uint(max_entries, 1); } cgroup_map SEC(".maps");
SEC("uprobe/f") int count(void *ctx)
{
	if (filter_cg && !bpf_current_task_under_cgroup(&cgroup_map, 0))
		return 0;
	calls++;
	return 0;
}
char LICENSE[] SEC("license") = "GPL";
