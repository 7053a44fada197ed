package life

import (
	"testing"

	"kprobe"

	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// Controllers that are killed, one after the other, leave no more and more code behind: what is not given back at once, for a thread may come to
// it, the next one gives back.
func TestKilledControllersLeaveNoCode(t *testing.T) {
	times := 20
	if testing.Short() {
		times = 4
	}
	for _, functions := range [][]string{harness.Handled, {"count!ret_fib", "count!ret_ackermann", "count!ret_deep", "count!ret_nested"}} {
		p := testprog.Start(t, testprog.Build(t, "rets", "-O2"))
		want := p.Round("20")
		before, most := codeMappings(t, p.Pid), 0
		for i := range times {
			c := harness.Controller(t, p.Pid, functions...)
			p.Send("20")
			c.Process.Kill()
			c.Wait()
			for _, line := range want {
				if got := p.Line(); got != line {
					t.Fatalf("round %d: %q, and without probes %q", i, got, line)
				}
			}
			p.Expect("done")
			harness.Restored(t, p.Pid)
			most = max(most, codeMappings(t, p.Pid)-before)
		}
		if most > 9 { // of three at once: a word of the program's own may lead there for a while
			t.Errorf("%d mappings of code are left at a time by %d controllers", most, times)
		}
		p.Round("20") // no word of its own leads to the last one's
		s := harness.Attach(t, p.Pid, nil)
		harness.OK(t, s.Register(&kprobe.Kprobe{SymbolName: "ret_fib", PreHandler: harness.Pre(func(*kprobe.Regs) {})}))
		harness.Detach(t, s)
		if left := codeMappings(t, p.Pid) - before; left > 0 {
			t.Errorf("%d mappings of code are left after a session that was closed", left)
		}
	}
}

// codeMappings counts what a process has that can be executed and is no file's.
func codeMappings(t *testing.T, pid int) (n int) {
	t.Helper()
	maps, err := testprog.Mappings(pid)
	harness.OK(t, err)
	for _, m := range maps {
		if m.Executable() && !m.File() && m.Path == "" {
			n++
		}
	}
	return n
}
