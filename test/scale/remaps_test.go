// Package scale_test is about programs that are large, or laid out in memory in their own way.
package scale_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
)

// attach opens a session on a program, which is closed in the end if it is not then.
func attach(t testing.TB, pid int, o *kprobe.Options) *kprobe.Session {
	t.Helper()
	p, err := ptrace.Attach(pid)
	if err != nil {
		t.Fatal(err)
	}
	s, err := kprobe.Open(p, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// call has the program call its functions, and says what they answered.
func call(p *testprog.Proc) string {
	return strings.Join(p.Round("call"), "")
}

func count(name string) *kprobe.Kprobe {
	return &kprobe.Kprobe{SymbolName: name, Program: kprobe.CountOnly}
}

// A file of which a part is mapped a second time, as V8 does it to node's, is not loaded
// twice: what is not in that part is where it was, and what is has two places.
func TestMappedAgain(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "remaps", "-O2"))
	var second arch.Addr
	if _, err := fmt.Sscanf(strings.Join(p.Round("again"), ""), "again 0x%x", &second); err != nil {
		t.Fatal(err)
	}
	s := attach(t, p.Pid, nil)
	moved, twice := count("remaps_moved"), count("remaps_again")
	if err := s.RegisterKprobe(moved); err != nil {
		t.Fatalf("a function of which there is one: %v", err)
	}
	if err := s.RegisterKprobe(twice); !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("a function that is mapped twice: %v", err)
	}
	var found []arch.Addr
	for _, l := range s.Symbols().Match("remaps", "remaps_*") {
		if l.Func.Name == "remaps_again" {
			found = append(found, l.Addr)
		}
	}
	if len(found) != 2 || found[0] != second && found[1] != second {
		t.Errorf("remaps_again is at %v, its second place is %v", found, second)
	}
	used := &kprobe.Kprobe{Addr: second, Program: kprobe.CountOnly}
	if err := s.RegisterKprobe(used); err != nil {
		t.Fatal(err)
	}
	if got := call(p); got != "called 1 2 3 4" {
		t.Error(got)
	}
	if moved.Hits() != 1 || used.Hits() != 1 {
		t.Errorf("%d hits, and %d where it is mapped again", moved.Hits(), used.Hits())
	}
}

// A program may move its text to other memory, at the same addresses. Its functions are
// still there by their names, before and after, and the probes too: the traps went along.
func TestTextMoved(t *testing.T) {
	for name, early := range map[string]bool{"before": false, "under probes": true} {
		t.Run(name, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "remaps", "-O2"))
			if !early {
				p.Round("move")
			}
			s := attach(t, p.Pid, nil)
			moved, after := count("remaps_moved"), count("remaps_after")
			if err := s.RegisterKprobes([]*kprobe.Kprobe{moved, after}); err != nil {
				t.Fatal(err)
			}
			if early {
				p.Round("move")
			}
			late := count("remaps_other")
			if err := s.RegisterKprobe(late); err != nil {
				t.Fatal(err)
			}
			if got := call(p); got != "called 1 2 3 4" {
				t.Error(got)
			}
			if moved.Hits() != 1 || after.Hits() != 1 || late.Hits() != 1 {
				t.Errorf("%d, %d and %d hits", moved.Hits(), after.Hits(), late.Hits())
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if got := call(p); got != "called 1 2 3 4" {
				t.Errorf("after the session: %s", got)
			}
		})
	}
}

// Where other code is than the file's, its names are of nothing.
func TestTextReplaced(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "remaps", "-O2"))
	p.Round("move")
	p.Round("other")
	s := attach(t, p.Pid, nil)
	if err := s.RegisterKprobe(count("remaps_other")); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a function whose code is another's: %v", err)
	}
	if err := s.RegisterKprobe(count("remaps_moved")); err != nil {
		t.Errorf("its neighbour: %v", err)
	}
	if got := call(p); got != "called 1 2 9 4" {
		t.Error(got)
	}
}
