package trace_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// TestArgsOfGo reads arguments by their numbers where functions have them: Go's in Go's registers, and C's in the same
// program in C's, at the entry, at the return and in conditions, by programs and by handlers.
func TestArgsOfGo(t *testing.T) {
	for _, inside := range []bool{true, false} {
		if inside && !testprog.ReadsFSBase.On(t) {
			continue // nothing runs inside
		}
		p := testprog.Start(t, testprog.Build(t, "cgo", "CGO_ENABLED=1"))
		s := attach(t, p.Pid, nil)
		events := make(chan string, 100)
		tr := trace.New(s, func(e *event.Event) {
			text := e.Name
			for _, a := range e.Args {
				text += fmt.Sprint(" ", a.Bits)
			}
			events <- text
		})
		tr.Inside = inside
		ok(t, tr.Add("p:go main.leaf $arg1 $arg2 a b if $arg1 > 1", "p:c cgo_leaf $arg1 $arg2", "r:back main.leaf $arg1 a $retval if $arg2 == 7 && $arg1 != 1", "p:all *leaf $arg1 if $arg2 == 7"))
		p.Round("4")
		tr.Flush()
		ok(t, s.Close())
		var got []string
		for range 4 + 2 + 4 + 3 + 4 {
			got = append(got, testprog.Receive(t, "an event", p.Pid, events))
		}
		if n := len(events); n > 0 {
			t.Errorf("inside %v: %d events more", inside, n)
		}
		slices.Sort(got)
		want := []string{
			"all 0", "all 0", "all 1", "all 1", "all 2", "all 2", "all 3", "all 3",
			"back 0 0 73", "back 2 2 97", "back 3 3 109",
			"c 0 7", "c 1 7", "c 2 7", "c 3 7",
			"go 2 7 2 7", "go 3 7 3 7",
		}
		if !slices.Equal(got, want) {
			t.Errorf("inside %v: %q", inside, got)
		}
	}
}

// TestArgsOfGoRefused tells why an argument is in no register that is known, of Go and of other languages.
func TestArgsOfGoRefused(t *testing.T) {
	for _, c := range []struct{ flags, definition, says string }{
		{"", "p main.leaf $arg10", "has 9 registers"},
		{"", "p runtime.asmcgocall.abi0 $arg1", "on the stack, from +8(%rsp) on"},
		{"-ldflags=-s -w", "p runtime.memmove $arg1", "written in assembler"},
	} {
		p := testprog.Start(t, testprog.Build(t, "cgo", "CGO_ENABLED=1", cmp.Or(c.flags, "-ldflags=")))
		s := attach(t, p.Pid, nil)
		err := trace.New(s, func(*event.Event) {}).Add(c.definition)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.definition, err)
		}
		ok(t, s.Close())
	}
	p := testprog.Start(t, testprog.Build(t, "scans", "-O1", "-fno-omit-frame-pointer"))
	s := attach(t, p.Pid, nil)
	err := trace.New(s, func(*event.Event) {}).Add("p camlScans__deep_80 $arg1")
	if err == nil || !strings.Contains(err.Error(), "the function is OCaml's") {
		t.Error(err)
	}
	ok(t, s.Close())
}
