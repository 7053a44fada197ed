package engine

import (
	"kprobe/arch"
	"kprobe/internal/probed"
	"kprobe/target"
)

// loop is the owner thread's work: requests of other goroutines, and stops.
func (e *Engine) loop() {
	defer e.Turns.Tell()
	for {
		e.Turns.Tell()
		e.On.Owner.Work()
		if st, ok := e.On.Owner.Next(); ok {
			e.handle(st)
			continue
		}
		if e.Turns.Closed.Load() {
			return // not with a signal in hand
		}
		st, err := e.On.T.Wait()
		if err != nil {
			e.Turns.ReportEnd(err)
			e.ended(target.Exit{})
			return
		}
		e.handle(st)
		if e.Turns.Exited.Load() {
			return
		}
	}
}

// handle deals with one stop.
func (e *Engine) handle(st target.Stop) {
	switch st.Kind {
	case target.StopTrap:
		e.server.Trapped(st)
	case target.StopAccess:
		e.server.Accessed(st)
	case target.StopSignal:
		if l, ok := e.On.T.(target.Lapser); ok && l.Lapsed(st.Thread) {
			e.On.T.Resume(st.Thread, 0)
			return
		}
		e.server.Signalled(st)
	case target.StopRewrite:
		e.optimizer.GiveWay(st.Thread)
	case target.StopFork:
		e.forked(st)
	case target.StopExec:
		e.Turns.Report(st.Withheld)
		e.execed(st)
	case target.StopSpawn:
		e.Turns.Report(st.Withheld)
		e.release(st.Child)
		e.lookSoon()
	case target.StopLoad:
		go e.librariesChanged(st.Thread)
	case target.StopThreadExit:
		e.threads.Ended(st.Thread)
		e.Calls.ThreadExited(st.Thread)
		if e.Within.Some() {
			e.Within.Seg.Forget(int(st.Thread))
		}
	case target.StopExit:
		e.ended(st.Status)
	}
}

func (e *Engine) ended(x target.Exit) {
	e.exit = x
	e.Turns.Exited.Store(true)
}

// goOn lets a thread go on that waits for it.
func (e *Engine) goOn(th target.Thread) {
	e.On.Owner.Do(func() { e.On.T.Resume(th, 0) })
}

// rules answer the questions that points and what is inside have about the session.
type rules struct{ e *Engine }

func (r rules) Taken(jumps probed.List)  { r.e.threads.TakenOff(jumps) }
func (r rules) Renewed(pt *probed.Point) { r.e.threads.Renew(pt) }

func (r rules) Forbidden(a arch.Addr) bool { _, bad := r.e.On.Image.Forbidden(a); return bad }
func (r rules) OnCPUs() bool               { return r.e.On.Kind.OnCPUs() }
func (r rules) Gateless() string           { return r.e.optimizer.Gateless() }

func (r rules) Comm(th target.Thread) string { return r.e.Comm(int(th)) }
func (r rules) Doubted()                     { r.e.optimizer.Now() }
