package trace_test

import (
	"strings"
	"sync"
	"testing"

	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// Of a pattern's functions those have no probe that lack what the definition names, and the others have one.
func TestPatternLacksVariable(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "callers", "-O0", "-g"))
	p.Round("10")
	s := attach(t, p.Pid, nil)
	var mu sync.Mutex
	var got []string
	tr := trace.New(s, func(e *event.Event) {
		mu.Lock()
		defer mu.Unlock()
		got = append(got, string(e.AppendText(nil)))
	})
	ok(t, tr.Add("p:ev callers:[mos]* n"))
	left := tr.LeftOut()
	if len(left) != 1 || left[0].Place.Func.Label() != "main" {
		t.Errorf("%+v", left)
	}
	var b strings.Builder
	ok(t, trace.WriteLeftOut(&b, left))
	if !strings.Contains(b.String(), "goes without 1 place:") || !strings.Contains(b.String(), `1  there is no variable "n" in scope`) {
		t.Error(b.String())
	}
	p.Round("1")
	tr.Flush()
	mu.Lock()
	defer mu.Unlock()
	if len(got) != 2 || !strings.Contains(got[0], "(often+") || !strings.Contains(got[1], "(seldom+") {
		t.Errorf("%q", got)
	}
	if err := tr.Add("p:none callers:[mos]* nothing"); err == nil {
		t.Error("no function has it")
	}
	tr.Strict = true
	if err := tr.Add("p:strict callers:[mos]* n"); err == nil {
		t.Error("all of them were to have it")
	}
}
