package calls

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/target"
)

// The model of a call's states, and random operations of a program, of its probes' owners and of
// other engines against the real package. After each operation the model says what may have become of
// every call that a probe watches; any other state fails the test, and the seed is printed.
//
//	operation                        what may become of a watched call
//	call, tail call                  watched, missed (MaxActive calls are held), not wanted
//	return                           reported, once, by every probe that watches it, and the
//	                                 thread is where the program wants it
//	longjmp, a coroutine is dropped  lost, at any time from then on
//	an exception                     lost, and so may be other calls of that thread (swap)
//	a thread or goroutine ends       lost
//	unregister                       lost (unregistered); it returns unreported
//	all probes off                   lost, where exits are probed
//	exec                             lost
//	anything else                    nothing

var seedFlag = flag.Uint64("calls.seed", 0, "run the model with this seed only")

// state is what the model knows of one call, for one probe.
type state uint8

const (
	entered state = iota
	watched
	reported
	lost
	orphaned // its probe is gone: nothing is to be reported, and nothing counted any more
	refused  // missed or not wanted
)

func (s state) String() string {
	return [...]string{"entered", "watched", "reported", "lost", "orphaned", "refused"}[s]
}

// entry is one call, for one probe.
type entry struct {
	p       *probe
	call    *call
	task    *task
	threads []target.Thread // that made it, and those that made it a tail call since
	state   state
	ended   Loss // why it is over, where over
	over    bool
	mayFor  []Loss // why it may be lost by the operation that is under way, although it is not over
}

func (e *entry) String() string {
	return fmt.Sprintf("call of f%d at %v on a %v, for probe %d (%v): %v, over %v", e.call.fn, e.call.slot, e.task.kind, e.p.id, e.p.how(), e.state, e.over)
}

// probe is a return probe and its owner.
type probe struct {
	Probe[*entry]
	id, fn   int
	exits    bool // how it notices returns
	disabled bool
	standing bool // its exits are probed
	leaving  bool
	entries  []*entry // not settled yet
	counted  [Losses]uint64
}

func (p *probe) how() string {
	if p.exits {
		return "exits"
	}
	return "swap"
}

const (
	functions  = 7
	goFunction = 4 // and 5: on goroutines only, whose stacks move
	theirs     = 6 // somebody else watches its returns, and we do not
	maxProbes  = 6
)

// chooser makes the choices: at random, or as a fuzzer's input says.
type chooser interface {
	n(int) int // below it
	more() bool
}

type random struct {
	*rand.Rand
	left int
}

func (r *random) n(n int) int { return r.IntN(n) }
func (r *random) more() bool  { r.left--; return r.left >= 0 }

type input []byte

func (in *input) n(n int) int {
	if len(*in) == 0 {
		return 0
	}
	b := (*in)[0]
	*in = (*in)[1:]
	return int(b) % n
}

func (in *input) more() bool { return len(*in) > 0 }

// model is the truth, and what is held to it.
type model struct {
	chooser
	w       *world
	u       *UnderWay[*entry]
	guest   bool // a kernel: it takes return addresses out of their slots; programs run at exits, and so no detour swaps one
	probes  []*probe
	gone    []*probe     // unregistered: their counts stay as they are
	inside  map[int]bool // functions with a detour
	nprobes int
	ids     uint64
	stacks  int
	off     bool // all probes are
	log     []string
	failed  string
	reached map[string]int
}

func newModel(c chooser) *model {
	m := &model{chooser: c, w: newWorld(), inside: map[int]bool{}, reached: map[string]int{}}
	m.u = New[*entry](m.w, arch.AMD64)
	m.guest = m.n(2) == 0
	m.w.tasks = append(m.w.tasks, m.newTask(native))
	return m
}

func (m *model) logf(format string, a ...any) { m.log = append(m.log, fmt.Sprintf(format, a...)) }

func (m *model) failf(format string, a ...any) {
	if m.failed == "" {
		m.failed = fmt.Sprintf(format, a...) + "\nafter\n  " + strings.Join(m.log[max(0, len(m.log)-40):], "\n  ")
	}
}

func (m *model) newTask(k kind) *task {
	m.stacks++
	t := &task{kind: k, home: stackEnd(m.stacks), thread: target.Thread(m.stacks)}
	t.sp = t.home - 64
	stack := symbol.Mapping{Start: t.home - stackSize, End: t.home}
	if int(t.thread) == m.w.PID() {
		stack.Path = "[stack]"
	}
	m.w.maps = append(m.w.maps, stack)
	if k != native {
		t.thread = m.someThread()
	}
	if k == goroutine {
		m.ids++
		t.g, t.id = arch.Addr(0x200000+64*m.stacks), m.ids
	}
	return t
}

func (m *model) someThread() target.Thread {
	var ths []target.Thread
	for _, t := range m.w.tasks {
		if t.kind == native {
			ths = append(ths, t.thread)
		}
	}
	return ths[m.n(len(ths))]
}

func (m *model) someTask() *task { return m.w.tasks[m.n(len(m.w.tasks))] }

// run does random operations.
func (m *model) run() string {
	for m.more() && m.failed == "" {
		m.step()
		if m.failed == "" {
			m.check()
		}
	}
	return m.failed
}

func (m *model) step() {
	for _, p := range m.probes {
		for _, e := range p.entries {
			e.mayFor = nil
		}
	}
	t := m.someTask()
	if m.w.noteFails && m.n(8) == 0 {
		m.w.noteFails = false
	}
	for _, o := range m.w.tasks { // its thread is busy with that
		if o.thread == t.thread && (o.back != nil || o.walks) {
			t = o
		}
	}
	switch op := m.n(64); {
	case op < 16:
		m.call(t)
	case op < 22:
		m.tail(t)
	case op < 42:
		m.goBack(t)
	case op < 43:
		m.longjmp(t, Longjmp)
	case op < 45:
		m.unwind(t)
	case op < 48:
		m.backtrace(t)
	case op < 51:
		m.register()
	case op < 53:
		m.unregister()
	case op < 55:
		m.toggle()
	case op == 55:
		m.all()
	case op == 56:
		m.flipInside()
	case op < 59:
		m.begin()
	case op == 59:
		m.end(t)
	case op == 60:
		m.move(t)
	case op == 61:
		m.fork()
	case op == 62:
		m.w.noteFails = !m.w.noteFails && m.n(3) == 0
		m.logf("the lifeline's table is full: %v", m.w.noteFails)
	case m.n(6) == 0:
		m.exec()
	case m.n(3) == 0:
		m.detach()
	}
}

// mayLose says which live calls the operation may lose, and how it counts them.
func (m *model) mayLose(which func(*entry) bool, why Loss) {
	for _, p := range m.probes {
		for _, e := range p.entries {
			if which(e) {
				e.mayFor = append(e.mayFor, why)
			}
		}
	}
}

// holds tells whether the package has a call as a watched one.
func (m *model) holds(e *entry) bool {
	for _, fr := range m.u.at {
		for ; fr != nil; fr = fr.outer {
			for _, c := range fr.calls {
				if c.Instance == e && !c.orphan {
					return true
				}
			}
		}
	}
	for _, c := range m.exitCalls() {
		if c.Instance == e {
			return true
		}
	}
	return false
}

// exitCalls are those that are noticed by exits.
func (m *model) exitCalls() (all []*Call[*entry]) {
	m.u.exits.Each(func(c *Call[*entry]) { all = append(all, c) })
	return all
}

func (m *model) held(p *probe) (n int) {
	for _, e := range p.entries {
		if e.state == watched && m.holds(e) {
			n++
		}
	}
	return n
}

// settle finds what a probe has lost, and whether it may.
func (m *model) settle(p *probe) {
	var delta [Losses]uint64
	for why := range Loss(Losses) {
		delta[why] = p.Lost(why) - p.counted[why]
		p.counted[why] = p.Lost(why)
	}
	var may [Losses]bool
	n := uint64(0)
	p.entries = slices.DeleteFunc(p.entries, func(e *entry) bool {
		if e.state != watched || m.holds(e) {
			return e.state != watched
		}
		e.state = lost
		n++
		switch {
		case e.over:
			m.reached["lost "+[...]string{"unwound", "longjmp", "goexit", "exited", "unregistered"}[e.ended]]++
			for _, why := range m.causes(e) {
				may[why] = true
			}
		case p.leaving:
			may[Unregistered] = true
		case m.baredElsewhere(e):
			may[Longjmp] = true
		case len(e.mayFor) == 0:
			m.failf("lost although it is under way: %v", e)
		}
		for _, why := range e.mayFor {
			may[why] = true
			m.reached["lost alive"]++
		}
		return true
	})
	sum := uint64(0)
	for why, d := range delta {
		sum += d
		if d > 0 && !may[why] {
			m.failf("probe %d counts %d calls as lost by cause %d, and none was", p.id, d, why)
		}
	}
	if sum != n {
		m.failf("probe %d has lost %d calls, and counts %d", p.id, n, sum)
	}
}

// causes are what a call that is over may be counted as: the stack shows no more than that.
func (m *model) causes(e *entry) []Loss {
	if e.p.leaving {
		return []Loss{Unregistered, Unwound, Longjmp, Goexit, Exited}
	}
	switch {
	case e.ended == Goexit, e.ended == Exited:
		return []Loss{Goexit, Exited, Longjmp, Unwound} // noticed by another call in its place
	default:
		return []Loss{Unwound, Longjmp, Exited, Goexit} // its thread or goroutine may have ended since
	}
}

// check holds every state to the model.
func (m *model) check() {
	for _, p := range m.probes {
		m.settle(p)
		n := m.held(p)
		if n != p.active {
			m.failf("probe %d holds %d calls, and counts %d as active", p.id, n, p.active)
		}
		if p.active > p.MaxActive {
			m.failf("probe %d has %d of %d instances", p.id, p.active, p.MaxActive)
		}
		if n == p.MaxActive {
			m.reached["crowded"]++
		}
	}
	for _, p := range m.gone {
		for why := range Loss(Losses) {
			if p.Lost(why) != p.counted[why] {
				m.failf("probe %d is gone, and counts on (%d)", p.id, why)
			}
		}
	}
	// What the package holds is known here.
	for slot, fr := range m.u.at {
		for depth := 0; fr != nil; fr, depth = fr.outer, depth+1 {
			if depth == 1 {
				m.reached["swapped anew"]++
			}
			for _, c := range fr.calls {
				if !c.orphan && c.Instance.state != watched {
					m.failf("held at %v: %v", slot, c.Instance)
				}
			}
		}
	}
	for _, c := range m.exitCalls() {
		if c.Instance.state != watched {
			m.failf("held: %v", c.Instance)
		}
	}
}

// must are states without which a run of some length has not tried the package.
var must = []string{"reported", "orphaned", "crowded", "swapped anew", "lost unwound", "lost longjmp", "lost goexit", "lost exited", "lost alive", "retired while an entry handler runs"}

func TestModel(t *testing.T) {
	seeds, steps := 300, 600
	if testing.Short() {
		seeds = 100
	}
	first := testprog.Seed(t)
	if *seedFlag != 0 {
		first, seeds = *seedFlag, 1
	}
	reached := map[string]int{}
	for i := range uint64(seeds) {
		m := newModel(&random{rand.New(rand.NewPCG(first+i, 0)), steps})
		if failed := m.run(); failed != "" {
			t.Fatalf("seed %d (go test -run TestModel ./internal/calls -calls.seed %d): %s", first+i, first+i, failed)
		}
		for what, n := range m.reached {
			reached[what] += n
		}
	}
	for _, what := range must {
		if reached[what] == 0 && *seedFlag == 0 {
			t.Errorf("no run reached %q", what)
		}
	}
	t.Logf("reached: %v", reached)
}

func FuzzModel(f *testing.F) {
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 1))
		b := make([]byte, 400)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		in := input(b)
		if failed := newModel(&in).run(); failed != "" {
			t.Fatal(failed)
		}
	})
}
