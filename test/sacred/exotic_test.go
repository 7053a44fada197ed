// Package sacred_test is about programs that do what few do: no probe may make one of them
// act otherwise, let alone end it.
package sacred_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/trace"
)

// builds are the ways in which the program can be made.
var builds = []struct {
	name  string
	flags []string
}{
	{"dynamic", []string{"-O2", "-pthread", "-lm"}},
	{"static", []string{"-O2", "-pthread", "-static", "-lm"}},
	{"musl", []string{"CC=musl-gcc", "-O2", "-pthread", "-static", "-lm"}},
	{"i386", []string{"-O2", "-pthread", "-m32", "-msse2", "-lm"}},
}

// A way is how a program is probed.
type way struct {
	name string
	o    *kprobe.Options
	do   func(t *testing.T, s *kprobe.Session)
}

// placing is the way of one function.
func placing(do func(*testing.T, *kprobe.Session)) way { return way{do: do} }

// placed are the ways in which it is probed.
var placed = []way{
	{"stops", nil, stops},
	{"inside", nil, inside},
	{"everywhere", nil, everywhere},
	{"followed", &kprobe.Options{}, inside},
}

// stops has a handler of ours see each call and each return.
func stops(t *testing.T, s *kprobe.Session) {
	var all []kprobe.Probe
	for _, name := range []string{"work", "reads"} {
		all = append(all,
			&kprobe.Kprobe{SymbolName: name, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }},
			&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, Handler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }, MaxActive: 100})
	}
	if err := s.Register(all...); err != nil {
		t.Fatal(err)
	}
}

// inside records them, with memory that is not there at times, without a stop.
func inside(t *testing.T, s *kprobe.Session) {
	tr := trace.New(s, func(*event.Event) {})
	tr.Inside = true
	first := "%di"
	if s.Target().Arch().PtrSize == 4 {
		first = "+4(%sp)"
	}
	if err := tr.Add("p:work work "+first+" $comm", "r:worked work $retval", "p:reads reads +0("+first+"):string", "r:read reads $retval"); err != nil {
		t.Fatal(err)
	}
	s.WaitOptimized()
}

// everywhere counts what the program and its libraries do.
func everywhere(t *testing.T, s *kprobe.Session) {
	var ps []*kprobe.Kprobe
	for _, l := range s.Symbols().Match("", "*") {
		ps = append(ps, &kprobe.Kprobe{Addr: l.Addr, Program: kprobe.CountOnly, Optional: true})
	}
	if err := s.RegisterKprobes(ps); err != nil {
		t.Fatal(err)
	}
	ps = slices.DeleteFunc(ps, func(kp *kprobe.Kprobe) bool { return !kp.Registered() })
	s.WaitOptimized()
	t.Logf("%d probes", len(ps))
}

// probed attaches to a program and places what a way has. Its children are followed where the
// way has options.
func probed(t *testing.T, p *testprog.Proc, w way) (leave func()) {
	t.Helper()
	target, err := ptrace.Attach(p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	o := kprobe.Options{Report: func(err error) { t.Logf("reported: %v", err) }}
	var children sync.WaitGroup
	if w.o != nil {
		o.Follow = func(child *kprobe.Session) {
			if len(child.Symbols().Match("exotic", "work")) > 0 {
				w.do(t, child)
			}
			children.Go(func() {
				<-child.Done()
				child.Close()
			})
		}
	}
	s, err := kprobe.Open(target, &o)
	if err != nil {
		t.Fatal(err)
	}
	w.do(t, s)
	return func() {
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
		children.Wait()
	}
}

// beyond are what is lost, and why: see docs/LIMITS.md.
var beyond = map[string]string{
	"own_traps":              "the kernel forgets a handler that is met with its signal blocked, and nobody else knows it",
	"dies_of_a_trap_ignored": "our handler ignores for the program",
	"fatal-TRAP":             "that a program has set SIG_DFL and not SIG_IGN cannot be told after a trap",
	"locked_in_memory":       "shared memory of ours is locked with the rest, and made to exist for that",
}

// here are the cases that are not beyond us, nor beyond this machine.
func here(t *testing.T, names []string) []string {
	return slices.DeleteFunc(names, func(name string) bool {
		return beyond[name] != "" || name == "calls_of_32_bits" && !testprog.Programs32.On(t)
	})
}

// differ compares two outputs line by line.
func differ(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("line %d, probed:\n%s\nnot probed:\n%s", i, g, w)
		}
	}
}

// said has a program do what names say, one after the other.
func said(t *testing.T, p *testprog.Proc, names []string) (lines []string) {
	t.Helper()
	for _, name := range names {
		got := p.Round("%s", name)
		if len(got) == 0 {
			t.Fatal(name)
		}
		lines = append(lines, got...)
	}
	return lines
}

// All that leaves the program as it was, one after the other in one program.
func TestExotic(t *testing.T) {
	soak := testprog.Soak(t, 0) > 0
	for i, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			path := testprog.Build(t, "exotic", b.flags...)
			plain := testprog.Start(t, path)
			names := here(t, plain.Round("names"))
			want := said(t, plain, names)
			for way := range placed {
				if !soak && way > 1 && b.name != "dynamic" {
					continue
				}
				t.Run(placed[way].name, func(t *testing.T) {
					names, want, every := names, want, 1
					if testing.Short() && b.name != "i386" { // each case with one of three libraries
						every = 3
					}
					if every > 1 {
						j := -1
						names = slices.DeleteFunc(slices.Clone(names), func(string) bool { j++; return j%every != i%every })
						want = said(t, testprog.Start(t, path), names)
					}
					p := testprog.Start(t, path)
					leave := probed(t, p, placed[way])
					differ(t, said(t, p, names), want)
					leave()
					p.CloseStdin()
					if r := p.Result(); !r.OK() {
						t.Errorf("it ended with %v", r.Status)
					}
				})
			}
		})
	}
}

// SIGTRAP alone is blocked and unblocked right after a hit, in a program that has not done it before.
func TestTrapAlone(t *testing.T) {
	rounds := 8
	if testing.Short() {
		rounds = 4
	}
	for _, b := range builds[:2] {
		path := testprog.Build(t, "exotic", b.flags...)
		names := []string{"trap_alone_again"}
		want := said(t, testprog.Start(t, path), names)
		for i := range rounds {
			p := testprog.Start(t, path)
			leave := probed(t, p, placed[0])
			t.Run(fmt.Sprint(b.name, i), func(t *testing.T) { differ(t, said(t, p, names), want) })
			leave()
		}
	}
}

// All that a program does once: each in a program of its own. Without SOAK only some, by turns.
func TestExoticEnds(t *testing.T) {
	soak, turns := testprog.Soak(t, 0) > 0, 8
	if testing.Short() {
		turns = 16
	}
	for i, b := range builds {
		path := testprog.Build(t, "exotic", b.flags...)
		p := testprog.Start(t, path)
		names := here(t, p.Round("names wild"))
		p.CloseStdin()
		for j, name := range names {
			for way := range placed {
				if !soak && (way > 1 || (j+i*2+way*4)%turns != 0) {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s/%s", b.name, placed[way].name, name), func(t *testing.T) {
					want := testprog.Start(t, path)
					want.Send("%s", name)
					want.CloseStdin()
					got := testprog.Start(t, path)
					leave := probed(t, got, placed[way])
					got.Send("%s", name)
					got.CloseStdin()
					g, w := got.Result(), want.Result()
					leave()
					differ(t, g.Lines, w.Lines)
					if g.Status != w.Status {
						t.Errorf("probed it ended with %#x, else with %#x\n%s", g.Status, w.Status, strings.Join(g.Lines, "\n"))
					}
				})
			}
		}
	}
}
