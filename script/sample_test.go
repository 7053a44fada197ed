package script_test

import (
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/script"
)

// Samples are of the process's own threads, with their registers, stacks, names and times.
func TestSamples(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O1", "-fno-omit-frame-pointer"))
	s := attach(t, p.Pid)
	stop, over := make(chan struct{}), make(chan struct{})
	out, told, _, err := run(`profile:us:500 {
			if (pid != cpid) { @strange = count() } $sp = reg("sp"); $there = *(uint64 *)$sp; @place[usym(reg("ip")), comm] = count(); @stack[ustack(3)] = count();
			@n++; if (@last > nsecs && @cpu == cpu) { @back = count() } @last = nsecs; @cpu = cpu; if (@n >= 60 && @clock > 0) { exit() }
		}
		software:task-clock:700000 { @clock++; }
		end { printf("%s\n", @n >= 60 && @clock > 0 ? "of both" : "too few"); }`,
		script.Options{PID: p.Pid, CPID: p.Pid}, s, func() {
			defer close(over)
			for { // a run that is late reads many of one kind before it reads the other
				select {
				case <-stop:
					return
				default:
					p.Round("5000000")
				}
			}
		})
	ok(t, err)
	close(stop)
	<-over
	if !strings.HasPrefix(out, "of both\n") || !strings.Contains(out, "@strange: 0\n") || !strings.Contains(out, "@back: 0\n") || !strings.Contains(told, "Attached 3 probes\n") {
		t.Errorf("%s\n%s", out, told)
	}
	for _, want := range []string{`(?m)^@place\[(jumper|main)(\+\d+)?, jumpers\]: `, `(?m)^@stack\[\n +(jumper|main)\+\d+\n`} {
		if !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
}

// What cannot be sampled is said, with the events that there are.
func TestNoSamples(t *testing.T) {
	for text, want := range map[string]string{
		"software:nonsense { }":   `nonsense is not a software probe: those are alignment-faults, `,
		"hardware:cycles:0 { }":   "", // as many as there are without a count
		"software:cpu:x { }":      "Invalid count for software probe: invalid integer: x",
		"hardware { }":            "hardware probe type requires 1 or 2 arguments, found 0",
		"software:cpu:100 { 1; }": "", // it compiles without a process
	} {
		_, err := script.Compile(text, script.Options{})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	_, _, _, err := run("software:cpu:100 { @ = count() }", script.Options{}, nil, nil)
	if err == nil || !strings.Contains(err.Error(), "say in which process") {
		t.Errorf("without a process: %v", err)
	}
	all, err := script.List("software:*", false, 0)
	if ok(t, err); !strings.Contains(strings.Join(all, "\n"), "software:cpu:\n") {
		t.Errorf("listed: %q", all)
	}
}
