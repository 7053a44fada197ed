package conform

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// caller is what a handler has at hand.
type caller struct {
	s     *kprobe.Session
	k     *kprobe.Kprobe
	j     *kprobe.Jprobe
	r     *kprobe.Kretprobe
	w     *kprobe.Watchpoint
	ps    *kprobe.Programs
	spare *kprobe.Kprobe // not registered
}

// The calls that a handler must not make: each would wait for the session.
var refusedToHandlers = map[string]func(*caller) error{
	"Session.BlackList":         func(c *caller) error { _, err := c.s.BlackList(); return err },
	"Session.Close":             func(c *caller) error { return c.s.Close() },
	"Session.CloseContext":      func(c *caller) error { return c.s.CloseContext(context.Background()) },
	"Session.UpdateProgram":     func(c *caller) error { return c.s.UpdateProgram(c.k, kprobe.CountOnly) },
	"Session.Continue":          func(c *caller) error { return c.s.Continue() },
	"Session.DisableJprobe":     func(c *caller) error { return c.s.DisableJprobe(c.j) },
	"Session.DisableKprobe":     func(c *caller) error { return c.s.DisableKprobe(c.k) },
	"Session.DisableKprobes":    func(c *caller) error { return c.s.DisableKprobes([]*kprobe.Kprobe{c.k}) },
	"Session.DisableKretprobe":  func(c *caller) error { return c.s.DisableKretprobe(c.r) },
	"Session.DisableWatchpoint": func(c *caller) error { return c.s.DisableWatchpoint(c.w) },
	"Session.EnableJprobe":      func(c *caller) error { return c.s.EnableJprobe(c.j) },
	"Session.EnableKprobe":      func(c *caller) error { return c.s.EnableKprobe(c.k) },
	"Session.EnableKprobes":     func(c *caller) error { return c.s.EnableKprobes([]*kprobe.Kprobe{c.k}) },
	"Session.EnableKretprobe":   func(c *caller) error { return c.s.EnableKretprobe(c.r) },
	"Session.EnableWatchpoint":  func(c *caller) error { return c.s.EnableWatchpoint(c.w) },
	"Session.Load":              func(c *caller) error { _, err := c.s.Load(new(bpf.Collection)); return err },
	"Session.LoadPooled": func(c *caller) error {
		pool, err := kprobe.NewPool(new(bpf.Collection))
		if err != nil {
			return err
		}
		_, err = c.s.LoadPooled(pool)
		return errors.Join(err, pool.Close())
	},
	"Session.Snapshot":             func(c *caller) error { return c.s.Snapshot(func(*kprobe.Regs) {}) },
	"Session.RaiseSemaphores":      func(c *caller) error { return c.s.RaiseSemaphores() },
	"Session.Lookup":               func(c *caller) error { _, err := c.s.Lookup("hammer_add"); return err },
	"Session.Plan":                 func(c *caller) error { return c.s.Plan(c.spare).Err },
	"Session.Printed":              func(c *caller) error { _, err := c.s.Printed(); return err },
	"Session.Refresh":              func(c *caller) error { return c.s.Refresh() },
	"Session.Register":             func(c *caller) error { return c.s.Register(c.spare) },
	"Session.RegisterJprobe":       func(c *caller) error { return c.s.RegisterJprobe(c.j) },
	"Session.RegisterJprobes":      func(c *caller) error { return c.s.RegisterJprobes([]*kprobe.Jprobe{c.j}) },
	"Session.RegisterKprobe":       func(c *caller) error { return c.s.RegisterKprobe(c.spare) },
	"Session.RegisterKprobes":      func(c *caller) error { return c.s.RegisterKprobes([]*kprobe.Kprobe{c.spare}) },
	"Session.RegisterKretprobe":    func(c *caller) error { return c.s.RegisterKretprobe(c.r) },
	"Session.RegisterKretprobes":   func(c *caller) error { return c.s.RegisterKretprobes([]*kprobe.Kretprobe{c.r}) },
	"Session.RegisterWatchpoint":   func(c *caller) error { return c.s.RegisterWatchpoint(c.w) },
	"Session.SetEnabled":           func(c *caller) error { return c.s.SetEnabled(false) },
	"Session.SetOptimization":      func(c *caller) error { return c.s.SetOptimization(false) },
	"Session.Unregister":           func(c *caller) error { return c.s.Unregister(c.k) },
	"Session.UnregisterJprobe":     func(c *caller) error { return c.s.UnregisterJprobe(c.j) },
	"Session.UnregisterJprobes":    func(c *caller) error { return c.s.UnregisterJprobes([]*kprobe.Jprobe{c.j}) },
	"Session.UnregisterKprobe":     func(c *caller) error { return c.s.UnregisterKprobe(c.k) },
	"Session.UnregisterKprobes":    func(c *caller) error { return c.s.UnregisterKprobes([]*kprobe.Kprobe{c.k}) },
	"Session.UnregisterKretprobe":  func(c *caller) error { return c.s.UnregisterKretprobe(c.r) },
	"Session.UnregisterKretprobes": func(c *caller) error { return c.s.UnregisterKretprobes([]*kprobe.Kretprobe{c.r}) },
	"Session.UnregisterWatchpoint": func(c *caller) error { return c.s.UnregisterWatchpoint(c.w) },
	"Session.WaitOptimized":        func(c *caller) error { return c.s.WaitOptimized() },
	"Programs.Attach":              func(c *caller) error { _, err := c.ps.Attach(); return err },
}

// The calls that it may make, at any time.
var openToHandlers = map[string]func(*caller, *kprobe.Regs) error{
	"Session.Arch":         func(c *caller, _ *kprobe.Regs) error { return holds(c.s.Arch() != nil) },
	"Session.Comm":         func(c *caller, r *kprobe.Regs) error { return holds(c.s.Comm(r.Task().TID) != "") },
	"Session.Done":         func(c *caller, _ *kprobe.Regs) error { return holds(c.s.Done() != nil) },
	"Session.Enabled":      func(c *caller, _ *kprobe.Regs) error { return holds(c.s.Enabled()) },
	"Session.Exited":       func(c *caller, _ *kprobe.Regs) error { _, over := c.s.Exited(); return holds(!over) },
	"Session.LastStop":     func(c *caller, _ *kprobe.Regs) error { return holds(c.s.LastStop() > 0) },
	"Session.List":         func(c *caller, _ *kprobe.Regs) error { return holds(len(c.s.List()) >= 1) },
	"Session.OnCPUs":       func(c *caller, _ *kprobe.Regs) error { return holds(!c.s.OnCPUs()) },
	"Session.Optimization": func(c *caller, _ *kprobe.Regs) error { return holds(c.s.Optimization()) },
	"Session.Pending":      func(c *caller, _ *kprobe.Regs) error { return holds(slices.Contains(c.s.Pending(), "libnone.so:f")) },
	"Session.ReadMem":      func(c *caller, r *kprobe.Regs) error { return c.s.ReadMem(r.SP(), make([]byte, 8)) },
	"Session.StackFrom": func(c *caller, r *kprobe.Regs) error {
		pcs, _, err := c.s.StackFrom(uint64(r.PC()), uint64(r.SP()), r.Get(arch.AMD64.FP), c.s.ReadMem, 8)
		return errors.Join(err, holds(len(pcs) > 0))
	},
	"Session.Symbols": func(c *caller, _ *kprobe.Regs) error {
		loc, ok := c.s.Symbols().At(c.k.Addr)
		return holds(ok && loc.Func.Name != "")
	},
	"Session.Target":      func(c *caller, _ *kprobe.Regs) error { return holds(c.s.Target().PID() > 0) },
	"Kprobe.Hits":         func(c *caller, _ *kprobe.Regs) error { c.k.Hits(); return nil },
	"Kprobe.NMissed":      func(c *caller, _ *kprobe.Regs) error { c.k.NMissed(); return nil },
	"Kprobe.IsEnabled":    func(c *caller, _ *kprobe.Regs) error { return holds(c.k.IsEnabled()) },
	"Regs.SetArg":         func(_ *caller, r *kprobe.Regs) error { v, _ := r.Arg(5); return r.SetArg(5, v) },
	"Regs.SetReg":         func(_ *caller, r *kprobe.Regs) error { return r.SetReg("r9", r.Get(arch.R9)) },
	"Kprobe.Refusal":      func(c *caller, _ *kprobe.Regs) error { return c.k.Refusal() },
	"Kprobe.Registered":   func(c *caller, _ *kprobe.Regs) error { return holds(c.k.Registered()) },
	"Kprobe.PlacedAt":     func(c *caller, _ *kprobe.Regs) error { return holds(c.k.PlacedAt() == c.k.Addr) },
	"Kretprobe.Abandoned": func(c *caller, _ *kprobe.Regs) error { c.r.Abandoned(); return nil },
	"Kretprobe.Exits":     func(c *caller, _ *kprobe.Regs) error { c.r.Exits(); return nil },
	"Kretprobe.Hits":      func(c *caller, _ *kprobe.Regs) error { c.r.Hits(); return nil },
	"Kretprobe.Lost":      func(c *caller, _ *kprobe.Regs) error { c.r.Lost(); return nil },
	"Kretprobe.NMissed":   func(c *caller, _ *kprobe.Regs) error { c.r.NMissed(); return nil },
	"Watchpoint.Hits":     func(c *caller, _ *kprobe.Regs) error { c.w.Hits(); return nil },
	"Watchpoint.NMissed":  func(c *caller, _ *kprobe.Regs) error { c.w.NMissed(); return nil },
	"Programs.Free":       func(c *caller, _ *kprobe.Regs) error { return staysBusy(c.ps.Free()) },
	"Programs.Map":        func(c *caller, _ *kprobe.Regs) error { _, err := c.ps.Map("m"); return err },
	"Programs.Unplaced":   func(c *caller, _ *kprobe.Regs) error { c.ps.Unplaced(); return nil },
	"Programs.Segment":    func(c *caller, _ *kprobe.Regs) error { c.ps.Segment(); return nil },
	"Programs.Program":    func(c *caller, _ *kprobe.Regs) error { _, err := c.ps.Program("p"); return err },
	"Regs.Arg":            func(_ *caller, r *kprobe.Regs) error { _, err := r.Arg(0); return err },
	"Regs.CPU":            func(_ *caller, r *kprobe.Regs) error { r.CPU(); return nil },
	"Regs.Comm":           func(_ *caller, r *kprobe.Regs) error { r.Comm(); return nil },
	"Regs.Flags":          func(_ *caller, r *kprobe.Regs) error { r.Flags(); return nil },
	"Regs.FloatArg":       func(_ *caller, r *kprobe.Regs) error { _, err := r.FloatArg(0); return err },
	"Regs.Get":            func(_ *caller, r *kprobe.Regs) error { r.Get(arch.SP); return nil },
	"Regs.GoArgs":         func(_ *caller, r *kprobe.Regs) error { r.GoArgs(); return nil },
	"Regs.GoResults":      func(_ *caller, r *kprobe.Regs) error { r.GoResults(); return nil },
	"Regs.PC":             func(_ *caller, r *kprobe.Regs) error { return holds(r.PC() != 0) },
	"Regs.Raw":            func(_ *caller, r *kprobe.Regs) error { return holds(r.Raw() != nil) },
	"Regs.ReadMem":        func(_ *caller, r *kprobe.Regs) error { return r.ReadMem(r.SP(), make([]byte, 8)) },
	"Regs.Reg":            func(_ *caller, r *kprobe.Regs) error { _, err := r.Reg("di"); return err },
	"Regs.ReturnValue":    func(_ *caller, r *kprobe.Regs) error { r.ReturnValue(); return nil },
	"Regs.SP":             func(_ *caller, r *kprobe.Regs) error { return holds(r.SP() != 0) },
	"Regs.Set":            func(_ *caller, r *kprobe.Regs) error { r.Set(arch.SP, r.Get(arch.SP)); return nil },
	"Regs.SetPC":          func(_ *caller, r *kprobe.Regs) error { r.SetPC(r.PC()); return nil },
	"Regs.SetReturnValue": func(_ *caller, r *kprobe.Regs) error { r.SetReturnValue(r.ReturnValue()); return nil },
	"Regs.SetVector": func(_ *caller, r *kprobe.Regs) error {
		v, err := r.Vector(3)
		return errors.Join(err, r.SetVector(3, v))
	},
	"Regs.Stack": func(_ *caller, r *kprobe.Regs) error {
		pcs, _, err := r.Stack(8)
		return errors.Join(err, holds(len(pcs) > 0))
	},
	"Regs.String": func(_ *caller, r *kprobe.Regs) error { _, err := r.String(r.SP(), 8); return err },
	"Regs.Task":   func(_ *caller, r *kprobe.Regs) error { return holds(r.Task().TID != 0) },
	"Regs.Time":   func(_ *caller, r *kprobe.Regs) error { r.Time(); return nil },
	"Regs.Vector": func(_ *caller, r *kprobe.Regs) error { _, err := r.Vector(0); return err },
	"Regs.Word":   func(_ *caller, r *kprobe.Regs) error { _, err := r.Word(r.SP()); return err },
	"Regs.WriteMem": func(_ *caller, r *kprobe.Regs) error {
		b := make([]byte, 8) // below the red zone
		at := r.SP() - 1024
		return errors.Join(r.ReadMem(at, b), r.WriteMem(at, b))
	},
}

// staysBusy is an error that a call gives as long as the session is open.
func staysBusy(err error) error {
	if !errors.Is(err, syscall.EBUSY) {
		return fmt.Errorf("not EBUSY: %v", err)
	}
	return nil
}

func holds(is bool) error {
	if !is {
		return errors.New("not what there is")
	}
	return nil
}

// Whoever adds a method must say which of the two it is.
func TestEveryMethodIsOpenOrRefusedToHandlers(t *testing.T) {
	for _, v := range []any{&kprobe.Session{}, &kprobe.Kprobe{}, &kprobe.Jprobe{}, &kprobe.Kretprobe{}, &kprobe.Watchpoint{},
		&kprobe.Programs{}, &kprobe.Program{}, &kprobe.Regs{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumMethod() {
			name := typ.Elem().Name() + "." + typ.Method(i).Name
			_, refused := refusedToHandlers[name]
			_, open := openToHandlers[name]
			if refused == open {
				t.Errorf("%s: refused to handlers %v, open to them %v", name, refused, open)
			}
		}
	}
}

// Handlers of every kind make every call, while others register and the optimizer
// works: none waits, and each answer is the one that the call always gives them.
func TestHandlersCallEverything(t *testing.T) {
	kinds := map[string]func(c *caller, call func(*kprobe.Regs)) kprobe.Probe{
		"pre": func(c *caller, call func(*kprobe.Regs)) kprobe.Probe {
			return &kprobe.Kprobe{SymbolName: "hammer_add", PreHandler: harness.Pre(call)}
		},
		"post": func(c *caller, call func(*kprobe.Regs)) kprobe.Probe {
			return &kprobe.Kprobe{SymbolName: "hammer_add", PostHandler: func(_ *kprobe.Kprobe, r *kprobe.Regs, _ uint64) { call(r) }}
		},
		"fault": func(c *caller, call func(*kprobe.Regs)) kprobe.Probe {
			return &kprobe.Kprobe{SymbolName: "hammer_add", PreHandler: harness.Pre(func(*kprobe.Regs) { panic("a fault") }),
				FaultHandler: func(_ *kprobe.Kprobe, r *kprobe.Regs, _ int) int { call(r); return 1 }}
		},
		"jprobe": func(c *caller, call func(*kprobe.Regs)) kprobe.Probe {
			return &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "hammer_add"}, Entry: call}
		},
		"entry, swapped":  returnHandlers(kprobe.EngineSwap, true),
		"return, swapped": returnHandlers(kprobe.EngineSwap, false),
		"entry, exits":    returnHandlers(kprobe.EngineExits, true),
		"return, exits":   returnHandlers(kprobe.EngineExits, false),
		"watchpoint": func(c *caller, call func(*kprobe.Regs)) kprobe.Probe {
			return &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "churned"}, Len: 8, Access: kprobe.Write,
				Handler: func(_ *kprobe.Watchpoint, r *kprobe.Regs) { call(r) }}
		},
	}
	if !testprog.Watches.On(t) {
		delete(kinds, "watchpoint")
	}
	for i, kind := range slices.Sorted(maps.Keys(kinds)) {
		for _, concurrent := range []bool{false, true} {
			if testing.Short() && concurrent == (i%2 == 0) {
				continue
			}
			t.Run(fmt.Sprintf("%s, concurrent=%v", kind, concurrent), func(t *testing.T) { handlersCall(t, kinds[kind], concurrent) })
		}
	}
}

func returnHandlers(e kprobe.Engine, entry bool) func(c *caller, call func(*kprobe.Regs)) kprobe.Probe {
	return func(c *caller, call func(*kprobe.Regs)) kprobe.Probe {
		h := func(_ *kprobe.KretprobeInstance, r *kprobe.Regs) int { call(r); return 0 }
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "hammer_add"}, Engine: e}
		if entry {
			rp.EntryHandler = h
		} else {
			rp.Handler = h
		}
		return rp
	}
}

func handlersCall(t *testing.T, make func(*caller, func(*kprobe.Regs)) kprobe.Probe, concurrent bool) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "2")
	// Report asks for what a handler may, and is asked of under every lock that there is.
	c := &caller{spare: &kprobe.Kprobe{SymbolName: "hammer_leaf"}}
	var s *kprobe.Session
	o := &kprobe.Options{Concurrent: concurrent, Report: func(err error) { s.List(); s.Pending(); s.ReadMem(0, nil); t.Log(err) }}
	s = harness.Attach(t, p.Pid, o)
	c.s = s
	c.ps = harness.Load(t, s, []*bpf.MapSpec{{Name: "m", Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1}}, nil, map[string]string{"p": "r0 = 0\nexit"})
	// What calls are about is registered, and is not what is hit.
	c.k = &kprobe.Kprobe{SymbolName: "main"}
	c.j = &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:getpid"}, Entry: func() {}}
	c.r = &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "libc.so.6:getppid"}}
	c.w = &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "failures"}, Len: 4, Access: kprobe.Write}
	harness.OK(t, s.Register(c.k, c.j, c.r, &kprobe.Kprobe{SymbolName: "libnone.so:f"}))
	if testprog.Watches.On(t) {
		harness.OK(t, s.Register(c.w))
	}

	type row struct {
		name string
		call func(*kprobe.Regs) error
		want error
	}
	var rows []row
	for name, call := range refusedToHandlers {
		rows = append(rows, row{name, func(*kprobe.Regs) error { return call(c) }, syscall.EDEADLK})
	}
	for name, call := range openToHandlers {
		rows = append(rows, row{name, func(r *kprobe.Regs) error { return call(c, r) }, nil})
	}
	var next, calls atomic.Int64
	probe := make(c, func(r *kprobe.Regs) {
		row := rows[int(next.Add(1))%len(rows)]
		calls.Add(1)
		if err := row.call(r); !errors.Is(err, row.want) {
			t.Errorf("%s: %v, want %v", row.name, err, row.want)
		}
	})
	harness.OK(t, s.Register(probe))

	over := changesBeside(s, t)
	testprog.Until(t, "handlers have called everything twice", p.Pid, func() bool {
		p.Round("100")
		return calls.Load() >= int64(2*len(rows))
	})
	over()
	harness.OK(t, s.Unregister(probe))
	p.Round("10")
	harness.Ends(t, p)
}

// changesBeside registers and removes probes, and has points optimized, until it is told to end.
func changesBeside(s *kprobe.Session, t *testing.T) (end func()) {
	var work sync.WaitGroup
	stop := make(chan struct{})
	for _, name := range []string{"hammer_mul", "churner", "hammer_leaf"} {
		work.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				kp := &kprobe.Kprobe{SymbolName: name}
				if name != "churner" {
					kp.Program = kprobe.CountOnly
				}
				harness.OK(t, s.RegisterKprobe(kp))
				harness.OK(t, s.WaitOptimized())
				_, err := s.BlackList()
				harness.OK(t, err)
				harness.OK(t, kprobe.WriteList(io.Discard, s.List()))
				runtime.Gosched()
				harness.OK(t, s.UnregisterKprobe(kp))
			}
		})
	}
	return func() { close(stop); work.Wait() }
}
