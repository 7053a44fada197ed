package kernel_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/internal/vm/vmtest"
	"kprobe/symbol/kernel"
)

// Stacks equal those that the guest's own probes of the same functions print for the same work,
// through system calls, page faults, interrupts, their stack, and kernel threads.
func TestStacksAreTheGuests(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s := open(t, v, v.RAM())
	k := s.Target().(interface{ Kernel() *kernel.Kernel }).Kernel()
	// The first four run when they are called for, in the guest's own time; the others where they
	// interrupt. That may be the guest's tracer itself, whose trampolines no table describes.
	places := []string{"uptime_proc_show", "vma_interval_tree_insert", "ksys_sync", "hrtimer_wakeup", "delayed_work_timer_fn", "vmstat_update"}
	called, certain := 3, 4
	const alone = "version_proc_show" // a return address that is swapped would end the guest's own walk

	var mu sync.Mutex
	ours := make(map[string]map[string]int)
	returned := make(map[string]int)
	text := func(name string, r *kprobe.Regs) []string {
		pcs, end, err := r.Stack(64)
		if err != nil || end != "" && !slices.Contains(places[called:], name) {
			t.Errorf("a stack ends: %s, %v", end, err)
		}
		var names []string
		for _, pc := range pcs {
			name, _, _ := strings.Cut(k.Name(arch.Addr(pc)), "/")
			names = append(names, name)
		}
		return names
	}
	for _, name := range append(slices.Clone(places), alone) {
		ours[name] = make(map[string]int)
		p := &kprobe.Kprobe{SymbolName: name, PreHandler: func(_ *kprobe.Kprobe, r *kprobe.Regs) int {
			names := text(name, r)
			mu.Lock()
			defer mu.Unlock()
			ours[name][strings.Join(names[1:], " ")]++
			return 0
		}}
		if err := s.RegisterKprobe(p); err != nil {
			t.Fatal(err)
		}
	}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: alone}, Handler: func(_ *kprobe.KretprobeInstance, r *kprobe.Regs) int {
		names := text(alone, r)
		mu.Lock()
		defer mu.Unlock()
		returned[strings.Join(names, " ")]++
		return 0
	}}
	if err := s.RegisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}

	cd := "cd " + tracing + "; "
	undo := sync.OnceFunc(func() {
		run(t, v, cd+"echo 0 >events/own/enable; for i in 0 1 2 3 4 5; do echo '!stacktrace' >events/own/s$i/trigger; done; "+
			"echo >kprobe_events; echo 0 >options/sym-offset; echo >trace; echo 1 >tracing_on")
	})
	defer undo()
	// One command, since ours are there: each process that begins is a hundred stops.
	set := cd
	for i, name := range places {
		set += fmt.Sprintf("echo 'p:own/s%d %s' >>kprobe_events; echo stacktrace >events/own/s%d/trigger; ", i, name, i)
	}
	run(t, v, set+"echo 1 >options/sym-offset; echo 0 >tracing_on; echo >trace; echo 1 >events/own/enable")
	// The guest misses a timer that interrupts another probe of its own, so it sleeps more than
	// once.
	run(t, v, cd+"echo 1 >tracing_on; cat /proc/uptime >/dev/null; cat /proc/uptime /proc/version >/dev/null; sync; kwork naps 6; echo 0 >tracing_on")
	out := pack(t, v, cd+"cat trace")
	undo()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	theirs := guestStacks(out)
	for i, name := range places {
		if len(theirs[name]) == 0 && i < certain {
			t.Errorf("%s: the guest has printed no stack", name)
		}
		for stack, n := range theirs[name] {
			if stack == "" || strings.Contains(stack, " 0x") || strings.Contains(stack, alone+"+") {
				continue // it was not to be printed, or goes through a trampoline of the guest's or ours
			}
			if ours[name][stack] < n {
				t.Errorf("%s, %d times in the guest, %d here:\n%s\nours:\n%v", name, n, ours[name][stack], stack, ours[name])
			}
		}
	}
	if len(returned) == 0 || fmt.Sprint(returned) != fmt.Sprint(ours[alone]) {
		t.Errorf("at the return: %v\nat the entry: %v", returned, ours[alone])
	}
}

// Programs' stacks are walked in the guest without a stop: at a function's beginning, by a jump, in
// its middle, by a trap, and where it has returned. They equal the stacks that are walked at stops
// there. A program that follows frame pointers is refused.
func TestStacksInside(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	s, stops := openCounting(t, v)
	defer s.Close()
	const function, work = "uptime_proc_show", "cat /proc/uptime /proc/uptime >/dev/null"
	kinds := map[string]bpf.Kind{"entry": bpf.Kprobe, "middle": bpf.Kprobe, "back": bpf.Kretprobe}
	c := &bpf.Collection{}
	for name, kind := range kinds {
		m := &bpf.MapSpec{Name: name, Type: bpf.StackTrace, KeySize: 4, ValueSize: 8 * 64, MaxEntries: 64}
		c.Maps = append(c.Maps, m)
		c.Programs = append(c.Programs, &bpf.Program{Name: name, Kind: kind})
	}
	for i, p := range c.Programs {
		insns, err := bpftest.Assemble("r2 = map "+c.Maps[i].Name+"; r3 = 0; call get_stackid; r0 = 0; exit", c.Maps...)
		if err != nil {
			t.Fatal(err)
		}
		p.Insns, p.Maps = insns, c.Maps
	}
	ps, err := s.Load(c)
	if err != nil {
		t.Fatal(err)
	}
	program := func(name string) *kprobe.Program {
		p, err := ps.Program(name)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	entry := &kprobe.Kprobe{SymbolName: function, Program: program("entry")}
	middle := unjumpable(t, s, function)[0]
	middle.Program = program("middle")
	back := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: function}, Program: program("back")}
	if err := errors.Join(s.RegisterKprobes([]*kprobe.Kprobe{entry, middle}), s.RegisterKretprobe(back)); err != nil {
		t.Fatal(err)
	}
	s.WaitOptimized()
	before := stops.hits.Load()
	run(t, v, work)
	if n := stops.hits.Load() - before; n != 0 {
		t.Errorf("%d stops", n)
	}
	if entry.Hits() != 2 || middle.Hits() != 2 || back.Hits() != 2 {
		t.Errorf("%d, %d and %d hits", entry.Hits(), middle.Hits(), back.Hits())
	}
	inside := make(map[string][]uint64)
	for name := range kinds {
		m, err := ps.Map(name)
		if err != nil {
			t.Fatal(err)
		}
		for key := range m.All() {
			value, err := m.Lookup(key)
			if err != nil || inside[name] != nil {
				t.Errorf("another stack at %s: %v", name, err)
			}
			for pc := range slices.Chunk(value, 8) {
				if pc := binary.LittleEndian.Uint64(pc); pc != 0 {
					inside[name] = append(inside[name], pc)
				}
			}
		}
	}
	if err := errors.Join(s.UnregisterKprobes([]*kprobe.Kprobe{entry, middle}), s.UnregisterKretprobe(back)); err != nil {
		t.Fatal(err)
	}

	var mu sync.Mutex
	at := make(map[string][]uint64)
	stop := func(name string, offset uint64) *kprobe.Kprobe {
		return &kprobe.Kprobe{SymbolName: function, Offset: offset, PreHandler: func(_ *kprobe.Kprobe, r *kprobe.Regs) int {
			pcs, end, err := r.Stack(64)
			if err != nil || end != "" {
				t.Errorf("a stack ends: %s, %v", end, err)
			}
			mu.Lock()
			defer mu.Unlock()
			at[name] = pcs
			return 0
		}}
	}
	if err := s.RegisterKprobes([]*kprobe.Kprobe{stop("entry", 0), stop("middle", middle.Offset)}); err != nil {
		t.Fatal(err)
	}
	run(t, v, work)
	mu.Lock()
	at["back"] = at["entry"][1:]
	for name := range kinds {
		if len(at[name]) < 5 || !slices.Equal(at[name], inside[name]) {
			t.Errorf("%s: %x in the guest, %x at a stop", name, inside[name], at[name])
		}
	}
	mu.Unlock()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	sane(t, v)
}

// guestStacks counts the callers, by function, in a trace file.
func guestStacks(trace string) map[string]map[string]int {
	found := make(map[string]map[string]int)
	pending := make(map[string]string) // by CPU, as another one's event may come between an event and its stack
	var name string
	var stack []string
	end := func() {
		if name == "" {
			return
		}
		at := slices.IndexFunc(stack, func(f string) bool { return strings.HasPrefix(f, name+"+") })
		if found[name] == nil {
			found[name] = make(map[string]int)
		}
		found[name][strings.Join(stack[at+1:], " ")]++
		name, stack = "", nil
	}
	for line := range strings.Lines(trace) {
		line = strings.TrimSpace(line)
		if frame, ok := strings.CutPrefix(line, "=> "); ok {
			frame, _, _ = strings.Cut(frame, "/")
			stack = append(stack, frame)
			continue
		}
		end()
		stack = nil
		_, cpu, _ := strings.Cut(line, "[")
		cpu, _, _ = strings.Cut(cpu, "]")
		if strings.Contains(line, "<stack trace>") {
			name = pending[cpu]
			delete(pending, cpu)
		} else if _, after, ok := strings.Cut(line, ": ("); ok {
			pending[cpu], _, _ = strings.Cut(after, "+")
		}
	}
	end()
	return found
}

// Two CPUs' events come one after the other, and then their stacks.
func TestGuestStacksOfCPUsAreApart(t *testing.T) {
	const trace = `
 cat-1 [000] d.h1. 1.1: s3: (hrtimer_wakeup+0x0/0x30)
 sh-2 [001] d.h1. 1.2: s3: (hrtimer_wakeup+0x0/0x30)
 cat-1 [000] d.h1. 1.3: <stack trace>
 => hrtimer_wakeup+0x1/0x30
 => first+0x2/0x9
 sh-2 [001] d.h1. 1.4: <stack trace>
 => hrtimer_wakeup+0x1/0x30
 => second+0x2/0x9
`
	want := map[string]map[string]int{"hrtimer_wakeup": {"first+0x2": 1, "second+0x2": 1}}
	if got := guestStacks(trace); !reflect.DeepEqual(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
