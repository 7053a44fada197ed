package traced

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"kprobe/internal/proc"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

func TestSubject(t *testing.T) {
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	child, parent := c.Process.Pid, os.Getppid()
	for _, tt := range []struct {
		request, pid uint64
		caller, want int
	}{
		{requestTraceMe, 0, child, 0}, // we are its parent
		{requestTraceMe, 0, parent, parent},
		{requestAttach, uint64(child), parent, child},
		{requestSeize, uint64(child), parent, child},
		{requestSeize | 0xffff<<32, uint64(child) | 0xffff<<32, parent, child}, // ints have no upper halves
		{requestAttach, 1 << 30, parent, 0},                                    // nobody
		{1, uint64(child), parent, 0},                                          // PTRACE_PEEKTEXT
	} {
		who, ok := subject(tt.request, tt.pid, tt.caller)
		if ok != (tt.want != 0) || ok && who != tt.want {
			t.Errorf("request %#x of %d, by %d: %d, %v, want %d", tt.request, tt.pid, tt.caller, who, ok, tt.want)
		}
	}
}

// Who is on its way to being a member is waited for, and let go before the call is made.
func TestAskedWaits(t *testing.T) {
	self, parent := os.Getpid(), os.Getppid()
	f := (*Family)(nil).With(parent, func(string) { t.Error("the caller was let go") })
	f.Expect(self)
	order := make(chan string, 2)
	if !f.Asked(args(requestSeize, self), parent, nil, func() { order <- "called" }) {
		t.Fatal("it concerns nobody")
	}
	testprog.Blocked(t, "(*Family).")
	select {
	case got := <-order:
		t.Fatalf("%s before it was known how to let go", got)
	default:
	}
	f.Join(self, func(string) { order <- "let go" })
	if a, b := <-order, <-order; a != "let go" || b != "called" {
		t.Errorf("%s, %s", a, b)
	}

	f.Leave(self)
	f.Expect(self)
	f.Join(self, nil) // not followed after all
	f.Asked(args(requestSeize, self), parent, nil, func() { order <- "called" })
	if got := <-order; got != "called" {
		t.Error(got)
	}

	// A child that shares the memory of its parent is no member.
	f.Leave(parent)
	f.Asked(args(requestTraceMe, 0), parent, func(string) { order <- "self" }, func() { order <- "called" })
	if a, b := <-order, <-order; a != "self" || b != "called" {
		t.Errorf("%s, %s", a, b)
	}
}

func args(request, pid int) Call {
	return Call{asked: tracers[0], arg: func(n int) (uint64, error) { return []uint64{uint64(request), uint64(pid)}[n], nil }}
}

// What has been looked through is not looked through again, until a library comes or goes.
func TestSearchOnce(t *testing.T) {
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer c.Wait()
	defer c.Process.Kill()
	space := symbol.NewSpace(func(m symbol.Mapping) (*symbol.File, error) {
		f, err := os.Open(m.Path)
		if err != nil {
			return nil, err
		}
		return symbol.Open(f, nil)
	})
	var s Search
	testprog.UntilNil(t, "its libraries are loaded", c.Process.Pid, func() error {
		text, err := proc.Process(c.Process.Pid).Read("maps")
		if err != nil {
			t.Fatal(err)
		}
		maps, err := symbol.ParseMaps(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		space.Update(maps)
		if len(s.Places(space, nil, true)) == 0 {
			return fmt.Errorf("the function is nowhere in\n%s", text)
		}
		return nil
	})
	if again := s.Places(space, nil, true); again != nil {
		t.Errorf("looked through again: %v", again)
	}
	space.Update(nil)
	s.Places(space, nil, true)
	if len(s.modules) != 0 {
		t.Errorf("%d modules of a process that has none", len(s.modules))
	}
}
