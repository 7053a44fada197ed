package conform

import (
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/isa/isatest"
	"kprobe/internal/machine"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/trace"
)

// Each place is looked at once, from a definition or a probe to the byte: its function's entry, and each of its
// exits. Whoever asks before the probe comes, as a tracer does that wants its work done inside, asks for
// what is looked at anyway.
func TestEachPlaceIsAnalysedOnce(t *testing.T) {
	m, err := machine.Of(arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	own, counting := m.ISA, isatest.New(m.ISA)
	m.ISA = counting
	defer func() { m.ISA = own }()
	path := testprog.Build(t, "jumpers", "-O2")
	returned := func(rp *kprobe.Kretprobe) func(*kprobe.Session, *trace.Tracer) error {
		rp.Kp.SymbolName, rp.Engine = "jumper", kprobe.EngineExits
		return func(s *kprobe.Session, _ *trace.Tracer) error { return s.RegisterKretprobe(rp) }
	}
	defined := func(def string) func(*kprobe.Session, *trace.Tracer) error {
		return func(_ *kprobe.Session, tr *trace.Tracer) error { return tr.Add(def) }
	}
	for _, tt := range []struct {
		name string
		do   func(*kprobe.Session, *trace.Tracer) error
	}{
		{"a definition", defined("p:hit jumper n=$arg2")},
		{"a definition of returns", defined("r:back jumper n=$retval")},
		{"a return probe with a program", returned(&kprobe.Kretprobe{Program: kprobe.CountOnly})},
		{"a return probe with a handler", returned(&kprobe.Kretprobe{Handler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }})},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := testprog.Start(t, path)
			proc, err := ptrace.Attach(p.Pid)
			if err != nil {
				t.Fatal(err)
			}
			s, err := kprobe.Open(proc, &kprobe.Options{Unlisted: true})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			tr := trace.New(s, nil)
			tr.Inside = true
			loc, err := s.Lookup("jumper")
			if err != nil {
				t.Fatal(err)
			}
			if err := tt.do(s, tr); err != nil {
				t.Fatal(err)
			}
			s.WaitOptimized()
			got := counting.Analyses()
			for at, n := range got {
				if n > 1 {
					t.Errorf("%v is analysed %d times", at, n)
				}
			}
			if got[loc.Addr] != 1 {
				t.Errorf("the entry is analysed %d times", got[loc.Addr])
			}
		})
	}
}
