package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"kprobe"
	"kprobe/internal/host"
	"kprobe/internal/mem"
	"kprobe/internal/proc"
	"kprobe/script"
	"kprobe/target/ptrace"
)

// joining puts a script to work in several processes: those that were named, or all that have mapped what it
// names, with their children and those that come later.
type joining struct {
	request *scriptRequest
	users   *script.Users // nil: those that were named
	run     atomic.Pointer[script.Run]
	ctx     context.Context // is over when the run is to end
	failed  error           // why it could not begin
	coming  sync.WaitGroup  // those that have executed a program just now
	warned  int             // processes that were not to be had
}

// mapped is told of what a process has mapped or executed.
func (j *joining) mapped(s *kprobe.Session) {
	if run := j.run.Load(); run != nil {
		run.Remap(s)
	}
}

// begin has the processes join that there are, and then, until the context ends, those that come. The result is
// closed when that is over.
func (j *joining) begin(ctx context.Context) <-chan struct{} {
	j.ctx = ctx
	ended := make(chan struct{})
	pids := j.request.pids
	if j.users != nil {
		_ = j.users.Executed(func(pid int) { j.executing(ctx, pid) }) // who may not know that finds them a little later
		pids, j.failed = j.users.Look()
	}
	if j.users == nil && len(pids) < 2 {
		close(ended)
		return ended
	}
	done := progress(fmt.Sprintf("attaching to %d processes", len(pids)))
	j.join(ctx, pids)
	done()
	if j.users == nil || j.failed != nil {
		close(ended)
		return ended
	}
	go func() {
		defer close(ended)
		defer j.coming.Wait()
		for {
			if j.users.Wait(ctx); ctx.Err() != nil {
				return
			}
			pids, err := j.users.Look()
			if err != nil {
				report(err)
				return
			}
			j.join(ctx, pids)
		}
	}()
	return ended
}

// join attaches to processes. One that was named must be there; of others it is told which are not.
func (j *joining) join(ctx context.Context, pids []int) {
	for _, pid := range pids {
		if ctx.Err() != nil {
			return
		}
		if j.users != nil && follows(pid) {
			j.users.Again(pid)
			continue
		}
		err := j.attach(pid)
		switch {
		case err == nil:
		case j.users == nil:
			j.failed = err
			return
		case !ours(pid) && !errors.Is(err, os.ErrProcessDone) && proc.Thread(pid).HasMemory():
			j.warn(pid, err)
		}
	}
}

// mostWarned is how many processes are told of one by one.
const mostWarned = 8

func (j *joining) warn(pid int, err error) {
	j.warned++
	switch {
	case j.request.silent:
	case j.warned <= mostWarned:
		fmt.Fprintf(os.Stderr, "WARNING: process %d is not probed: %v\n", pid, err)
	case j.warned == mostWarned+1:
		fmt.Fprintln(os.Stderr, "WARNING: more processes are not probed")
	}
}

// follows tells whether a process may be about to be followed, as a child of one that is probed: nobody may take it before.
func follows(pid int) bool {
	const soon = 300 * time.Millisecond
	parent, err := proc.Thread(pid).Status("PPid")
	if err != nil {
		return false
	}
	n, err := strconv.Atoi(parent)
	const tick = time.Second / 100 // of proc_pid_stat(5), on every Linux
	age := time.Duration(host.Boot.Now()) - time.Duration(proc.Process(pid).Start())*tick
	return err == nil && age < soon && ours(n)
}

// ours tells whether a process is traced by this one already: it is a child of another that is probed.
func ours(pid int) bool {
	tracer, err := proc.Thread(pid).Status("TracerPid")
	if err != nil {
		return false
	}
	_, err = os.Stat(fmt.Sprintf("/proc/self/task/%s", tracer))
	return err == nil
}

// executing takes hold of a process that is about to execute a program. When it has done so, it joins before it runs an instruction of
// it. What is ours already will, too.
func (j *joining) executing(ctx context.Context, pid int) {
	if ctx.Err() != nil || follows(pid) || ours(pid) {
		return
	}
	p, err := ptrace.Attach(pid)
	if err != nil {
		return // it is told of when it is found by what it has mapped
	}
	j.coming.Add(1)
	go func() {
		defer j.coming.Done()
		stands(pid)
		if err := j.open(p, true); err != nil && proc.Thread(pid).HasMemory() {
			j.warn(pid, err)
		}
	}()
}

// stands waits until a process that was taken hold of stands still, as it does when it has executed a program, or for so long that
// it cannot be about to.
func stands(pid int) {
	const longest = 500 * time.Millisecond
	for until := time.Now().Add(longest); time.Now().Before(until); time.Sleep(time.Millisecond / 4) {
		if stat := proc.Thread(pid).Stat(); len(stat) == 0 || stat[0] == "t" {
			return
		}
	}
}

func (j *joining) attach(pid int) error {
	p, err := ptrace.Attach(pid)
	if err != nil {
		return err
	}
	return j.open(p, false)
}

// open has a process join that was attached to; one that executes a program when it has done so, and loaded its libraries.
func (j *joining) open(p *ptrace.Process, executes bool) error {
	pid := p.PID()
	o := &kprobe.Options{Report: report, Mapped: j.mapped}
	if j.users != nil {
		o.Follow = j.follow
		o.Report = func(err error) {
			// That they execute programs and end is no news, nor that memory of theirs is gone just then.
			if !errors.Is(err, syscall.ESRCH) && !errors.Is(err, mem.ErrAbsent) && proc.Thread(pid).HasMemory() {
				report(err)
			}
		}
	}
	loaded, joined := make(chan struct{}), make(chan struct{})
	if executes {
		var times atomic.Int32
		o.Mapped = func(s *kprobe.Session) {
			switch n := times.Add(1); {
			case n == 1 && loads(pid): // its threads are not known yet
			case n <= 2:
				once(loaded)
				select {
				case <-joined:
				case <-time.After(patience):
				}
			default:
				j.mapped(s)
			}
		}
	}
	s, err := kprobe.Open(p, o)
	if err != nil {
		return errors.Join(err, ignoreClosed(p.Close()))
	}
	if executes {
		select {
		case <-loaded:
		case <-s.Done():
		case <-time.After(patience):
		}
	}
	defer close(joined)
	return j.put(s)
}

// put has a session join, which is given up when the run is to end: nothing is told of that.
func (j *joining) put(s *kprobe.Session) error {
	closed := make(chan error, 1)
	stop := context.AfterFunc(j.ctx, func() { closed <- ignoreClosed(s.Close()) })
	err := j.run.Load().Join(s)
	if !stop() {
		return <-closed
	}
	return err
}

// patience is how long what a process has executed may take to load its libraries.
const patience = 5 * time.Second

// once closes a channel, if it is not closed.
func once(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// loads tells whether a process's program has its libraries loaded.
func loads(pid int) bool {
	program, err := proc.Process(pid).Open("exe")
	if err != nil {
		return false
	}
	defer program.Close()
	f, err := elf.NewFile(program)
	return err == nil && slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// follow has a child join, which waits for that.
func (j *joining) follow(s *kprobe.Session) {
	pid := s.Target().PID()
	if err := j.put(s); err != nil && proc.Thread(pid).HasMemory() {
		j.warn(pid, err)
	}
}
