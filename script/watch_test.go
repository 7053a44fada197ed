package script_test

import (
	"fmt"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/script"
)

// A watchpoint's program runs for each access, of every thread, with the thread's registers, names, stack and memory, and
// on the maps of those that run inside.
func TestWatchpoint(t *testing.T) {
	testprog.Watches.Need(t)
	p := testprog.Start(t, testprog.Build(t, "watched", "-O1"), "4")
	p.Round("1")
	s := attach(t, p.Pid)
	probe := &kprobe.Watchpoint{Len: 8}
	probe.Kp.SymbolName = "watched:counter"
	probe.Handler = func(*kprobe.Watchpoint, *kprobe.Regs) {}
	ok(t, s.RegisterWatchpoint(probe))
	at := fmt.Sprintf("%#x", uint64(probe.Kp.Addr))
	ok(t, s.UnregisterWatchpoint(probe))
	check := func(text, round, want string) {
		t.Helper()
		out, told, _, err := run(text, script.Options{PID: p.Pid, Quiet: true}, s, func() { p.Round(round) })
		if err != nil {
			t.Errorf("%s: %v", text, err)
			return
		}
		if got := strings.Trim(out, "\n"); got != want {
			t.Errorf("%s\nprints\n%s%s\nnot\n%s", text, got, told, want)
		}
	}
	// 4 threads of 10 and 2 that are born meanwhile.
	check(`watchpoint:`+at+`:8:w { @[comm] = count(); @who[tid] = count(); @last = *(int64 *)`+at+`; @sum += 1; }
		end { print((len(@who), @sum)); clear(@who); clear(@last) }`, "10", "(6, 42)\n\n\n@[watched]: 42\n@sum: 42")
	check(`watchpoint:counter:8:w /pid == `+fmt.Sprint(p.Pid)+` && uid == 0/ { @[func, strlen(comm)] = count(); @n++; $s = ustack(2); }
		uprobe:watched:direct_write { @n++; }`, "direct 20", "@[direct_write, 7]: 20\n@n: 40")
	check(`watchpoint:`+at+`:8:rw { if (@++ == 4) { unwatch(`+at+`); } $x = reg("ip"); if ($x == 0) { print("no registers"); } } end { print(@ < 100000 && @ > 4); clear(@) }`, "reads 100000", "true")
	execute, err := s.Lookup("watched:direct_write")
	ok(t, err)
	check(fmt.Sprintf(`watchpoint:%#x:8:x { @[func] = count(); }`, uint64(execute.Addr)), "direct 7", "@[direct_write]: 7")
	check(`watchpoint:`+at+`:8:w { printf("%d %s\n", @++, probe); }`, "direct 2", "0 watchpoint:"+at+":8:w\n1 watchpoint:"+at+":8:w\n\n\n@: 2")
	// Memory that is mapped later, and again.
	check(`watchpoint:0x10000008:1:w { @[*(int8 *)0x10000008] = count(); }`, "later 2", "@[0]: 1\n@[1]: 1")
	check(`watchpoint:0x10000008:8:w { @[*(int64 *)0x10000000] = count(); }`, "later 3", "@[0]: 3")

	// What functions are called with: the first access of a call is not missed, and one address is watched once.
	check(`watchpoint:direct_repeat+arg0:1:w { @[func] = count(); @n++; }`, "repeat 20", "@[direct_repeat]: 20\n@n: 20")
	check(`watchpoint:direct_repeat+arg0:1:w { @first++; } watchpoint:direct_repeat+arg0:1:w { @second++; } uprobe:watched:direct_repeat { @calls++; }`,
		"repeat 20", "@calls: 20\n@first: 20\n@second: 20")
	check(`asyncwatchpoint:direct_repeat+arg0:1:w { @n++; } end { print(@n > 0 && @n <= 3000); clear(@n) }`, "repeat 3000", "true")

	// With an interval's programs, which have the same slot of the maps.
	check(`watchpoint:`+at+`:8:w { @[1] = count(); @s = sum(1); } interval:us:100 { @[2] = count(); @t = sum(1); } end { print(((int64)@s, @[1], @[2] == @t)); clear(@); clear(@s); clear(@t) }`,
		"direct 3000", "(3000, 3000, true)")
}

// What cannot be watched is refused in a sentence.
func TestWatchpointRefused(t *testing.T) {
	for _, tt := range []struct{ point, want string }{
		{"watchpoint:0x1000:3:w", "watchpoint length must be one of"}, {"watchpoint:0x1000:8:q", "combination of the letters"}, {"watchpoint:0x1000:8:ww", "duplicates"},
		{"watchpoint:0x1000:8:", "combination of the letters"}, {"watchpoint:0x1000:8:rx", "not supported"}, {"watchpoint:0:8:w", "non-zero address"},
		{"watchpoint:0x1000:8", "requires 3 arguments"}, {"watchpoint:f+arg6:8:w", "one of its first 6 arguments"}, {"watchpoint:+arg0:8:w", "one of its first 6 arguments"}, {"watchpoint:f+arg0:8:x", "watched for access"},
		{"asyncwatchpoint:0x1000:8:w", "with a function and an argument"},
		{"watchpoint:12x:8:w", "Invalid function/address argument: 12x"}, {"w:0x1000:16:w", "watchpoint length must be one of"},
	} {
		_, err := script.Compile(tt.point+" { @ = count(); }", script.Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, not %q", tt.point, err, tt.want)
		}
	}
	if _, err := script.Compile("watchpoint:0x1000:8:w { @ = arg0; }", script.Options{}); err == nil || !strings.Contains(err.Error(), "arg0 builtin can only be used") {
		t.Errorf("arg0: %v", err)
	}
	c, err := script.Compile("watchpoint:0x1000:8:w { @ = count(); }", script.Options{})
	ok(t, err)
	if _, err := c.Start(nil); err == nil || !strings.Contains(err.Error(), "say in which process") {
		t.Errorf("without a process: %v", err)
	}
}
