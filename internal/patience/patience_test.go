package patience_test

import (
	"fmt"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/internal/patience"
	"kprobe/internal/testprog"
)

// A subject that has nothing to do takes up patience.
func TestIdleSubject(t *testing.T) {
	p := testprog.StartCmd(t, exec.Command("sleep", "1000"))
	spent(t, patience.Of(p.Pid, time.Second))
}

// One that is busy does too.
func TestBusySubject(t *testing.T) {
	testprog.RunTimes.Need(t)
	p := testprog.StartCmd(t, exec.Command("sh", "-c", "while :; do :; done"))
	spent(t, patience.Of(p.Pid, time.Second))
	if ran := patience.Ran(p.Pid); ran < time.Second/2 {
		t.Errorf("it has run for %v", ran)
	}
}

func spent(t *testing.T, p *patience.Patience) {
	t.Helper()
	testprog.Until(t, "patience is spent", testprog.Here, p.Spent)
	if took := p.Took(); took < time.Second || took > 3*time.Second {
		t.Errorf("spent after %v", took)
	}
}

// One that only waits for a CPU does not: of two busy processes on one CPU, one with the least priority hardly runs.
func TestSubjectThatWaitsForACPU(t *testing.T) {
	testprog.Need(t, "taskset", exec.Command("taskset", "-V").Run() == nil)
	testprog.RunTimes.Need(t)
	var cpus unix.CPUSet
	if err := unix.SchedGetaffinity(0, &cpus); err != nil {
		t.Fatal(err)
	}
	one := 0
	for !cpus.IsSet(one) {
		one++
	}
	busy := func(niceness string) *testprog.Proc {
		return testprog.StartCmd(t, exec.Command("taskset", "-c", fmt.Sprint(one), "nice", "-n", niceness, "sh", "-c", "while :; do :; done"))
	}
	busy("0")
	starved := busy("19")
	testprog.Ran(t, starved.Pid, 10*time.Millisecond)
	const long = 3 * time.Second
	began, p := time.Now(), patience.Of(starved.Pid, time.Hour)
	testprog.Until(t, "it is known that it did not idle, for it has run once more", testprog.Here, func() bool {
		p.Spent()
		return time.Since(began) >= long && p.Took() <= long/2
	})
}
