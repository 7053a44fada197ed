package kernel

import (
	"kprobe/arch"
)

// keeper is one way in which the kernel takes return addresses out of their slots,
// told by its type information.
type keeper struct {
	of    string // the member of task_struct that the task's records hang on
	node  string // the struct of a record
	ret   string // its members: the return address, and the slot that it was in
	slot  string
	list  string // the member that links records, if they are a list
	depth string // the member of task_struct that tells how many there are, if they are an array
}

// keepers: return probes of the guest's own (rethook, before 5.18 their own list)
// and its function graph tracer.
var keepers = []keeper{
	{of: "rethooks", node: "rethook_node", ret: "ret_addr", slot: "frame", list: "llist"},
	{of: "kretprobe_instances", node: "kretprobe_instance", ret: "ret_addr", slot: "fp", list: "llist"},
	{of: "ret_stack", node: "ftrace_ret_stack", ret: "ret", slot: "retp", depth: "curr_ret_stack"},
}

// maxRecords bounds the records that are followed: memory may be anything.
const maxRecords = 1 << 10

// Kept tells where the kernel keeps a return address that stood in a slot. Nothing
// is known where there is no type information.
func (t *Target) Kept(slot, ret arch.Addr) (at []arch.Addr) {
	types, err := t.kernel.Types()
	if err != nil {
		return nil
	}
	offset := func(tag, path string) (arch.Addr, bool) {
		off, _, err := types.Offset(tag, path)
		return arch.Addr(off), err == nil
	}
	stacks, err := t.findStacks()
	if err != nil {
		return nil
	}
	var tasks []arch.Addr
	if stacks.eachTask(t, func(task arch.Addr) error { tasks = append(tasks, task); return nil }) != nil {
		return nil
	}
	for _, k := range keepers {
		of, ok1 := offset("task_struct", k.of)
		retOff, ok2 := offset(k.node, k.ret)
		slotOff, ok3 := offset(k.node, k.slot)
		if !ok1 || !ok2 || !ok3 {
			continue // not this kernel's
		}
		see := func(record arch.Addr) {
			if t.pointer(record+retOff) == ret && t.pointer(record+slotOff) == slot {
				at = append(at, record+retOff)
			}
		}
		if k.list != "" {
			link, ok := offset(k.node, k.list)
			for _, task := range tasks {
				node := t.pointer(task + of)
				for n := 0; ok && node != 0 && n < maxRecords; n++ {
					see(node - link)
					node = t.pointer(node)
				}
			}
			continue
		}
		depth, ok := offset("task_struct", k.depth)
		size := arch.Addr(types.Size(k.node))
		for _, task := range tasks {
			if base := t.pointer(task + of); ok && base != 0 {
				top := int32(t.number(task+depth, 4))
				for i := min(top, maxRecords); i >= 0; i-- {
					see(base + arch.Addr(i)*size)
				}
			}
		}
	}
	return at
}
