package test

import (
	"runtime"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
)

// uncalledBuilds are the program that jumps to functions with words on the stack that are no return addresses.
func uncalledBuilds(t *testing.T) [][]string {
	testprog.Need(t, "a machine that has return addresses on the stack", runtime.GOARCH == "amd64")
	return [][]string{{"-O2"}, {"-O2", "-static"}, {"-O2", "CC=musl-gcc"}, {"-O2", "-m32"}, {"-O2", "-static", "-no-pie", "-m32"}}
}

// What its file says it of has no return probe.
func TestNoReturnWithoutAnAddress(t *testing.T) {
	for _, flags := range uncalledBuilds(t) {
		p := testprog.Start(t, testprog.Build(t, "uncalled", flags...))
		s := attach(t, p.Pid, nil)
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "begins"}, Program: kprobe.CountOnly}
		const why = "it is not called, and returns to nobody: by its unwind table it has no return address"
		if plan := s.Plan(rp); plan.Verdict != "refuse" || !strings.Contains(plan.Reason, why) {
			t.Errorf("%q: %v", flags, plan)
		}
		if err := s.RegisterKretprobe(rp); err == nil {
			t.Errorf("%q: it is registered", flags)
		}
		detach(t, s)
	}
}
