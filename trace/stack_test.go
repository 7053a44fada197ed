package trace_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// events has a program's first events of definitions, at stops or by programs inside.
func events(t *testing.T, path string, n int, inside bool, defs ...string) (got []*event.Event) {
	t.Helper()
	c := exec.Command(path)
	ok(t, c.Start())
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	testprog.Until(t, "its libraries are loaded", c.Process.Pid, func() bool {
		maps, err := testprog.Mappings(c.Process.Pid)
		return err == nil && slices.ContainsFunc(maps, func(m testprog.Mapping) bool { return strings.Contains(m.Path, "/libc.so") })
	})
	s := attach(t, c.Process.Pid, nil)
	var mu sync.Mutex
	full := make(chan struct{})
	tr := trace.New(s, func(e *event.Event) {
		mu.Lock()
		defer mu.Unlock()
		if len(got) < n {
			own := *e
			own.Args = append([]event.Value(nil), e.Args...)
			if got = append(got, &own); len(got) == n {
				close(full)
			}
		}
	})
	tr.Inside = inside
	ok(t, tr.Add(defs...))
	testprog.Receive(t, "all events", c.Process.Pid, full)
	ok(t, tr.Close())
	mu.Lock()
	defer mu.Unlock()
	return got
}

// names are a stack's functions.
func names(v event.Value) string {
	var all []string
	for _, f := range v.Frames {
		name, _, _ := strings.Cut(f.Func, "+")
		if strings.HasPrefix(name, "<") {
			name = "<signal>"
		}
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

// Whole stacks, from any of a program's functions, at its beginning and at its return, with return probes on
// the functions that lie in between: as many frames as the program's own arguments say.
func TestStacks(t *testing.T) {
	n := 150
	if testing.Short() {
		n = 40
	}
	if os.Getenv("SOAK") != "" {
		n = 10000
	}
	const foot = ` round_of main( __libc_start_call_main __libc_start_main| __libc_start_call_main __libc_start_main_impl|) _start$`
	for _, flags := range [][]string{{"-O2"}, {"-O1", "-fno-omit-frame-pointer"}, {"-O1", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"}, {"-O0"}} {
		for _, inside := range []bool{false, true} {
			t.Run(fmt.Sprint(flags, inside), func(t *testing.T) {
				path := testprog.Build(t, "stacks", flags...)
				for _, e := range events(t, path, n, inside, "p:deep stacks:deep n=$arg1:u32 how=$arg2:u32 stack", "p:order stacks:order stack",
					"r:leaf stacks:leaf stack", "p:handler stacks:handler $stacktrace", "r:sized stacks:sized") {
					want := map[string]string{
						"deep":    "^deep( deep)*" + foot,
						"order":   `^order( \S+)* sorts( deep)+` + foot,
						"leaf":    `^(handler|tail|sized|order|deep|round_of)( .*|$)`,
						"handler": `^handler <signal>( \S+)* raise( deep)+` + foot,
					}[e.Name]
					if e.Name == "sized" {
						continue
					}
					stack := e.Args[len(e.Args)-1]
					have := names(stack)
					if !regexp.MustCompile(want).MatchString(have) || stack.Text != "" || !strings.HasSuffix(have, " _start") {
						t.Fatalf("%s: %q, ends because %q\n%s", e.Name, have, stack.Text, e.AppendText(nil))
					}
					if e.Name == "deep" {
						if depth := int(e.Args[1].Bits%29-e.Args[0].Bits) + 1; strings.Count(have, "deep") != depth {
							t.Fatalf("deep(%d, %d): %q, want %d frames", e.Args[0].Bits, e.Args[1].Bits, have, depth)
						}
					}
				}
			})
		}
	}
}

// A stack as text and as JSON, with the lines of the source, and functions that are inlined.
func TestStackText(t *testing.T) {
	got := events(t, testprog.Build(t, "stacks", "-O1"), 1, false, "p:order stacks:order stack")[0]
	text := string(got.AppendText(nil))
	if !regexp.MustCompile(`\(order\+0x0/0x[0-9a-f]+\)\n => order\+0x0 \(\S*/stacks\) stacks\.c:\d+\n(.*\n)* => sorts\+0x[0-9a-f]+ \(\S*/stacks\) stacks\.c:5\d\n`).MatchString(text) {
		t.Error(text)
	}
	var object struct {
		Args struct {
			Stack struct {
				Frames []struct{ Addr, Func, File, Source string }
			}
		}
	}
	ok(t, json.Unmarshal(got.AppendJSON(nil), &object))
	if fs := object.Args.Stack.Frames; len(fs) < 8 || fs[0].Func != "order+0x0" || !strings.HasPrefix(fs[0].Addr, "0x") || !strings.HasPrefix(fs[0].Source, "stacks.c:") {
		t.Errorf("%+v", fs)
	}
}

// A function that ends in a jump is shown where it was, and marked.
func TestStackTailCall(t *testing.T) {
	// Each round ends with such a call. The first may have been in the middle of anything when the probe came.
	all := events(t, testprog.Build(t, "stacks", "-O2"), 100, false, "p:leaf stacks:leaf stack")
	last := slices.IndexFunc(all, func(e *event.Event) bool { return strings.HasPrefix(names(e.Args[0]), "leaf tail round_of main ") })
	if last < 0 {
		t.Fatalf("none of %d calls is a round's last: %s", len(all), names(all[0].Args[0]))
	}
	got, stack := all[last], all[last].Args[0]
	if !stack.Frames[1].Tail || stack.Frames[0].Tail || stack.Frames[2].Tail {
		t.Fatalf("%s: %+v", names(stack), stack.Frames)
	}
	if text := string(got.AppendText(nil)); !regexp.MustCompile(`\n => tail\+0x[0-9a-f]+ \(tail call\) stacks\.c:23\n => round_of\+`).MatchString(text) {
		t.Error(text)
	}
	if text := string(got.AppendJSON(nil)); !regexp.MustCompile(`"source":"stacks\.c:23","tail_call":true}`).MatchString(text) {
		t.Error(text)
	}
}
