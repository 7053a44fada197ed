package realworld

import (
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

func TestEveryInstructionOfEveryClass(t *testing.T) {
	for _, build := range []struct {
		name  string
		flags []string
	}{
		{"O2", []string{"-O2"}},
		{"O0", []string{"-O0"}},
		{"cet", []string{"-O2", "-fcf-protection=full"}},
		{"static", []string{"-O2", "-static", "-no-pie"}},
	} {
		for _, post := range []bool{false, true} {
			name := build.name
			if post {
				name += "/post"
			}
			t.Run(name, func(t *testing.T) {
				path := testprog.Build(t, "insns", build.flags...)
				p := testprog.Start(t, path)
				want := p.Round("1")
				s := harness.Attach(t, p.Pid, nil)
				ps := harness.EveryInstruction(t, s, harness.FuncsOf(t, p.Pid, path), harness.IsProbedFunc, post)
				if len(ps) < 500 {
					t.Fatalf("only %d instructions found", len(ps))
				}
				ps = harness.RegisterAll(t, s, ps)
				t.Logf("%d probes, target stopped for %v", len(ps), s.LastStop())
				got := p.Round("1")
				if !slices.Equal(got, want) {
					t.Errorf("results differ:\n%s\nwithout probes:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				hit := 0
				for _, p := range ps {
					if p.Hits() > 0 {
						hit++
					}
				}
				t.Logf("%d of %d instructions were executed", hit, len(ps))
				if hit < len(ps)*9/10 {
					t.Errorf("only %d of %d instructions were executed", hit, len(ps))
				}
				if err := s.UnregisterKprobes(ps); err != nil {
					t.Error(err)
				}
				if got := p.Round("1"); !slices.Equal(got, want) {
					t.Errorf("results differ after removal:\n%s", strings.Join(got, "\n"))
				}
			})
		}
	}
}

// Real functions, not written to be probed: every function of libc that the
// program reaches, each at every instruction, all at once. Among them are
// printf's with their jump tables, and the string functions in the
// vector instructions of this machine's choice.
func TestEveryInstructionOfWhatLibcRuns(t *testing.T) {
	harness.EveryInstructionOfLibc(t, testprog.Start(t, testprog.Build(t, "insns", "-O2")))
}
