package kernel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/target"
)

// stacks has the offsets and addresses by which every stack of a kernel is found that a task may go
// on from.
type stacks struct {
	size           int       // of a task's
	first          arch.Addr // of all tasks: init_task
	tasks          arch.Addr // offsets in a task: of the list of processes,
	signal, thread arch.Addr // of the part that a process's threads share, and of their list there
	head           arch.Addr // of that list, in the shared part
	stack          arch.Addr
	running, saved arch.Addr // whether a CPU has it, and if none, its stack pointer
	queues, idle   arch.Addr // of a CPU's own: its run queue; in that, its idle task
	interrupts     arch.Addr // of a CPU's own: the end of the stack that interrupts are served on, less a word
}

// maxTasks bounds a walk through memory that may be anything.
const maxTasks = 1 << 22

// findStacks reads where they are, once.
func (t *Target) findStacks() (*stacks, error) {
	if t.stacks != nil {
		return t.stacks, nil
	}
	types, err := t.kernel.Types()
	if err != nil {
		return nil, err
	}
	s := &stacks{}
	for _, f := range []struct {
		to        *arch.Addr
		tag, path string
	}{
		{&s.tasks, "task_struct", "tasks"}, {&s.signal, "task_struct", "signal"}, {&s.thread, "task_struct", "thread_node"},
		{&s.stack, "task_struct", "stack"}, {&s.head, "signal_struct", "thread_head"}, {&s.idle, "rq", "idle"},
		{&s.running, "task_struct", "on_cpu"}, {&s.saved, "task_struct", "thread.sp"},
	} {
		off, _, e := types.Offset(f.tag, f.path)
		*f.to = arch.Addr(off)
		err = errors.Join(err, e)
	}
	var begin, end arch.Addr
	for _, v := range []struct {
		to    *arch.Addr
		names []string
	}{
		{&s.first, []string{"init_task"}}, {&s.queues, []string{"runqueues"}},
		{&begin, []string{"init_stack"}}, {&end, []string{"__end_init_task", "__end_init_stack"}}, // since 6.11 the second
	} {
		var ok bool
		if *v.to, ok = t.firstOf(v.names...); !ok {
			err = errors.Join(err, fmt.Errorf("the kernel has no %s", strings.Join(v.names, " or ")))
		}
	}
	var ok bool
	if s.interrupts, ok = t.kernel.Table().Addr("hardirq_stack_ptr"); !ok { // since 6.2 in a structure
		hot, _ := t.kernel.Table().Addr("pcpu_hot")
		off, _, e := types.Offset("pcpu_hot", "hardirq_stack_ptr")
		s.interrupts = hot + arch.Addr(off)
		err = errors.Join(err, e)
	}
	if err != nil {
		return nil, fmt.Errorf("where the kernel's tasks sleep is not known: %w", err)
	}
	if s.size = int(end - begin); s.size < 4096 || s.size > 1<<20 || s.size&(s.size-1) != 0 {
		return nil, fmt.Errorf("stacks of %d bytes", s.size)
	}
	t.stacks = s
	return s, nil
}

// firstOf is the address of the first of several names that the kernel has: a thing may have
// another name in each age of the kernel.
func (t *Target) firstOf(names ...string) (arch.Addr, bool) {
	for _, name := range names {
		if a, ok := t.kernel.Table().Addr(name); ok {
			return a, true
		}
	}
	return 0, false
}

// pointer reads an address of the kernel's.
func (t *Target) pointer(at arch.Addr) arch.Addr {
	return arch.Addr(t.number(at, t.Arch().PtrSize))
}

// each calls f for the stack of every task, idle ones too, and for those that interrupts are served
// on. From live on the words are still in use: below, calls are over.
func (s *stacks) each(t *Target, f func(r arch.Range, live arch.Addr) error) error {
	cpus, err := t.perCPU()
	if err != nil {
		return err
	}
	stand := make(map[int]*standing)
	for _, th := range t.Threads() {
		var r arch.Regs
		if err := t.Regs(th, &r); err != nil {
			return err
		}
		st := &standing{task: t.TaskAt(th), sp: r.Addr(t.Arch().SP), user: r.Addr(t.Arch().PC) < kernelHalf}
		if low := t.pointer(st.task + s.stack); st.task != 0 && st.sp > low && st.sp <= low+arch.Addr(s.size) {
			st.own = true
		}
		stand[t.CPU(th)] = st
	}
	for cpu, base := range cpus {
		if top := t.pointer(base + s.interrupts); top != 0 {
			end := (top + 15) &^ 15
			r := arch.Range{Start: end - arch.Addr(s.size), End: end}
			live := r.Start // another stack may have been put on top of it
			switch st := stand[cpu]; {
			case st == nil:
			case st.user || st.own:
				live = r.End
			case r.Contains(st.sp):
				live = st.sp
			}
			if err := f(r, live); err != nil {
				return err
			}
		}
	}
	return s.eachTask(t, func(task arch.Addr) error {
		low := t.pointer(task + s.stack)
		if low == 0 {
			return nil // it is dead, and its stack has gone before it
		}
		r := arch.Range{Start: low, End: low + arch.Addr(s.size)}
		return f(r, s.live(t, task, r, stand))
	})
}

// standing is the state of a CPU that stands.
type standing struct {
	task arch.Addr // that it runs
	sp   arch.Addr
	user bool // in a program: nothing of the kernel is under way
	own  bool // the stack pointer is in the task's own stack
}

// live is from where on a task's stack is in use; all of it where that is not certain.
func (s *stacks) live(t *Target, task arch.Addr, r arch.Range, stand map[int]*standing) arch.Addr {
	for _, st := range stand {
		switch {
		case !st.user && st.sp > r.Start && st.sp <= r.End: // also of a task that is just being switched to
			return st.sp
		case st.task == task && st.user:
			return r.End
		case st.task == task:
			return r.Start
		}
	}
	if saved := t.pointer(task + s.saved); t.number(task+s.running, 4) == 0 && r.Contains(saved) {
		return saved
	}
	return r.Start
}

// eachTask calls f for every task, idle ones too, and those that end: a task is off the kernel's
// list before it is off its CPU, and may be interrupted there.
func (s *stacks) eachTask(t *Target, f func(task arch.Addr) error) error {
	seen := make(map[arch.Addr]bool)
	task := func(at arch.Addr) error {
		if at == 0 || seen[at] {
			return nil
		}
		seen[at] = true
		return f(at)
	}
	cpus, err := t.perCPU()
	if err != nil {
		return err
	}
	for _, base := range cpus {
		if err := task(t.pointer(base + s.queues + s.idle)); err != nil {
			return err
		}
	}
	for _, th := range t.Threads() {
		if err := task(t.TaskAt(th)); err != nil {
			return err
		}
	}
	for p := s.first; len(seen) < maxTasks; {
		if err := task(p); err != nil {
			return err
		}
		if list := t.pointer(p+s.signal) + s.head; list != s.head {
			for n := t.pointer(list); n != list && len(seen) < maxTasks; n = t.pointer(n) {
				if n == 0 {
					return errors.New("a list of threads ends nowhere")
				}
				if err := task(n - s.thread); err != nil {
					return err
				}
			}
		}
		next := t.pointer(p + s.tasks)
		if next == 0 {
			return errors.New("the list of tasks ends nowhere")
		}
		if p = next - s.tasks; p == s.first {
			return nil
		}
	}
	return errors.New("tasks without end")
}

var errRewriting = errors.New("the kernel is rewriting its text")

// Resting looks at every word of every stack, as far as it is in use. A CPU that stands on a stack
// of another kind (of an exception, of the entry from user mode) is a reason to come again later.
func (t *Target) Resting(in func(arch.Addr) bool) (found []arch.Addr, err error) {
	s, err := t.findStacks()
	if err != nil {
		return nil, err
	}
	var known []arch.Range
	word := t.Arch().PtrSize
	b := make([]byte, s.size)
	err = s.each(t, func(r arch.Range, live arch.Addr) error {
		known = append(known, r)
		words := b[:(r.End-live)&^arch.Addr(word-1)]
		if err := t.ReadAt(r.End-arch.Addr(len(words)), words); err != nil {
			return fmt.Errorf("a stack cannot be read: %w", err)
		}
		for i := 0; i < len(words); i += word {
			switch a := arch.Addr(t.Arch().Order.Uint64(words[i:])); {
			case a < kernelHalf:
			case t.isRewriting(a):
				return errRewriting
			case in(a):
				found = append(found, a)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, th := range t.Threads() {
		var r arch.Regs
		if err := t.Regs(th, &r); err != nil {
			return nil, err
		}
		sp, pc := r.Addr(t.Arch().SP), r.Addr(t.Arch().PC)
		if pc < kernelHalf {
			continue // in user mode nothing of the kernel is under way
		}
		if t.isRewriting(pc) {
			return nil, errRewriting
		}
		ok := false
		for _, k := range known {
			ok = ok || sp >= k.Start && sp <= k.End
		}
		if !ok {
			return nil, fmt.Errorf("CPU %d is on a stack that is not known", t.CPU(th))
		}
	}
	return found, nil
}

// readers are the functions that the kernel's own probes read memory with, since 5.8, and its
// tracers stacks.
func (t *Target) readers() (r target.Readers) {
	for to, name := range map[*arch.Addr]string{
		&r.Kernel: "copy_from_kernel_nofault", &r.KernelText: "strncpy_from_kernel_nofault",
		&r.User: "copy_from_user_nofault", &r.UserText: "strncpy_from_user_nofault",
	} {
		var ok bool
		if *to, ok = t.kernel.Table().Addr(name); !ok {
			return target.Readers{}
		}
	}
	r.Stack, _ = t.kernel.Table().Addr("stack_trace_save_regs")
	return r
}

// perCPU are the addresses of the memory that each CPU has of its own, by its number: of those
// that there are, and of those that may come.
func (t *Target) perCPU() (map[int]arch.Addr, error) {
	table := t.kernel.Table()
	offsets, ok1 := table.Addr("__per_cpu_offset")
	ids, ok2 := table.Addr("nr_cpu_ids")
	mask, ok3 := table.Addr("__cpu_possible_mask")
	if !ok1 || !ok2 || !ok3 {
		return nil, errors.New("the kernel's CPUs are not known: no __per_cpu_offset, nr_cpu_ids or __cpu_possible_mask")
	}
	n := int(t.number(ids, 4))
	if n <= 0 || n > 1<<13 {
		return nil, fmt.Errorf("%d CPUs", n)
	}
	bases := make(map[int]arch.Addr)
	for i := range n {
		if t.number(mask+arch.Addr(i/64*8), 8)>>(i%64)&1 != 0 {
			bases[i] = t.pointer(offsets + arch.Addr(8*i))
		}
	}
	return bases, nil
}

// CPUs tells how code of ours knows its CPU: by its number, which is in the CPU's own memory.
func (t *Target) CPUs() (c target.CPUs, err error) {
	number, ok := t.kernel.Table().Addr("cpu_number")
	if !ok { // 6.2 to 6.14 in a structure
		var off int
		hot, found := t.kernel.Table().Addr("pcpu_hot")
		types, err := t.kernel.Types()
		if err == nil {
			off, _, err = types.Offset("pcpu_hot", "cpu_number")
		}
		number, ok = hot+arch.Addr(off), found && err == nil
	}
	if !ok || t.current.offsets == 0 {
		return c, errors.New("how code knows the CPU and the task that it runs on is not known")
	}
	bases, err := t.perCPU()
	if err != nil {
		return c, err
	}
	for i, b := range bases {
		if got := t.number(b+number, 4); got != uint64(i) {
			return c, fmt.Errorf("the memory of CPU %d says that it is CPU %d's", i, got)
		}
		c.Numbers = append(c.Numbers, i)
	}
	slices.Sort(c.Numbers)
	c.Number, c.Current = int32(number), int32(t.current.variable)
	c.Readers, c.Carriers = t.readers(), t.trampolines()
	c.TID, c.TGID, c.Comm = int(t.current.pid), int(t.current.tgid), int(t.current.comm)
	c.Cred, c.UID, c.GID = int(t.current.cred), int(t.current.uid), int(t.current.gid)
	if len(c.Numbers) == 0 || arch.Addr(int64(c.Number)) != number || arch.Addr(int64(c.Current)) != t.current.variable || t.current.commSize != 16 {
		return c, errors.New("the CPUs' variables are out of reach")
	}
	return c, nil
}
