//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"bufio"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/guardian"
	"kprobe/internal/lifeline"
	"kprobe/internal/proc"
	"kprobe/internal/testprog"
)

// A guardian whose process is let go serves the next one. One that has been killed meanwhile serves
// none.
func TestGuardianIsUsedAgain(t *testing.T) {
	keep := spares.Keep
	spares.Keep = 5 * time.Minute // longer than this takes on any machine
	t.Cleanup(func() { spares.Keep = keep })
	p := testprog.Start(t, testprog.Build(t, "rets", "-O2"))
	guarded := func() (guardian int) {
		target, err := Attach(p.Pid)
		if err != nil {
			t.Fatal(err)
		}
		if err := target.Guard(0x1000, 1); err != nil {
			t.Fatal(err)
		}
		if left, err := lifeline.Journals(p.Pid); err != nil || len(left) != 1 {
			t.Errorf("guarded, the journals are %q, %v", left, err)
		}
		guardian = target.guardian.PID()
		target.Unguard()
		if err := target.Close(); err != nil {
			t.Fatal(err)
		}
		if left, err := lifeline.Journals(p.Pid); err != nil || len(left) != 0 {
			t.Errorf("let go, the journals are %q, %v", left, err)
		}
		testprog.Until(t, "the guardian is free", guardian, func() bool { return spares.Has(guardian) })
		return guardian
	}
	first := guarded()
	if second := guarded(); second != first {
		t.Errorf("guardian %d, and then %d", first, second)
	}
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if third := guarded(); third == first {
		t.Errorf("guardian %d was killed, and guards on", first)
	}
}

// Before the first byte changes, the guardian knows what to put back: it has not only been told.
// Else a controller that is killed early on a busy machine leaves its traps.
func TestGuardianKnowsFirst(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "rets", "-O2"))
	target, err := Attach(p.Pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := target.Guard(0x1000, 1); err != nil {
		t.Fatal(err)
	}
	target.Unguard()
	guardian := target.guardian.PID()
	if err := syscall.Kill(guardian, syscall.SIGSTOP); err != nil { // messages from now on are not known to it
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Kill(guardian, syscall.SIGCONT) })
	testprog.AllIn(t, guardian, "T") // a thread on another CPU may go on for a moment
	guarded := make(chan error)
	go func() { guarded <- target.Guard(0x1000, 2) }()
	testprog.Blocked(t, ".Guard(")
	select {
	case err := <-guarded:
		t.Fatalf("a guardian that does nothing is relied on: %v", err)
	default:
	}
	if left, err := lifeline.Journals(p.Pid); err != nil || len(left) != 0 {
		t.Errorf("the journals are %q, %v", left, err)
	}
	if err := syscall.Kill(guardian, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := <-guarded; err != nil {
		t.Error(err)
	}
	target.Unguard()
	if err := target.Close(); err != nil {
		t.Error(err)
	}
}

// A guardian that is taken and put back is kept as long as any: it is not let go by the timer of
// the time before.
func TestSpareGuardianIsKeptAnew(t *testing.T) {
	g, err := guardian.Start(guardianName, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Leave)
	testprog.Until(t, "the guardian executes its program", g.PID(), func() bool { return guardian.Is(proc.Process(g.PID()).Read) })
	if p, err := Attach(g.PID()); err == nil {
		p.Close()
		t.Error("a guardian can be probed")
	}
	s := &guardian.Spares{Keep: time.Second}
	s.Put(g)
	first := time.Now()
	if s.Take() != g {
		t.Fatal("a guardian that was put is not there a second later") // or this machine stood still for that long
	}
	s.Keep = time.Hour
	s.Put(g)
	time.Sleep(time.Until(first.Add(1500 * time.Millisecond)))
	if !s.Has(g.PID()) {
		t.Error("put back, it is let go by the timer that was set when it was put first")
	}
	s.Take()
}

// An attach waits for a guardian that puts back what a controller has left. Another tracer is
// named, and not waited for.
func TestAttachWaitsForGuardians(t *testing.T) {
	tracing := func(name string) (pid int) {
		p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
		tracer := exec.Command(testprog.Build(t, "seizes", "-O2"), fmt.Sprint(p.Pid))
		tracer.Args[0] = name
		out, err := tracer.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := tracer.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { tracer.Wait() })
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "traced\n" {
			t.Fatalf("%q, %v", line, err)
		}
		return p.Pid
	}
	pid := tracing(guardianName)
	if d := Diagnose(pid); d.OK() || !strings.Contains(d.Obstacle(), "try again in a moment") {
		t.Errorf("while it is restored: %s", d.Obstacle())
	}
	p, err := Attach(pid)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	pid = tracing("another")
	if p, err := Attach(pid); err == nil {
		p.Close()
		t.Error("attached to what another traces")
	} else if !strings.Contains(err.Error(), "(seizes) traces it already: end that first") {
		t.Error(err)
	}
}
