package script

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/verify"
	"kprobe/script/compile"
	"kprobe/script/output"
	"kprobe/script/point"
)

// Run is a script at work.
type Run struct {
	s          *Script
	session    *kprobe.Session // nil without a target
	segment    *bpf.Segment
	slot       int // of the controller
	probes     []kprobe.Probe
	semaphores []arch.Addr // of static probes
	programs   *kprobe.Programs
	sites      []callSite            // once they are asked for
	atCalls    map[kprobe.Probe]bool // of the probes, those at system calls: a tracepoint is many
	noted      map[arch.Addr]bool    // where numbers of system calls are written down
	forget     []*kprobe.Kprobe      // and behind these calls, when all tracepoints have been there
	cookies    []string              // what probe is at each place
	names      *output.Names
	reader     *bpf.Reader
	waiting    []record
	timers     []*timer
	lost       uint64 // events that were told of

	running sync.Mutex // held while the interpreter runs: there is one slot for all that it runs

	trigger chan struct{} // to run the self probes
	busy    bool          // records came with the last look
	exiting bool
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
// others. Without probes on functions the session may be nil. The caller lets the target
// go on, calls Wait, and in any case Close.
func (s *Script) Start(session *kprobe.Session) (r *Run, err error) {
	r = &Run{s: s, session: session, trigger: make(chan struct{}, 1)}
	inside := &bpf.Collection{Maps: s.plan.Specs}
	for _, p := range s.plan.Probes {
		if p.Points[0].Inside() && !p.Points[0].Interpreted() && s.opts.Suite == "" {
			inside.Programs = append(inside.Programs, p.Programs()...)
		}
	}
	if s.plan.Noter != nil && len(inside.Programs) > 0 {
		inside.Programs = append(inside.Programs, s.plan.Noter)
	}
	var programs *kprobe.Programs
	_, target := s.Points()
	if s.opts.Suite == "" {
		if err := s.fits(session); err != nil {
			return nil, err
		}
	}
	switch {
	case session == nil && target > 0 && s.opts.Suite == "":
		return nil, errors.New("the script has probes on functions: say in which process, by -p PID, or -c COMMAND")
	case len(inside.Programs) == 0:
		r.segment, err = alone(s.plan.Specs)
	default:
		if programs, err = session.Load(inside); err == nil {
			r.segment = programs.Segment()
		}
	}
	if err != nil {
		return nil, err
	}
	r.slot = r.segment.Slots - 1
	if r.reader, err = bpf.NewReader(r.mapOf(compile.RingName)); err != nil {
		return nil, err
	}
	r.names = r.newNames()
	facts := binary.LittleEndian.AppendUint64(nil, clock(clockBoottime))
	facts = binary.LittleEndian.AppendUint64(facts, cgroupOf("self"))
	group := uint64(0)
	if session != nil && s.opts.PID != 0 {
		group = cgroupOf(strconv.Itoa(s.opts.PID))
	}
	facts = binary.LittleEndian.AppendUint64(facts, group)
	facts = binary.LittleEndian.AppendUint64(facts, 0)
	for _, v := range s.plan.Variables {
		facts = binary.LittleEndian.AppendUint64(facts, r.variable(v))
	}
	if err := r.mapOf(compile.StartName).Update(make([]byte, 4), facts, bpf.UpdateAny); err != nil {
		return nil, err
	}
	if err := r.runAll("begin"); err != nil {
		return r, err
	}
	if r.exiting {
		return r, r.tellAttached()
	}
	if s.opts.Suite != "" {
		if err := r.tellAttached(); err != nil {
			return r, err
		}
		return r, r.suite()
	}
	if err := r.arm(programs); err != nil {
		return r, err
	}
	return r, r.tellAttached()
}

// variable is the address in the target of a file's variable; 0 where the file is not mapped, and none of its probes fires.
func (r *Run) variable(v compile.Variable) uint64 {
	if r.session == nil {
		return 0
	}
	for _, m := range r.session.Symbols().ModulesNamed(r.module(v.Target)) {
		return v.Addr + m.Bias
	}
	return 0
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
			case pt.Provider == "profile" && s.opts.Kernel:
				return fmt.Errorf("%s: samples of a kernel are not there yet", pt.Text)
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

// tellAttached says how many probes there are.
func (r *Run) tellAttached() error {
	if r.s.opts.Quiet {
		return nil
	}
	n := len(r.probes) - len(r.atCalls) // of which globs make many
	for _, p := range r.s.plan.Probes {
		for _, pt := range p.Points {
			if r.runs(pt) && (!pt.Inside() || pt.Syscall != nil && len(r.atCalls) > 0) {
				n++
			}
		}
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
		return string(r.s.opts.Suite) == pt.Provider && r.s.wanted(pt)
	}
	return r.s.opts.Suite == ""
}

// alone makes memory for the maps of a script that has no target.
func alone(specs []*bpf.MapSpec) (*bpf.Segment, error) {
	l, err := bpf.Arrange(specs, 1)
	if err != nil {
		return nil, err
	}
	words := make([]uint64, l.Size/8+8) // zeros that cost nothing until they are touched
	mem := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 8*len(words))
	seg, err := l.Bind(mem, 0x10000000)
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
func (r *Run) vm(p *compile.Probe) (*bpf.VM, error) {
	proof, err := verify.Program(p.Program)
	if err != nil {
		return nil, refusal(err)
	}
	comm, _ := os.ReadFile("/proc/self/comm")
	pid := uint64(os.Getpid())
	return &bpf.VM{Proof: proof, Segment: r.segment, StackTop: 0x7000, Ctx: 0x9000, MaxSteps: maxSteps, Env: bpf.Env{
		PidTgid: pid<<32 | pid, UidGid: uint64(os.Getgid())<<32 | uint64(os.Getuid()), Comm: strings.TrimSpace(string(comm)),
		Slot: r.slot, Random: rand.Uint32,
		Now: func(helper int32) uint64 {
			if helper == bpf.FnKtimeGetBootNs {
				return clock(clockBoottime)
			}
			return clock(clockMonotonic)
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
	return r.drain()
}

// once runs a program, and leaves what it sends where it is.
func (r *Run) once(vm *bpf.VM, cookie uint64) (result uint64, err error) {
	vm.Env.Cookie = cookie
	r.running.Lock()
	defer r.running.Unlock()
	res, err := vm.Run(make([]byte, vm.Proof.Program.PtRegs().Size()))
	if err != nil {
		return 0, fmt.Errorf("%s: %w (after %d instructions a probe of begin, end or interval is given up)", r.cookies[cookie], err, maxSteps)
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
			r.cookies = append(r.cookies, pt.Text)
			if err := r.execute(vm, uint64(len(r.cookies)-1)); err != nil || r.exiting && provider == "begin" {
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
// context does. The error is of what could not be written, or of a ring that the target
// has written over.
func (r *Run) Wait(ctx context.Context) error {
	var over <-chan struct{}
	if r.session != nil {
		over = r.session.Done()
	}
	if r.s.opts.Suite != "" || r.session == nil && len(r.timers) == 0 && !r.has("self") {
		return r.drain() // begin was all
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
		if r.session == nil {
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
		select {
		case <-over:
			return r.drain()
		case <-ctx.Done():
			return r.drain()
		case <-r.trigger:
			if err := r.triggered(); err != nil {
				return err
			}
		case <-time.After(wait):
		}
		if r.session != nil {
			if err := r.drain(); err != nil {
				return err
			}
		}
	}
	return nil
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
		if err := r.printMap(m, 0, 1, true); err != nil {
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

// Close takes the probes out, runs the end probes, and prints the maps. The session is
// the caller's to close. code is what exit() was given.
func (r *Run) Close() (code int, err error) {
	var errs []error
	if len(r.semaphores) > 0 && !r.over() {
		if err := r.count(-1); err != nil && !r.over() {
			errs = append(errs, err)
		}
	}
	if len(r.probes) > 0 {
		if err := r.session.Unregister(r.probes...); err != nil && !r.over() {
			errs = append(errs, err)
		}
	}
	errs = append(errs, r.drain())
	r.exiting = false // of the end probes everything is acted on
	errs = append(errs, r.runAll("end"), r.drain(), r.tellLosses())
	if !r.s.opts.JSON {
		_, err := fmt.Fprint(r.s.opts.Output, "\n\n")
		errs = append(errs, err)
	}
	if r.s.plan.Settings.PrintMapsOnExit {
		for _, m := range r.s.plan.Maps {
			errs = append(errs, r.printMap(m, 0, 1, true))
		}
	}
	return r.code, errors.Join(errs...)
}

// over tells whether the target has ended.
func (r *Run) over() bool {
	select {
	case <-r.session.Done():
		return true
	default:
		return false
	}
}
