package trace_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/spec"
	"kprobe/trace"
)

// An access is an event where it was made, with the data as it is then.
func TestWatchDefinition(t *testing.T) {
	testprog.Watches.Need(t)
	p := testprog.Start(t, testprog.Build(t, "watched", "-O2"))
	s := attach(t, p.Pid, nil)
	var mu sync.Mutex
	var lines, objects []string
	tr := trace.New(s, func(e *event.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Func == "direct_write" || e.Func == "reader" { // not where it is printed
			lines = append(lines, string(e.AppendText(nil)))
			objects = append(objects, string(e.AppendJSON(nil)))
		}
	})
	ok(t, tr.Add("w:ev w@counter:8 val=@counter:u32 at=$addr same=+0($addr):u64 $comm", "w @watched_not_there.so:x", "w rw@counter:4"))
	definitions := []string{
		"w:wprobes/ev w@counter:8 val=@counter:u32 at=$addr same=+0($addr):u64 arg4=$comm",
		"w:wprobes/x rw@watched_not_there.so:x:4",
		"w:wprobes/counter rw@counter:4",
	}
	if got := tr.Definitions(); !slices.Equal(got, definitions) {
		t.Errorf("definitions %q", got)
	}
	p.Round("direct 3")
	p.Round("reads 1")
	mu.Lock()
	form := regexp.MustCompile(`^ +watched-\d+ +\[\d{3}\] \.{5} +\d+\.\d{6}: ev: \(direct_write\+0x9/0xa\) val=(\d) at=0x[0-9a-f]+ same=(\d) arg4="watched"$`)
	for i, l := range lines[:min(len(lines), 6)] {
		if i%2 == 1 {
			if !strings.HasSuffix(l, ": counter: (direct_write+0x9/0xa)") {
				t.Errorf("%q", l)
			}
			continue
		}
		if m := form.FindStringSubmatch(l); m == nil || m[1] != fmt.Sprint(i/2+1) || m[2] != m[1] {
			t.Errorf("%q", l)
		}
	}
	if len(lines) != 7 || !strings.Contains(lines[6], ": counter: (reader+0x7/0x") || !strings.Contains(objects[6], `"kind":"w"`) {
		t.Errorf("%q", lines)
	}
	mu.Unlock()
	cs := tr.Counts()
	if len(cs) != 3 || cs[0].Hits != 3 || cs[2].Hits < 4 || cs[0].Place != "watched:counter" || cs[1].Place != "watched_not_there.so:x (not mapped)" {
		t.Errorf("%+v", cs)
	}
	var bad *spec.SyntaxError
	for def, want := range map[string]struct {
		code  spec.Code
		errno syscall.Errno
	}{
		"w w@^no_such_variable:4": {spec.BadAccessAddr, syscall.ENOENT},
		"w ^r@other:4":            {spec.BadAccessType, syscall.ENOTSUP},
		"w w@^other+1:4":          {spec.BadAccessAddr, syscall.EINVAL},
		"w w@^0x10001:4":          {spec.BadAccessAddr, syscall.EINVAL},
		"w w@block:4\nw w@block+4:4\nw w@^block+8:4": {spec.FailRegProbe, syscall.ENOSPC},
	} {
		at := strings.IndexByte(def, '^') - strings.LastIndexByte(def, '\n') - 1
		err := tr.Add(strings.Split(strings.Replace(def, "^", "", 1), "\n")...)
		if !errors.As(err, &bad) || bad.Code != want.code || bad.Offset != at || !errors.Is(err, want.errno) {
			t.Errorf("%q: %v (%+v)", def, err, bad)
		}
	}
	if got := tr.Definitions(); !slices.Equal(got, definitions) {
		t.Errorf("after refusals: %q", got)
	}
	ok(t, tr.Add("-:wprobes/counter", "w:counter w@other:4", "-:ev w@counter:8"))
	if got := tr.Definitions(); !slices.Equal(got, []string{definitions[1], "w:wprobes/counter w@other:4"}) {
		t.Errorf("definitions %q", got)
	}
	ok(t, tr.Close())
}
