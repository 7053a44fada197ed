package graph

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"kprobe/event"
)

// run feeds steps such as "f@100" (called), "f=100" (jumped to) and "f!108" (returned) to a nest, a
// microsecond apart, and gives what became of the calls, in the order of their ends.
func run(t *testing.T, steps string) (over []string, n *Nest) {
	n = &Nest{Over: func(s *Span) {
		over = append(over, fmt.Sprintf("%s/%d %d-%d %s", s.Name, s.Depth, s.Start/1000, s.End/1000, [...]string{"runs", "returned", "unwound"}[s.Ended]))
	}}
	now := time.Duration(0)
	for _, step := range strings.Fields(steps) {
		now += 1000
		at := strings.IndexAny(step, "@=!")
		var place uint64
		if _, err := fmt.Sscan(step[at+1:], &place); err != nil {
			t.Fatal(err)
		}
		if step[at] == '!' {
			n.Leave(Return{PID: 1, TID: 1, Name: step[:at], Time: now, SP: place})
		} else {
			n.Enter(Entry{Span: Span{PID: 1, TID: 1, Name: step[:at], Start: now}, Place: place, Swapped: step[at] == '='})
		}
	}
	n.Close(now + 1000)
	return over, n
}

func TestNest(t *testing.T) {
	for name, c := range map[string]struct {
		steps string
		want  []string
		lost  int
	}{
		"calls":           {"f@100 g@80 g!88 h@80 h!88 f!108", []string{"g/1 2-3 returned", "h/1 4-5 returned", "f/0 1-6 returned"}, 0},
		"recursion":       {"f@100 f@80 f!88 f!108", []string{"f/1 2-3 returned", "f/0 1-4 returned"}, 0},
		"return at exits": {"f@100 f@80 f!80 f!100", []string{"f/1 2-3 returned", "f/0 1-4 returned"}, 0},

		// f jumps to g, whose return is told first or last, or alone.
		"tail call":              {"f@100 g=100 g!108 f!108", []string{"g/1 2-3 returned", "f/0 1-4 returned"}, 0},
		"tail calls":             {"f@100 g=100 h=100 h!108 g!108 f!108", []string{"h/2 3-4 returned", "g/1 2-5 returned", "f/0 1-6 returned"}, 0},
		"all are swapped":        {"f=100 g=100 g!108", []string{"f/0 1-2 unwound", "g/0 2-3 returned"}, 0},
		"tail call, outer first": {"f@100 g=100 f!108 g!108", []string{"g/1 2-3 returned", "f/0 1-3 returned"}, 1},
		"tail call at exits":     {"f@100 f!100 g=100 g!100", []string{"f/0 1-2 returned", "g/0 3-4 returned"}, 0},

		// g is left for f, which calls on, deeper than g was, at the same place, or further out.
		"longjmp, then deeper":       {"f@100 g@80 h@60 i@70 i!78 f!108", []string{"h/2 3-4 unwound", "i/2 4-5 returned", "g/1 2-6 unwound", "f/0 1-6 returned"}, 0},
		"longjmp, then at the place": {"f@100 g@80 g@80 g!88 f!108", []string{"g/1 2-3 unwound", "g/1 3-4 returned", "f/0 1-5 returned"}, 0},
		"longjmp out":                {"f@100 g@80 h@60 f!108", []string{"h/2 3-4 unwound", "g/1 2-4 unwound", "f/0 1-4 returned"}, 0},
		"longjmp beyond all":         {"f@100 g@80 h@120 h!128", []string{"g/1 2-3 unwound", "f/0 1-3 unwound", "h/0 3-4 returned"}, 0},

		"an end without a beginning": {"f!108 g@80 f!108 g!88", []string{"g/0 2-4 returned"}, 2},
		"under way":                  {"f@100 g@80", []string{"g/1 2-3 runs", "f/0 1-3 runs"}, 0},
	} {
		over, n := run(t, c.steps)
		if !slices.Equal(over, c.want) || n.Lost != c.lost {
			t.Errorf("%s: %s: %q, %d lost; want %q, %d lost", name, c.steps, over, n.Lost, c.want, c.lost)
		}
	}
}

// What interrupts a kernel's task lies on another stack, wherever that is, and leaves the task's calls under way; a task that idles has the
// number of all that do.
func TestNestOfStacks(t *testing.T) {
	var over []string
	calls := Calls{Kernel: true, Nest: Nest{Over: func(s *Span) { over = append(over, fmt.Sprintf("%s/%d %v", s.Name, s.Depth, s.Ended == Returned)) }}}
	const task, interrupts, another = 0xffffc90000010000, 0xffffc90000120000, 0xffffc90000030000
	told := func(back bool, name string, sp uint64) {
		calls.Take(&event.Event{Func: name, Return: back, Args: []event.Value{{Name: argSP, Bits: sp}}})
	}
	told(false, "f", task+0x3f00)
	told(false, "g", task+0x3e00)
	told(false, "irq", interrupts+0x3f00)
	told(false, "idle", another+0x3000)
	told(false, "timer", interrupts+0x3e00)
	told(true, "timer", interrupts+0x3e08)
	told(true, "irq", interrupts+0x3f08)
	told(true, "g", task+0x3e08)
	told(true, "idle", another+0x3008)
	told(true, "f", task+0x3f08)
	if want := []string{"timer/1 true", "irq/0 true", "g/1 true", "idle/0 true", "f/0 true"}; !slices.Equal(over, want) || calls.Lost != 0 {
		t.Errorf("%q, %d lost; want %q", over, calls.Lost, want)
	}
}

// A goroutine is the same on every thread; two threads have nothing to do with each other.
func TestNestOfThreadsAndGoroutines(t *testing.T) {
	var over []string
	n := &Nest{Over: func(s *Span) { over = append(over, fmt.Sprintf("%s/%d %v", s.Name, s.Depth, s.Ended == Returned)) }}
	enter := func(tid int, g uint64, name string, place uint64) {
		n.Enter(Entry{Span: Span{PID: 1, TID: tid, Goroutine: g, Name: name}, Place: place})
	}
	leave := func(tid int, g uint64, name string, sp uint64) {
		n.Leave(Return{PID: 1, TID: tid, Goroutine: g, Name: name, SP: sp})
	}
	enter(1, 0, "f", 100)
	enter(2, 0, "g", 200)
	enter(1, 0, "h", 80)
	leave(2, 0, "g", 208)
	enter(3, 7, "i", 100)
	enter(4, 7, "j", 80)
	enter(4, 7, "j", 80) // the stack has grown
	leave(1, 7, "j", 88)
	leave(2, 7, "i", 108)
	n.Exit(1, 1, 0)
	want := []string{"g/0 true", "j/1 true", "i/0 true", "h/1 false", "f/0 false"}
	if !slices.Equal(over, want) {
		t.Errorf("%q, want %q", over, want)
	}
}

// Calls of coroutines are under way on stacks of their own, on whatever thread they go on: each of them lies in those of its own
// stack only, and all come back.
func TestNestOfCoroutines(t *testing.T) {
	const main, heap, coroutine = 0x7ff000000000, 0x550000000000, 64 << 10
	for _, known := range []bool{true, false} { // the thread's own stack
		var over []string
		calls := Calls{Nest: Nest{Over: func(s *Span) { over = append(over, fmt.Sprintf("%s/%d %v", s.Name, s.Depth, s.Ended == Returned)) }}}
		if known {
			calls.Own = func(_, _ int, sp uint64) bool { return sp >= main }
		}
		told := func(tid int, back bool, name string, sp uint64) {
			calls.Take(&event.Event{PID: 1, TID: tid, Func: name, Return: back, Args: []event.Value{{Name: argSP, Bits: sp}}})
		}
		stack := func(n uint64) uint64 { return heap + n*coroutine }
		told(1, false, "turn", main+0x100)
		for n := range uint64(3) {
			told(1, false, "outer", stack(n))
		}
		for n := range uint64(3) {
			told(1+int(n%2), false, "inner", stack(n)-0x40)
		}
		told(1, true, "turn", main+0x108)
		for n := range uint64(3) {
			told(2-int(n%2), true, "inner", stack(n)-0x38)
			told(1, true, "outer", stack(n)+8)
		}
		if !known { // some are taken for over until one that is comes back
			if calls.Revived == 0 || calls.Lost != 0 {
				t.Errorf("%q, %d lost, %d came back after all", over, calls.Lost, calls.Revived)
			}
			continue
		}
		want := slices.Concat([]string{"turn/0 true"}, slices.Repeat([]string{"inner/1 true", "outer/0 true"}, 3))
		if !slices.Equal(over, want) || calls.Lost != 0 || calls.Revived != 0 {
			t.Errorf("%q, %d lost; want %q", over, calls.Lost, want)
		}
	}
}
