package conform

import (
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

func TestHitsAreCounted(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	want := p.Round("1000")
	s := harness.Attach(t, p.Pid, nil)
	var pcs int
	kp := &kprobe.Kprobe{SymbolName: "jumper"}
	kp.PreHandler = func(p *kprobe.Kprobe, regs *kprobe.Regs) int {
		if regs.PC() == p.Addr {
			pcs++
		}
		return 0
	}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	got := p.Round("1000")
	if got[0] != want[0] {
		t.Errorf("the program's result is %q under a probe, %q without", got[0], want[0])
	}
	if err := s.UnregisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	// No handler runs any more, so what they wrote can be read.
	if kp.Hits() != 1000 || pcs != 1000 || kp.NMissed() != 0 {
		t.Errorf("%d hits, %d with the right PC, %d missed; want 1000, 1000, 0", kp.Hits(), pcs, kp.NMissed())
	}
	p.Round("1000")
	if kp.Hits() != 1000 {
		t.Errorf("%d hits after unregistering", kp.Hits())
	}
	if kp.Addr != arch.Addr(0) {
		t.Errorf("the address is still %v after unregistering a probe by name", kp.Addr)
	}
}

func TestPostHandlerSeesTheEffect(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	want := p.Round("100")
	s := harness.Attach(t, p.Pid, nil)
	var before, after arch.Addr
	var posts int
	kp := &kprobe.Kprobe{
		SymbolName: "jumper",
		PreHandler: func(p *kprobe.Kprobe, regs *kprobe.Regs) int { before = regs.PC(); return 0 },
		PostHandler: func(p *kprobe.Kprobe, regs *kprobe.Regs, flags uint64) {
			after = regs.PC()
			posts++
			if flags != 0 {
				t.Errorf("flags are %d", flags)
			}
		},
	}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	if got := p.Round("100"); got[0] != want[0] {
		t.Errorf("result %q, want %q", got[0], want[0])
	}
	if err := s.UnregisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	if posts != 100 || after <= before {
		t.Errorf("%d post-handlers, PC %v before and %v after", posts, before, after)
	}
}

func TestReturnProbe(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	want := p.Round("100")
	s := harness.Attach(t, p.Pid, nil)
	var n int
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, DataSize: 8}
	rp.EntryHandler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
		a, _ := regs.Arg(0)
		b, _ := regs.Arg(1)
		ri.Data[0] = byte(a*3 + b)
		return 0
	}
	rp.Handler = func(ri *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
		n++
		if byte(regs.ReturnValue()) != ri.Data[0] || regs.PC() != ri.RetAddr {
			t.Errorf("return value %#x, private data %#x, PC %v, return address %v",
				regs.ReturnValue(), ri.Data[0], regs.PC(), ri.RetAddr)
		}
		return 0
	}
	if err := s.RegisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}
	if got := p.Round("100"); got[0] != want[0] {
		t.Errorf("result %q, want %q", got[0], want[0])
	}
	if err := s.UnregisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}
	if n != 100 || rp.NMissed() != 0 {
		t.Errorf("%d returns, %d missed", n, rp.NMissed())
	}
}

func TestStartedProgramWaits(t *testing.T) {
	date := "/bin/date"
	p, err := ptrace.Start([]string{date}, nil)
	if err != nil {
		t.Fatal(err)
	}
	s, err := kprobe.Open(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var names []string
	kp := &kprobe.Kprobe{SymbolName: "getenv", PreHandler: func(p *kprobe.Kprobe, regs *kprobe.Regs) int {
		a, _ := regs.Arg(0)
		name, _ := regs.String(arch.Addr(a), 100)
		names = append(names, name)
		return 0
	}}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	s.Continue()
	<-s.Done()
	if exit, over := s.Exited(); !over || exit.Code != 0 {
		t.Errorf("date ended with %v, %v", exit, over)
	}
	t.Logf("%q", names)
	if len(names) == 0 {
		t.Error("date asked for no environment variable")
	}
}
