package trace

import (
	"syscall"

	"kprobe"
	"kprobe/arch"
	"kprobe/event"
	"kprobe/internal/samples"
)

// Sampled has the stacks of a process's threads while they run, by the kernel's clock of each
// thread: no thread stops for it. Its methods are not safe for concurrent use.
type Sampled struct {
	s     *kprobe.Session
	taken *samples.Sampler
	names stackNames
}

// samplePeriod is of a thread's own running time: 99 samples a second, which fall in step with no timer.
const samplePeriod = 10_101_010

// NewSampled begins to take samples. Errors: ENOTSUP where the target is not a process of x86-64 on this system, EACCES where
// the kernel lets this user have none.
func NewSampled(s *kprobe.Session) (*Sampled, error) {
	if local(s) == 0 || !s.Arch().Stacks {
		return nil, fail(syscall.ENOTSUP, "running stacks are sampled of processes of x86-64 only")
	}
	const taskClock = 1
	taken, err := samples.Open(s.Target().PID(), s.Arch().Name, samples.Event{Type: samples.Software, Config: taskClock, Period: samplePeriod})
	if err != nil {
		return nil, err
	}
	return &Sampled{s: s, taken: taken, names: newStackNames(s)}, nil
}

// Read gives the stacks since the last time, the innermost function first. A sample must be read soon: where return probes
// have swapped an address, it is told by the calls that are under way now. end is why a stack does not go on to
// its thread's first function.
func (x *Sampled) Read(sink func(tid int, stack []event.Frame, end string)) error {
	return x.taken.Read(func(one *samples.Sample) error {
		pc := one.Reg("rip")
		if !x.known(pc) { // in code of ours, mostly, whose stack is another
			sink(one.TID, []event.Frame{{Addr: arch.Addr(pc)}}, "")
			return nil
		}
		sp := one.Reg("rsp")
		pcs, end, err := x.s.StackFrom(pc, sp, one.Reg("rbp"), func(addr arch.Addr, p []byte) error {
			// The thread has gone on: of its stack only what was copied then is true. Below the stack pointer nothing is asked for,
			// but memory is read in blocks.
			below := min(uint64(len(p)), max(sp, uint64(addr))-uint64(addr))
			if !one.Stack(uint64(addr)+below, p[below:]) {
				return syscall.EFAULT
			}
			return nil
		}, MaxStack)
		if err != nil {
			return err
		}
		stack := make([]event.Frame, len(pcs))
		for i, pc := range pcs {
			stack[i].Addr = arch.Addr(pc)
		}
		sink(one.TID, x.names.frames(stack, false), end)
		return nil
	})
}

// known tells whether an address is in a file, or in code that its runtime has named.
func (x *Sampled) known(pc uint64) bool {
	if x.names.space.ModuleAt(arch.Addr(pc)) != nil {
		return true
	}
	_, _, _, ok := x.names.jit.At(arch.Addr(pc))
	return ok
}

// Lost counts the samples that found no room so far.
func (x *Sampled) Lost() uint64 { return x.taken.Lost() }

// Close takes no more samples.
func (x *Sampled) Close() { x.taken.Close() }
