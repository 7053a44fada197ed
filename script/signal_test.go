package script

import (
	"bytes"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"kprobe/script/plan"
)

// What the target writes into records has no signal sent to others.
func TestSignalToOthers(t *testing.T) {
	s, err := Compile("begin { exit(); }", Options{})
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	s.opts.Errors = &said
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	r := &Run{s: s}
	pid := uint64(other.Process.Pid)
	for _, thread := range []bool{false, true} {
		said.Reset()
		if err := r.signal(&plan.Action{Thread: thread}, syscall.SIGKILL, pid<<32|pid); err != nil || !strings.Contains(said.String(), "is not the target") {
			t.Errorf("%v, %q", err, &said)
		}
	}
	other.Process.Signal(syscall.SIGTERM)
	if err := other.Wait(); err == nil || err.Error() != "signal: terminated" {
		t.Errorf("the other process ended by %v", err)
	}
}
