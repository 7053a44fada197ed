package kernel

import (
	"bytes"

	"kprobe/arch"
	"kprobe/internal/cpu"
	"kprobe/target"
)

// current says how to find the task that a CPU runs, and the task's members that events show. Zero
// where the kernel does not say: it has no type information.
type current struct {
	variable       arch.Addr // in the CPUs' own memory
	offsets        arch.Addr // of that memory, one for each CPU
	pid, tgid      arch.Addr
	comm, commSize arch.Addr
	cred, uid, gid arch.Addr // cred is 0 where they are not known

	// of asks the CPU itself, where it can tell.
	of func(cpu.Registers) (arch.Addr, error)
}

// findCurrent: the variable current_task, or since 6.2 the first in pcpu_hot.
func (t *Target) findCurrent() {
	types, err := t.kernel.Types()
	if err != nil {
		return
	}
	pid, _, err1 := types.Offset("task_struct", "pid")
	tgid, _, err2 := types.Offset("task_struct", "tgid")
	comm, size, err3 := types.Offset("task_struct", "comm")
	if err1 != nil || err2 != nil || err3 != nil {
		return
	}
	t.current = current{pid: arch.Addr(pid), tgid: arch.Addr(tgid), comm: arch.Addr(comm), commSize: arch.Addr(size)}
	cred, _, err1 := types.Offset("task_struct", "cred")
	uid, n, err2 := types.Offset("cred", "uid")
	gid, m, err3 := types.Offset("cred", "gid")
	if err1 == nil && err2 == nil && err3 == nil && n == 4 && m == 4 {
		t.current.cred, t.current.uid, t.current.gid = arch.Addr(cred), arch.Addr(uid), arch.Addr(gid)
	}
	if t.current.of = t.on().Task; t.current.of != nil {
		return
	}
	table := t.kernel.Table()
	variable, ok := table.Addr("current_task")
	if !ok {
		variable, ok = table.Addr("pcpu_hot")
	}
	offsets, ok2 := table.Addr("__per_cpu_offset")
	if ok && ok2 {
		t.current.variable, t.current.offsets = variable, offsets
	}
}

// TaskAt is the address of the task that a CPU runs; 0 where it is not known.
func (t *Target) TaskAt(th target.Thread) arch.Addr {
	if t.current.of != nil {
		task, err := t.current.of(standingCPU{t: t, th: th})
		if err != nil {
			return 0
		}
		return task
	}
	if t.current.offsets == 0 {
		return 0
	}
	ptr := arch.Addr(t.Arch().PtrSize)
	base := t.number(t.current.offsets+arch.Addr(t.CPU(th))*ptr, int(ptr))
	return arch.Addr(t.number(arch.Addr(base)+t.current.variable, int(ptr)))
}

// number reads an integer of the kernel's; 0 where there is no memory.
func (t *Target) number(at arch.Addr, size int) uint64 {
	b := make([]byte, size)
	if t.ReadAt(at, b) != nil {
		return 0
	}
	if size == 4 {
		return uint64(t.Arch().Order.Uint32(b))
	}
	return t.Arch().Order.Uint64(b)
}

// CPU is the CPU that a thread is, counted from 0.
func (t *Target) CPU(th target.Thread) int { return int(th) - 1 }

// Comm is the name of the task that a CPU runs.
func (t *Target) Comm(th target.Thread) string {
	task := t.TaskAt(th)
	if task == 0 {
		return ""
	}
	b := make([]byte, t.current.commSize)
	if t.ReadAt(task+t.current.comm, b) != nil {
		return ""
	}
	name, _, _ := bytes.Cut(b, []byte{0})
	return string(name)
}

// ThreadPID is the process of the task that a CPU runs.
func (t *Target) ThreadPID(th target.Thread) int { return t.taskNumber(th, t.current.tgid) }

// TaskID is the task that a CPU runs, what user space calls a thread id.
func (t *Target) TaskID(th target.Thread) int { return t.taskNumber(th, t.current.pid) }

func (t *Target) taskNumber(th target.Thread, at arch.Addr) int {
	task := t.TaskAt(th)
	if task == 0 {
		return 0
	}
	return int(int32(t.number(task+at, 4)))
}
