package machine

import (
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/cpu"
)

// Every machine has its record, and what it lacks has a reason that names the machine.
func TestEveryMachineHasARecord(t *testing.T) {
	for _, a := range arch.All() {
		m, err := Of(a)
		if err != nil {
			t.Errorf("%s: %v", a.Name, err)
			continue
		}
		if m.ISA.Arch() != a {
			t.Errorf("%s: its instructions are those of %s", a.Name, m.ISA.Arch().Name)
		}
		if m.CPU != nil && m.CPU != cpu.Of(a) || m.Lifeline != nil && m.Lifeline.Arch != a || m.Code != nil && m.Code.Arch != a || m.Detours != nil && m.Detours.Arch != a {
			t.Errorf("%s: a part of another machine", a.Name)
		}
		names := map[string]bool{}
		for _, p := range m.Parts() {
			if p.Name == "" || p.Gives == "" || names[p.Name] {
				t.Errorf("%s: part %+v", a.Name, p)
			}
			names[p.Name] = true
			if p.Err != nil && !strings.Contains(p.Err.Error(), a.Name) {
				t.Errorf("%s: %s: %v does not say of which machine", a.Name, p.Name, p.Err)
			}
		}
	}
}

// Where live processes are probed, a trap is told from a signal that another process sent by the
// number of its exception.
func TestTrapsAreKnown(t *testing.T) {
	for _, m := range All() {
		if m.Lifeline != nil && m.Arch.BreakTrap == 0 {
			t.Errorf("%s: which exception its breakpoint raises is not known", m.Arch.Name)
		}
	}
}

// x86-64 has everything. The others' gaps are counted, so that one that is filled, or
// a new one, is seen here.
func TestPartsThatAreMissing(t *testing.T) {
	const stubbed = "page tables, C's arguments, Go's arguments, signal frames, lifeline, jumps, compiler, detours, routines, calls"
	want := map[string]string{
		"amd64":    "",
		"386":      "stub's view, page tables, Go's arguments",
		"arm64":    "signal frames",
		"riscv64":  "jumps, detours, routines, calls",
		"mips64le": stubbed,
		"mipsle":   stubbed,
		"ppc":      stubbed,
		"ppc64le":  "page tables, C's arguments, Go's arguments, jumps, compiler, detours, routines, calls",
		"s390x":    "Go's arguments, jumps, compiler, detours, routines, calls",
	}
	for _, m := range All() {
		var missing []string
		for _, p := range m.Parts() {
			if p.Err != nil {
				missing = append(missing, p.Name)
			}
		}
		if got := strings.Join(missing, ", "); got != want[m.Arch.Name] {
			t.Errorf("%s: %s are missing, want %s", m.Arch.Name, got, want[m.Arch.Name])
		}
	}
}
