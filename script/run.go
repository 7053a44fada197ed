package script

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/verify"
	"kprobe/internal/host"
	"kprobe/script/output"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/symbol"
)

// Run is a script at work.
type Run struct {
	s       *Script
	kernel  *kprobe.Session // whose memory begin, end and intervals may read; nil for none
	pool    *kprobe.Pool    // that several processes have; nil for one
	segment *bpf.Segment
	slot    int // of the controller
	began   uint64
	atomic  uint64 // what atomic time is ahead of the time since boot
	names   *output.Names
	reader  *bpf.Reader
	waiting []record
	timers  []*timer

	mu       sync.Mutex // protects what follows
	targets  []*target
	numbers  uint64 // that were given to them
	closed   bool   // there are no more
	cookies  []string
	cookieOf map[string]uint64

	past       map[uint64]*symbol.Space // of those that have ended, by their numbers
	lost       uint64                   // events that were told of
	lostBefore uint64                   // of those that have ended
	inFiles    int                      // places that the files have which are named
	missed     int                      // attach points that have no probe
	missing    missedHits
	told       []bool // of the plan's losses, which were told of

	running  sync.Mutex // held while the interpreter runs: there is one slot for all that it runs
	standing uint64     // which of several processes what runs is about

	trigger chan struct{} // to run the self probes
	busy    bool          // records came with the last look
	holding bool          // what begin says is kept until the probes are there
	exiting bool
	failed  bool // it could not start: nothing more is run or printed
	code    int
}

// timer is an interval's program.
type timer struct {
	vm     *bpf.VM
	period time.Duration
	next   time.Time
	cookie uint64
}

// Start loads the script into the session's target, runs its begin probes, and arms the
// others. Without probes on functions the session may be nil; with Options.Several it is, and there
// are no more than what is Joined. The caller lets the target go on, calls Wait, and in any case Close.
func (s *Script) Start(session *kprobe.Session) (r *Run, err error) {
	r = &Run{s: s, began: host.Boot.Now(), atomic: uint64(host.TAI.Ahead(host.Boot)), trigger: make(chan struct{}, 1), cookieOf: map[string]uint64{}, past: map[uint64]*symbol.Space{}}
	inside := &bpf.Collection{Maps: s.plan.Specs}
	for _, p := range s.plan.Probes {
		if p.Points[0].Inside() && !p.Points[0].Interpreted() && s.opts.Suite == "" {
			inside.Programs = append(inside.Programs, p.Programs()...)
		}
	}
	if s.plan.Noter != nil && len(inside.Programs) > 0 {
		inside.Programs = append(inside.Programs, s.plan.Noter)
	}
	_, needed := s.Points()
	if s.opts.Suite == "" {
		if err := s.fits(session); err != nil {
			return nil, err
		}
	}
	var one *target
	if session != nil {
		one = &target{r: r, session: session}
	}
	if s.opts.Kernel {
		r.kernel = session
	}
	switch {
	case s.opts.Several && s.opts.Suite == "":
		if r.pool, err = kprobe.NewPool(inside); err == nil {
			r.segment = r.pool.Segment()
		}
		if err == nil && s.opts.Newcomers {
			err = r.lookInFiles(true)
		}
	case session == nil && needed > 0 && s.opts.Suite == "" && s.plan.Settings.MissingProbes == "error":
		return nil, s.targetless()
	case session == nil || len(inside.Programs) == 0:
		r.segment, err = alone(s.plan.Specs)
	default:
		if one.programs, err = session.Load(inside); err == nil {
			r.segment = one.programs.Segment()
		}
	}
	if err != nil {
		return nil, err
	}
	r.slot = r.segment.Slots - 1
	if r.reader, err = bpf.NewReader(r.mapOf(plan.RingName)); err != nil {
		return nil, err
	}
	r.names = r.newNames()
	if err := r.mapOf(plan.StartName).Update(make([]byte, 4), r.facts(one), bpf.UpdateAny); err != nil {
		return nil, err
	}
	defer func() { r.failed = err != nil }()
	if !s.opts.Dry {
		r.holding = true
		if err := r.runAll("begin"); err != nil {
			return r, err
		}
		if s.opts.Suite != "" {
			if err := r.ready(); err != nil || r.exiting {
				return r, err
			}
			return r, r.suite()
		}
	}
	if one != nil {
		r.targets = append(r.targets, one)
		if err := one.arm(); err != nil {
			r.holding = false
			return r, errors.Join(r.drain(), err)
		}
	}
	if err := r.begin(); err != nil || r.pool != nil {
		return r, err
	}
	return r, r.ready()
}

// ready says that the probes are there, and only then what begin has printed: who waits for the one has all of the
// other behind it, as with bpftrace.
func (r *Run) ready() error {
	if err := r.tellAttached(); err != nil {
		return err
	}
	if r.s.opts.Ready != nil {
		r.s.opts.Ready()
	}
	r.holding = false
	return r.drain()
}

// begin makes the probes that are in no target.
func (r *Run) begin() error {
	for _, p := range r.s.plan.Probes {
		for _, pt := range p.Points {
			switch {
			case pt.Inside() && r.pool == nil && len(r.targets) == 0:
				if r.s.plan.Settings.MissingProbes == "warn" {
					fmt.Fprintf(r.s.opts.Errors, "WARNING: Unable to attach probe: %s: there is no target\n", pt.Text)
				}
			case !pt.Inside() && (pt.Provider == "interval" || pt.Provider == "profile"):
				vm, err := r.vm(p)
				if err != nil {
					return err
				}
				r.timers = append(r.timers, &timer{vm: vm, period: time.Duration(pt.Period), cookie: r.cookie(pt.Text)})
			}
		}
	}
	return nil
}

// cookie is what probe is at a place, or at places that follow each other.
func (r *Run) cookie(text ...string) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := strings.Join(text, "\x00")
	c, ok := r.cookieOf[key]
	if !ok {
		c = uint64(len(r.cookies))
		r.cookieOf[key] = c
		r.cookies = append(r.cookies, text...)
		if r.s.opts.Verbose {
			for _, one := range text {
				fmt.Fprintf(r.s.opts.Errors, "Attaching %s\n", one)
			}
		}
	}
	return c
}

// probeName is what probe is for a cookie.
func (r *Run) probeName(cookie uint64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if cookie < uint64(len(r.cookies)) {
		return r.cookies[cookie]
	}
	return ""
}

// fits tells whether the script's probes are about the target. Without one what is about both kinds has none.
func (s *Script) fits(session *kprobe.Session) error {
	var inProcess, inKernel *point.Point
	for _, p := range s.plan.Probes {
		for _, pt := range p.Points {
			switch {
			case pt.OfProcess():
				inProcess = pt
			case pt.OfKernelAlone():
				inKernel = pt
			}
		}
	}
	switch {
	case inProcess != nil && inKernel != nil:
		return fmt.Errorf("%s is about a process, and %s about a kernel: a script has one target", inProcess.Text, inKernel.Text)
	case inProcess != nil && s.opts.Kernel:
		return fmt.Errorf("%s is about a process, and the target is a kernel", inProcess.Text)
	case inKernel != nil && session != nil && !s.opts.Kernel:
		return fmt.Errorf("%s is about a kernel, and the target is a process", inKernel.Text)
	}
	return nil
}

// targetless says that a script has no target, and how it gets the one that it needs.
func (s *Script) targetless() error {
	for _, p := range s.plan.Probes {
		for _, pt := range p.Points {
			if pt.OfKernelAlone() {
				return fmt.Errorf("%s is about a kernel, and that of this system cannot be probed: \"kprobe vm --dir DIR\" starts a guest, and --kernel DIR, or KPROBE_KERNEL=DIR in the environment, names it", pt.Text)
			}
			if pt.Syscall != nil {
				return fmt.Errorf("%s: say of which process, by -p PID or -c COMMAND, or of which kernel, by --kernel DIR (\"kprobe vm --dir DIR\" starts one)", pt.Text)
			}
		}
	}
	return errors.New("the script has probes on functions: say in which process, by -p PID, or -c COMMAND")
}

// tellAttached says how many probes there are: of several processes, in the one that has most, or as many as their files have places.
func (r *Run) tellAttached() error {
	n, calls := r.inFiles, false
	for _, t := range r.all() {
		n = max(n, len(t.probes)-len(t.atCalls)-t.marks.again+len(t.samplings)) // of which globs make many
		calls = calls || len(t.atCalls) > 0
	}
	for _, p := range r.s.plan.Probes {
		for _, pt := range p.Points {
			if r.runs(pt) && (!pt.Inside() || pt.Syscall != nil && calls) {
				n++
			}
		}
	}
	switch {
	case n == 0 && r.missed > 0:
		r.failed = true
		return sentence("Attachment failed for all probes.")
	case r.s.opts.Quiet, r.s.opts.Suite == Benches: // of benches the results are all
		return nil
	}
	if r.s.opts.JSON {
		_, err := fmt.Fprintf(r.s.opts.Output, "{\"type\": \"attached_probes\", \"count\": %d, \"data\": {\"probes\": %[1]d}}\n", n)
		return err
	}
	plural := "s"
	if n == 1 {
		plural = ""
	}
	_, err := fmt.Fprintf(r.s.opts.Errors, "Attached %d probe%s\n", n, plural)
	return err
}

// runs tells whether a probe is one of those that this run is about.
func (r *Run) runs(pt *point.Point) bool {
	switch pt.Provider {
	case "begin", "end":
		return true
	case "test", "bench":
		return string(r.s.opts.Suite) == pt.Provider
	}
	return r.s.opts.Suite == ""
}

// Programs that the controller runs have their own memory at addresses that no processor maps, so that all others are the target's.
const (
	ownStack   = 1 << 62
	ownContext = ownStack + 1<<20
	ownMaps    = ownStack + 1<<40
)

// alone makes memory for the maps of a script that has no target.
func alone(specs []*bpf.MapSpec) (*bpf.Segment, error) {
	l, err := bpf.Arrange(specs, 1)
	if err != nil {
		return nil, err
	}
	seg, err := l.Bind(bpf.Words(l.Size), ownMaps)
	if err != nil {
		return nil, err
	}
	return seg, seg.Init()
}

func (r *Run) mapOf(name string) *bpf.Map {
	for i, m := range r.segment.Maps {
		if m.Name == name {
			return r.segment.Map(i)
		}
	}
	return nil
}

// vm makes an interpreter for a program of the controller's.
func (r *Run) vm(p *plan.Probe) (*bpf.VM, error) {
	proof, err := verify.Program(p.Program)
	if err != nil {
		return nil, refusal(err)
	}
	var read func(addr uint64, p []byte) error
	if r.kernel != nil {
		read = func(addr uint64, p []byte) error { return r.kernel.ReadMem(arch.Addr(addr), p) }
	}
	comm, _ := os.ReadFile("/proc/self/comm")
	pid := uint64(os.Getpid())
	return &bpf.VM{Proof: proof, Segment: r.segment, StackTop: ownStack, Ctx: ownContext, MaxSteps: maxSteps, Env: bpf.Env{
		PidTgid: pid<<32 | pid, UidGid: uint64(os.Getgid())<<32 | uint64(os.Getuid()), Comm: strings.TrimSpace(string(comm)),
		Slot: r.slot, Random: rand.Uint32, Read: read,
		Now: func(helper int32) uint64 {
			if helper == bpf.FnKtimeGetBootNs {
				return host.Boot.Now()
			}
			return host.Monotonic.Now()
		},
	}}, nil
}

// maxSteps ends a program of the controller's that does not end by itself.
const maxSteps = 1 << 24

// refusal puts the verifier's words into those of the script.
func refusal(err error) error {
	var v *bpf.VerifyError
	if errors.As(err, &v) && v.Line != "" {
		return fmt.Errorf("%s\nthe program that this became is refused: %s", v.Line, v.What)
	}
	return err
}

// execute runs a program once, in the controller.
func (r *Run) execute(vm *bpf.VM, cookie uint64) error {
	if cpu, err := currentCPU(); err == nil {
		vm.Env.CPU = cpu
	}
	if _, err := r.once(vm, cookie); err != nil {
		return err
	}
	if r.holding {
		return r.collect(r.reader)
	}
	return r.drain()
}

// once runs a program, and leaves what it sends where it is.
func (r *Run) once(vm *bpf.VM, cookie uint64) (result uint64, err error) {
	vm.Env.Cookie = cookie
	r.running.Lock()
	defer r.running.Unlock()
	res, err := vm.Run(make([]byte, vm.Proof.Program.PtRegs().Size()))
	if err != nil {
		return 0, fmt.Errorf("%s: %w (after %d instructions a probe of begin, end or interval is given up)", r.probeName(cookie), err, maxSteps)
	}
	return res.R0, nil
}

// currentCPU is where this thread runs, as the kernel's file of it says.
func currentCPU() (uint32, error) {
	text, err := os.ReadFile("/proc/thread-self/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 37 {
		return 0, errors.New("no processor")
	}
	n, err := strconv.ParseUint(fields[36], 10, 32)
	return uint32(n), err
}

// runAll runs the probes of a provider of the controller's, in the script's order.
func (r *Run) runAll(provider string) error {
	for _, p := range r.s.plan.Probes {
		for _, pt := range p.Points {
			if pt.Provider != provider {
				continue
			}
			vm, err := r.vm(p)
			if err != nil {
				return err
			}
			if err := r.execute(vm, r.cookie(pt.Text)); err != nil {
				return err
			}
		}
	}
	return nil
}

// How long records may wait before they are looked at: less where there were some just now.
const (
	pause = 10 * time.Millisecond
	brief = time.Millisecond
)

// Wait acts on what the script asks for until it says exit, the target ends, or the
// context does; of several processes, until all have ended and none is to come (Options.Newcomers). The error
// is of what could not be written, or of a ring that the target has written over.
func (r *Run) Wait(ctx context.Context) error {
	var over <-chan struct{}
	one := r.pool == nil && len(r.targets) > 0
	if one {
		over = r.targets[0].session.Done()
	}
	if r.s.opts.Suite != "" || !one && r.pool == nil && len(r.timers) == 0 && !r.has("self") {
		return r.drain() // begin was all
	}
	if r.pool != nil {
		if r.s.opts.Newcomers {
			if err := r.lookInFiles(false); err != nil {
				r.failed = true
				return err
			}
		}
		if err := r.ready(); err != nil {
			return err
		}
	}
	now := time.Now()
	for _, t := range r.timers {
		t.next = now.Add(t.period)
	}
	for !r.exiting {
		wait := pause
		if r.busy {
			wait = brief
		}
		if !one && r.pool == nil {
			wait = time.Hour
		}
		now := time.Now()
		for _, t := range r.timers {
			if !now.Before(t.next) {
				if err := r.execute(t.vm, t.cookie); err != nil || r.exiting {
					return err
				}
				for !t.next.After(now) { // what was missed is not made up for
					t.next = t.next.Add(t.period)
				}
			}
			wait = min(wait, max(time.Until(t.next), 0))
		}
		for _, t := range r.all() {
			due, err := t.lookAtCPUs()
			if err != nil || r.exiting {
				return err
			}
			wait = min(wait, due)
		}
		select {
		case <-over:
			return errors.Join(r.look(), r.targets[0].tellEnd())
		case <-ctx.Done():
			err := r.look()
			if one { // it may have ended, too
				err = errors.Join(err, r.targets[0].tellEnd())
			}
			return err
		case <-r.trigger:
			if err := r.triggered(); err != nil {
				return err
			}
		case <-time.After(wait):
		}
		if one || r.pool != nil {
			if err := r.look(); err != nil {
				return err
			}
		}
		if r.pool != nil {
			if err := r.part(); err != nil {
				return err
			}
			if !r.s.opts.Newcomers && len(r.all()) == 0 {
				return nil
			}
		}
	}
	return nil
}

// look acts on what has come since the last look.
func (r *Run) look() error {
	for _, t := range r.all() {
		if err := t.sampled(); err != nil {
			return err
		}
	}
	return r.drain()
}

// Trigger is for who has got SIGUSR1: soon Wait runs the script's self:signal:SIGUSR1 probes, or without
// any prints the maps. It may be called at any time.
func (r *Run) Trigger() {
	select {
	case r.trigger <- struct{}{}:
	default: // it is to come already
	}
}

func (r *Run) triggered() error {
	if r.has("self") {
		return r.runAll("self")
	}
	for _, m := range r.s.plan.Maps {
		if err := r.printMap(m, 0, 1, false); err != nil {
			return err
		}
	}
	return nil
}

// has tells whether the script has probes of a provider.
func (r *Run) has(provider string) bool {
	for _, p := range r.s.plan.Probes {
		for _, pt := range p.Points {
			if pt.Provider == provider {
				return true
			}
		}
	}
	return false
}

// Close takes the probes out, runs the end probes, and prints the maps. The session that it was Started with is
// the caller's to close. code is what exit() was given.
func (r *Run) Close() (code int, err error) {
	var errs []error
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	for _, t := range r.all() {
		errs = append(errs, t.leave())
	}
	if !r.failed {
		errs = append(errs, r.drain())
		r.exiting = false // of the end probes everything is acted on
		errs = append(errs, r.runAll("end"), r.drain(), r.tellLosses(true), r.tellMissed(true))
		if !r.s.opts.JSON {
			_, err := fmt.Fprint(r.s.opts.Output, "\n\n")
			errs = append(errs, err)
		}
		if r.s.plan.Settings.PrintMapsOnExit {
			for _, m := range r.s.plan.Maps {
				errs = append(errs, r.printMap(m, 0, 1, false))
			}
		}
		code = r.code
	}
	for _, t := range r.all() {
		if t.joined {
			errs = append(errs, r.dismiss(t))
		}
	}
	if r.pool != nil {
		errs = append(errs, r.pool.Close())
	}
	return code, errors.Join(errs...)
}
