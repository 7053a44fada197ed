package script

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/script/debug"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/symbol"
)

// target is a process that a script is at work in, or a kernel.
type target struct {
	r       *Run
	session *kprobe.Session
	number  uint64 // from 1 on, where a script has several: values that mean nothing without their process have it
	joined  bool   // the session is the run's own

	programs *kprobe.Programs // nil: none run inside
	reader   *bpf.Reader      // of its own ring; nil where that is the run's

	arming     sync.Mutex // held while probes are placed: what is mapped may change meanwhile
	armed      bool       // once
	probes     []kprobe.Probe
	fresh      []kprobe.Probe // that are being placed
	placed     map[place]bool // where they are
	matches    *matches       // of the probe that is being placed
	read       map[file]bool  // the files whose system call instructions are known
	sites      []callSite
	atCalls    map[kprobe.Probe]bool // of the probes, those at system calls: a tracepoint is many
	forget     []*kprobe.Kprobe      // behind calls whose numbers are written down, when all tracepoints have been there
	semaphores []arch.Addr           // of static probes
	marks      marks
	calls      []*called // functions: they are called with is watched
	left       bool      // no probe comes any more
	samplings  []*sampling
	looks      []*looking
	events     []*point.Event // of a kernel, that were switched on
}

// place is where a program is at work, whatever address that has in a process.
type place struct {
	program string
	cookie  uint64
	file    file
	at      uint64 // as the file has it
	name    string // where it is looked for
}

// file tells a file from any other, also from one that has its name later.
type file struct {
	path, build string
	opened      *symbol.File // where the file does not tell its build
}

func fileOf(m *symbol.Module) file {
	if m.File == nil {
		return file{path: m.Path}
	}
	if build := m.File.BuildID(); len(build) > 0 {
		return file{path: m.Path, build: string(build)}
	}
	return file{path: m.Path, opened: m.File}
}

// marks are the static probes that have a place, by their names: one that lies in a function which is inlined has several, and counts once.
type marks struct {
	there map[string]bool
	again int // places beside the first of each
}

// add tells whether a static probe of that name was there, and counts it then.
func (m *marks) add(name string) bool {
	if m.there[name] {
		m.again++
		return true
	}
	if m.there == nil {
		m.there = map[string]bool{}
	}
	m.there[name] = true
	return false
}

// facts are what programs are told of their target.
func (r *Run) facts(t *target) []byte {
	var group, number uint64
	if t != nil {
		number = t.number
		if pid := r.pidOf(t); pid != 0 {
			group = cgroupOf(strconv.Itoa(pid))
		}
	}
	facts := make([]byte, plan.FactVariables)
	binary.LittleEndian.PutUint64(facts[plan.FactStart:], r.began)
	binary.LittleEndian.PutUint64(facts[plan.FactCgroup:], cgroupOf("self"))
	binary.LittleEndian.PutUint64(facts[plan.FactTargetCgroup:], group)
	binary.LittleEndian.PutUint64(facts[plan.FactProcess:], number)
	binary.LittleEndian.PutUint64(facts[plan.FactTAI:], r.atomic)
	for _, v := range r.s.plan.Variables {
		facts = binary.LittleEndian.AppendUint64(facts, t.variable(v))
	}
	return facts
}

// pidOf is the target's process; 0 for a kernel.
func (r *Run) pidOf(t *target) int {
	if r.s.opts.Kernel {
		return 0
	}
	return t.session.Target().PID()
}

// variable is the address in the target of a file's variable; 0 where the file is not mapped, and none of its probes fires.
func (t *target) variable(v plan.Variable) uint64 {
	if t == nil {
		return 0
	}
	for _, m := range t.session.Symbols().ModulesNamed(t.module(v.Target)) {
		return v.Addr + m.Bias
	}
	return 0
}

// Join puts the script to work in one process more, which goes on with the probes in place. The session is the run's from now on, which
// closes it when the process ends, and by Close. It may be called at any time, by any goroutine. Errors: of Load and
// Register; a script that is not Several's.
func (r *Run) Join(session *kprobe.Session) error {
	if r.pool == nil {
		return errors.New("the script is for one process")
	}
	t := &target{r: r, session: session, joined: true}
	r.mu.Lock()
	r.numbers++
	t.number = r.numbers
	over := r.closed
	r.mu.Unlock()
	if over {
		return session.Close()
	}
	err := t.settled(func() error { return t.load(r.pool) })
	if err == nil {
		err = t.settled(t.arm)
	}
	if err != nil {
		t.leave()
		return errors.Join(err, session.Close())
	}
	r.mu.Lock()
	over = r.closed
	if !over {
		r.targets = append(r.targets, t)
	}
	r.mu.Unlock()
	if over {
		return errors.Join(t.leave(), session.Close())
	}
	return nil
}

// load puts the programs into a target of several.
func (t *target) load(pool *kprobe.Pool) (err error) {
	if t.programs, err = t.session.LoadPooled(pool); err != nil {
		return err
	}
	ring, err := t.programs.Map(plan.RingName)
	if err == nil {
		t.reader, err = bpf.NewReader(ring)
	}
	if err != nil {
		return err
	}
	return t.learn()
}

// learn tells the programs the facts, as far as they differ from target to target.
func (t *target) learn() error {
	m, err := t.programs.Map(plan.StartName)
	if err != nil {
		return err
	}
	return m.Update(make([]byte, 4), t.r.facts(t), bpf.UpdateAny)
}

// Remap is for kprobe.Options.Mapped: it places the script's probes in what the process has mapped since.
func (r *Run) Remap(session *kprobe.Session) {
	for _, t := range r.all() {
		if t.session != session {
			continue
		}
		err := t.arm()
		if err == nil && t.programs != nil && len(r.s.plan.Variables) > 0 {
			err = t.learn()
		}
		if err != nil && !t.over() {
			fmt.Fprintf(r.s.opts.Errors, "WARNING: process %d: %v\n", session.Target().PID(), err)
		}
	}
}

// all are the targets there are now.
func (r *Run) all() []*target {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.targets)
}

// leave takes the probes out.
func (t *target) leave() error {
	t.arming.Lock()
	defer t.arming.Unlock()
	t.left = true
	t.endSamples()
	off := t.switchOff()
	if len(t.probes) == 0 || t.over() {
		return off
	}
	if err := t.settled(func() error { return t.session.Unregister(t.probes...) }); err != nil && !t.over() {
		return errors.Join(off, err)
	}
	return off
}

// settled does something again until the target does not execute another program just then: that takes a moment.
func (t *target) settled(f func() error) (err error) {
	const longest, pause = 2 * time.Second, time.Millisecond
	for until := time.Now().Add(longest); ; time.Sleep(pause) {
		if err = f(); !errors.Is(err, syscall.ESRCH) || t.over() || time.Now().After(until) {
			return err
		}
	}
}

// over tells whether the target has ended.
func (t *target) over() bool {
	select {
	case <-t.session.Done():
		return true
	default:
		return false
	}
}

// part closes the sessions of those of several targets that have ended: nothing is kept of them but what they have told, and
// where their files lay.
func (r *Run) part() error {
	var errs []error
	for _, t := range r.all() {
		if !t.joined || !t.over() {
			continue
		}
		errs = append(errs, r.drain()) // it may have written until its end
		r.mu.Lock()
		r.targets = slices.DeleteFunc(r.targets, func(o *target) bool { return o == t })
		r.mu.Unlock()
		if e, _ := t.session.Exited(); e.Signal != 0 && !r.s.opts.Newcomers { // children say much by their status
			errs = append(errs, t.tellEnd())
		}
		errs = append(errs, r.dismiss(t))
	}
	return errors.Join(errs...)
}

// tellEnd says how a process that the script was for has ended, where that is no success: of one that was started for it as
// bpftrace does, which tells of it with -v alone, and then of a success too.
func (t *target) tellEnd() error {
	o := t.r.s.opts
	e, over := t.session.Exited()
	if bad := e.Code != 0 || e.Signal != 0; !over || o.Kernel || !bad && (o.CPID == 0 || !o.Verbose) {
		return nil
	}
	text := fmt.Sprintf("WARNING: the process %d was %s", t.session.Target().PID(), e)
	switch {
	case o.CPID != 0 && e.Signal != 0:
		text = fmt.Sprintf("Child terminated by signal: %d", e.Signal)
	case o.CPID != 0:
		text = fmt.Sprintf("Child exited with code: %d", e.Code)
	case e.Signal == 0:
		text = fmt.Sprintf("WARNING: the process %d has %s", t.session.Target().PID(), e)
	}
	_, err := fmt.Fprintln(o.Errors, text)
	return err
}

// mostPast is of how many processes that have ended it is known where their files lay.
const mostPast = 1024

// dismiss closes a target's session.
func (r *Run) dismiss(t *target) error {
	r.lostBefore += t.reader.Lost()
	if len(r.past) < mostPast {
		r.past[t.number] = t.session.Symbols()
	}
	err := t.session.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil // the caller told it
	}
	r.missing.before += t.missed()
	return errors.Join(err, t.programs.Free())
}

// symbols is where the files of a value's process lie; nil where that is not known.
func (r *Run) symbols(number uint64) *symbol.Space {
	for _, t := range r.all() {
		if t.number == number {
			return t.session.Symbols()
		}
	}
	return r.past[number]
}

// lookInFiles counts the places that the attach points have in their files, and tells of those that have none: of files that are
// here before a process is looked for, of others when those that have mapped them, in a namespace of theirs, have joined.
func (r *Run) lookInFiles(here bool) error {
	t, files := &target{r: r}, marks{}
	for _, p := range r.s.plan.Probes {
		t.matches = &matches{}
		for _, pt := range p.Points {
			if !pt.Inside() {
				continue
			}
			named, _ := filesOf(pt.Target, 0)
			if slices.ContainsFunc(named, func(f targetFile) bool { return readable(f.at) }) != here {
				continue
			}
			n, err := places(pt)
			if err == nil && n == 0 {
				err = sentence(fmt.Sprintf("Could not resolve symbol: %s:%s", pt.Target, pt.Function))
				if isPattern(pt) {
					err = noMatches(pt)
				}
			}
			if err != nil && len(r.all()) == 0 { // of those that have joined some has it
				if err = t.missing(pt, err); err != nil {
					return err
				}
			}
			if pt.Static == nil || !files.add(p.Program.Name+pt.Text) {
				r.inFiles += n
			}
			if n > 0 {
				t.matches.found()
			}
		}
		if err := t.matched(); err != nil {
			return err
		}
	}
	return nil
}

// places counts those that an attach point has in its files, whose symbols tell.
func places(pt *point.Point) (n int, err error) {
	if pt.Function == "" && !pt.HasAddr || pt.Static != nil || pt.Watch != nil {
		return 1, nil
	}
	files, err := filesOf(pt.Target, 0)
	if err != nil {
		return 0, err
	}
	var refused error
	for _, f := range files {
		if pt.HasAddr {
			err = f.read(func(file *symbol.File) {
				if _, ok := debug.Place(file, pt); ok {
					n++
				}
			})
			if err != nil {
				return 0, err
			}
			refused = sentence(fmt.Sprintf("Could not resolve address: %s:%#x", pt.Target, pt.Address))
			continue
		}
		if pt.Many() || pt.Source || hasGlob(pt.Target) {
			all, _ := listFunctions(pt.Provider, f, pt.Name(), false) // of many files some are no programs
			n += len(all)
			continue
		}
		err = f.read(func(file *symbol.File) {
			found := file.Lookup(pt.Function)
			if len(found) > 0 && found[0].Size > 0 && pt.Offset >= found[0].Size {
				refused = outside(pt, found[0].Size)
			} else {
				n += min(1, len(found))
			}
		})
		if err != nil {
			return 0, err
		}
	}
	if n == 0 {
		return 0, refused
	}
	return n, nil
}

// outside says that an attach point is behind its function.
func outside(pt *point.Point, size uint64) error {
	return sentence(fmt.Sprintf("Offset outside the function bounds ('%s' size is %d)", pt.Function, size))
}
