package torture

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// Controllers are killed by SIGKILL while their target is at work, at any moment
// from attaching to having closed: after each, the target has its own text, nobody
// traces it, and every answer that it gave in the meantime is right.
func TestSoakKilledControllers(t *testing.T) {
	usual := 5 // rounds with each victim
	if testing.Short() {
		usual = 1
	}
	soaks := testprog.Soak(t, 0) > 0
	rnd := testprog.Rand(t)
	var total atomic.Int64
	for range testprog.Rounds(t, 0, 1) {
		for _, name := range slices.Sorted(maps.Keys(victims)) {
			rounds := usual
			switch {
			case soaks:
				rounds = 25
			case name == blocking, testing.Short() && slices.Contains(large, name):
				continue
			}
			t.Run(name, func(t *testing.T) { total.Add(int64(torture(t, victims[name](t), rounds, rnd))) })
		}
		if t.Failed() {
			break
		}
	}
	t.Logf("%d rounds", total.Load())
}

// torture kills controllers of a working victim, and answers how many.
func torture(t *testing.T, v harness.Victim, rounds int, rnd *rand.Rand) int {
	t.Helper()
	order := tortureOrder{PID: v.PID}
	order.Entries, order.Returns = acceptable(t, v)
	w := harness.StartWork(t, v)
	defer w.Stop()
	for i := range rounds {
		order.Seed = rnd.Uint64()
		c := startTortured(t, &order)
		// Short delays find what is short; the rest of a phase has long ones.
		phase := phases[rnd.IntN(len(phases))]
		delay := time.Duration(math.Exp(rnd.Float64()*math.Log(20e6)) * float64(time.Nanosecond))
		moment := fmt.Sprintf("round %d, controller %d killed %v after it said %q", i, c.Process.Pid, delay, phase)
		if err := c.until(phase); err != nil {
			t.Fatalf("%s: %v", moment, err)
		}
		time.Sleep(delay)
		c.Process.Kill()
		c.Wait()
		if err := harness.Healthy(v.PID, w); err != nil {
			t.Fatalf("%s: %v; %s", moment, err, outcome(v.Proc))
		}
		if out := c.complaints(); len(out) > 0 {
			t.Errorf("%s: it said %q", moment, out)
		}
	}
	w.Stop()
	t.Logf("%d rounds, %d entry and %d return probes, %d times work", rounds, len(order.Entries), len(order.Returns), w.Done.Load())
	if w.Done.Load() == 0 {
		t.Error("the program did no work")
	}
	return rounds
}

// acceptable asks the engine once where probes can be.
func acceptable(t *testing.T, v harness.Victim) (entries, returns []arch.Addr) {
	t.Helper()
	s := harness.Attach(t, v.PID, nil)
	for _, p := range harness.RegisterEntries(t, s, harness.EntryProbes(t, v.Funcs)) {
		entries = append(entries, p.Addr)
	}
	if v.Returns {
		for _, rp := range harness.RegisterReturns(t, s, harness.ReturnProbes(t, v.Funcs)) {
			returns = append(returns, rp.Kp.Addr)
		}
	}
	harness.Detach(t, s)
	return entries, returns
}

// tortured is a controller at work.
type tortured struct {
	*exec.Cmd
	lines chan string
	rest  []string
}

func startTortured(t *testing.T, o *tortureOrder) *tortured {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "order")
	if err := os.WriteFile(name, b, 0o600); err != nil {
		t.Fatal(err)
	}
	c := &tortured{Cmd: exec.Command(os.Args[0]), lines: make(chan string, 1000)}
	c.Env = append(os.Environ(), orderVariable+"="+name)
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	go func() {
		defer close(c.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			c.lines <- s.Text()
		}
	}()
	return c
}

// until waits for a phase.
func (c *tortured) until(phase string) error {
	var line string
	more := true
	for more && line != phase {
		err := testprog.Await(c.Process.Pid, func() error {
			select {
			case line, more = <-c.lines:
				return nil
			default:
				return errors.New("the controller says nothing more")
			}
		})
		if err != nil {
			c.Process.Signal(syscall.SIGQUIT) // its goroutines tell on standard error where they are
			return err
		}
		if more && !slices.Contains(phases, line) {
			c.rest = append(c.rest, line)
		}
	}
	if !more {
		return fmt.Errorf("the controller has ended: %q", c.rest)
	}
	return nil
}

// complaints is what it said that is no phase.
func (c *tortured) complaints() []string {
	for line := range c.lines {
		if !slices.Contains(phases, line) {
			c.rest = append(c.rest, line)
		}
	}
	return c.rest
}
