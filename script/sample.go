package script

import (
	"errors"
	"fmt"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/host"
	"kprobe/internal/samples"
	"kprobe/script/plan"
	"kprobe/script/point"
)

// sampling is a probe whose program is run on samples of the process's threads.
type sampling struct {
	*interpreted
	taken *samples.Sampler
}

// sample begins to take the samples of an attach point.
func (t *target) sample(pt *point.Point, p *plan.Probe) error {
	program, err := t.r.interpreted(pt, p)
	if err != nil {
		return err
	}
	if pt.Sample.Kernel {
		period := time.Duration(pt.Sample.Period)
		t.looks = append(t.looks, &looking{program, period, time.Now().Add(period)})
		return nil
	}
	e := samples.Event{Type: samples.Software, Config: pt.Sample.Config, Period: pt.Sample.Period}
	if pt.Sample.Hardware {
		e.Type = samples.Hardware
	}
	taken, err := samples.Open(t.session.Target().PID(), t.session.Target().Arch().Name, e)
	if err != nil {
		return t.missing(pt, fmt.Errorf("%s: %w", pt.Text, err))
	}
	t.samplings = append(t.samplings, &sampling{program, taken})
	return nil
}

// sampled runs the programs on what was sampled since the last time. The threads have gone on: what
// is not in a sample's registers and stack is read as it is now.
func (t *target) sampled() error {
	for _, s := range t.samplings {
		err := s.taken.Read(func(one *samples.Sample) error {
			if t.r.exiting {
				return nil
			}
			if err := t.ofSample(s, one); err != nil {
				return err
			}
			return t.r.drain()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// ofSample runs a program for the thread that a sample is of.
func (t *target) ofSample(s *sampling, one *samples.Sample) error {
	s.vm.Env.Now = func(helper int32) uint64 {
		if helper == bpf.FnKtimeGetBootNs {
			return one.Time + host.BootAhead()
		}
		return one.Time
	}
	regs := s.vm.Proof.Program.PtRegs()
	return t.r.runOn(s.interpreted, &seen{
		of: t, pid: one.PID, tid: one.TID, comm: t.session.Comm(one.TID), cpu: one.CPU, pc: one.Reg(regs.Regs[regs.PC]), reg: one.Reg,
		read: func(addr uint64, p []byte) error {
			if one.Stack(addr, p) {
				return nil
			}
			return t.session.ReadMem(arch.Addr(addr), p)
		},
	})
}

// looking is a probe whose program is run for each CPU of a kernel, from time to time. The machine stands meanwhile.
type looking struct {
	*interpreted
	period time.Duration
	next   time.Time
}

// lookAtCPUs runs the programs whose time has come, and says when the next one's does.
func (t *target) lookAtCPUs() (due time.Duration, err error) {
	due = time.Hour
	for _, l := range t.looks {
		if now := time.Now(); !now.Before(l.next) {
			var errs []error
			if err := t.session.Snapshot(func(r *kprobe.Regs) { errs = append(errs, t.ofCPU(l, r)) }); err != nil {
				return 0, err
			}
			if err := errors.Join(append(errs, t.r.drain())...); err != nil {
				return 0, err
			}
			l.again(now)
		}
		due = min(due, max(time.Until(l.next), 0))
	}
	return due, nil
}

// again says when the next sample is due after one that began then. The machine stood for it, and now runs for as long at least. What
// is missed by that is not made up for.
func (l *looking) again(began time.Time) {
	now := time.Now()
	for earliest := now.Add(now.Sub(began)); l.next.Before(earliest); {
		l.next = l.next.Add(l.period)
	}
}

// ofCPU runs a program for a CPU as it stands.
func (t *target) ofCPU(l *looking, r *kprobe.Regs) error {
	l.vm.Env.Stack = func(limit int) []uint64 {
		pcs, _, err := r.Stack(limit)
		if err != nil || len(pcs) == 0 || pcs[0] < 1<<63 { // it is the program's, which has not called the kernel
			return nil
		}
		return pcs
	}
	return t.r.runOn(l.interpreted, t.standsAs(r))
}

// endSamples takes no more samples, and tells which were lost.
func (t *target) endSamples() {
	for _, s := range t.samplings {
		if n := s.taken.Lost(); n > 0 {
			fmt.Fprintf(t.r.s.opts.Errors, "Lost %d samples\n", n)
		}
		s.taken.Close()
	}
	t.samplings, t.looks = nil, nil
}
