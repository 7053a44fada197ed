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
	"time"
	"unsafe"

	"kprobe"
	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/output"
)

// Run is a script at work.
type Run struct {
	s       *Script
	session *kprobe.Session // nil without a target
	segment *bpf.Segment
	slot    int // of the controller
	probes  []kprobe.Probe
	cookies []string // what probe is at each place
	names   *output.Names
	reader  *bpf.Reader
	waiting []record
	timers  []*timer
	lost    uint64 // events that were told of

	busy    bool // records came with the last look
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
	r = &Run{s: s, session: session}
	inside := &bpf.Collection{Maps: s.plan.Specs}
	for _, p := range s.plan.Probes {
		if p.Points[0].Inside() {
			inside.Programs = append(inside.Programs, p.Program)
		}
	}
	var programs *kprobe.Programs
	switch {
	case len(inside.Programs) == 0:
		r.segment, err = alone(s.plan.Specs)
	case session == nil:
		return nil, errors.New("the script has probes on functions: say in which process, by -p PID, or -c COMMAND")
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
	if err := r.mapOf(compile.StartName).Update(make([]byte, 4), binary.LittleEndian.AppendUint64(nil, clock(clockBoottime)), bpf.UpdateAny); err != nil {
		return nil, err
	}
	if err := r.runAll("begin"); err != nil {
		return r, err
	}
	if r.exiting {
		return r, r.tellAttached()
	}
	if err := r.arm(programs); err != nil {
		return r, err
	}
	return r, r.tellAttached()
}

// tellAttached says how many probes there are.
func (r *Run) tellAttached() error {
	if r.s.opts.Quiet {
		return nil
	}
	n := len(r.probes) // of which globs make many
	for _, p := range r.s.plan.Probes {
		for _, pt := range p.Points {
			if !pt.Inside() {
				n++
			}
		}
	}
	if r.s.opts.JSON {
		_, err := fmt.Fprintf(r.s.opts.Output, "{\"type\":\"attached_probes\", \"count\":%d}\n", n)
		return err
	}
	plural := "s"
	if n == 1 {
		plural = ""
	}
	_, err := fmt.Fprintf(r.s.opts.Errors, "Attached %d probe%s\n", n, plural)
	return err
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
	proof, err := bpf.Verify(p.Program)
	if err != nil {
		return nil, r.refusal(err)
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
func (r *Run) refusal(err error) error {
	var v *bpf.VerifyError
	if errors.As(err, &v) && v.Line != "" {
		return fmt.Errorf("%s\nthe program that this became is refused: %s", v.Line, v.What)
	}
	return err
}

// execute runs a program once, in the controller.
func (r *Run) execute(vm *bpf.VM, cookie uint64) error {
	vm.Env.Cookie = cookie
	if cpu, err := currentCPU(); err == nil {
		vm.Env.CPU = cpu
	}
	if _, err := vm.Run(make([]byte, bpf.AMD64.Size())); err != nil {
		return fmt.Errorf("%s: %w (after %d instructions a probe of begin, end or interval is given up)", r.cookies[cookie], err, maxSteps)
	}
	return r.drain()
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

// Close takes the probes out, runs the end probes, and prints the maps. The session is
// the caller's to close. code is what exit() was given.
func (r *Run) Close() (code int, err error) {
	var errs []error
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
