// Package patience bounds waits for other processes by what those do, rather than by the clock: on a busy machine a
// process that would be done in a moment may wait long for a CPU, and nothing is wrong with it.
package patience

import (
	"fmt"
	"os"
	"time"

	"kprobe/internal/proc"
)

const (
	glance = 200 * time.Millisecond // between two looks at what the subject does
	blink  = time.Second            // the most that one of them counts: meanwhile the caller itself was not run
)

// Patience is how long one wait may take. What counts is time in which its subject, a process with its threads and
// descendants, runs or has nothing to do. Time in which it is ready to run, and others have the CPUs, does not.
type Patience struct {
	pid  int
	most time.Duration

	took  time.Duration
	idle  time.Duration // of it, what was taken for idleness since a thread was last known to have been ready
	seen  time.Time     // the last look at the subject
	tasks map[int]schedule
}

// Of begins a wait for what a process does. With 0, which is no process, all time counts in which the caller is run.
func Of(pid int, most time.Duration) *Patience {
	return &Patience{pid: pid, most: most, seen: time.Now()}
}

// Spent tells whether the wait has taken too long. It is to be asked again and again: what lies between two questions
// counts for a second at most.
func (p *Patience) Spent() bool {
	now := time.Now()
	passed := now.Sub(p.seen)
	if passed < glance {
		return p.took > p.most
	}
	tasks := schedules(p.pid)
	if p.tasks == nil { // most waits are over before this first look
		p.seen, p.tasks = now, tasks
		return false
	}
	var did schedule
	for tid, s := range tasks { // a thread that is new has zeros before
		did.ran += s.ran - p.tasks[tid].ran
		did.ready += s.ready - p.tasks[tid].ready
	}
	p.seen, p.tasks = now, tasks
	passed = min(passed, blink)
	// How long a thread was ready is known when it runs again: then it may be more than this interval.
	if late := did.ready - passed; did.ready > 0 {
		p.took -= max(min(late, p.idle), 0)
		p.idle = 0
	}
	counts := max(min(did.ran, passed), passed-did.ready)
	if did.ready == 0 {
		p.idle += counts - min(did.ran, passed)
	}
	p.took += counts
	return p.took > p.most
}

// Took is what has counted so far.
func (p *Patience) Took() time.Duration { return p.took }

// Ran is how long a process, with its threads and descendants that are there now, has run in all.
func Ran(pid int) (long time.Duration) {
	for _, s := range schedules(pid) {
		long += s.ran
	}
	return long
}

// schedule is what the scheduler knows of a thread: how long it has run, and how long it was ready to.
type schedule struct{ ran, ready time.Duration }

// schedules has the threads of a process and of its descendants. Where the kernel does not count, it has none.
func schedules(pid int) map[int]schedule {
	all := map[int]schedule{}
	if pid != 0 {
		add(all, pid)
	}
	return all
}

func add(all map[int]schedule, pid int) {
	of := proc.Process(pid)
	tids, _ := of.Threads()
	for _, tid := range tids {
		b, _ := os.ReadFile(of.ThreadFile(tid, "schedstat"))
		var ran, ready int64 // ns
		if n, _ := fmt.Sscan(string(b), &ran, &ready); n == 2 {
			all[tid] = schedule{time.Duration(ran), time.Duration(ready)}
		}
		for _, child := range of.Children(tid) {
			add(all, child)
		}
	}
}
