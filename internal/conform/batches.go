package conform

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
)

// If one registration fails, none stays.
func batchRollsBack(t *testing.T, v *Victim) {
	want := v.Start(t, "args")()
	s := v.Attach(t, nil)
	before := v.Text(t)
	at, _ := where(t, s, "args_ints")
	entry := at[0]
	names := []string{"args_ints", "args_many", "args_string", "jumper"}
	for bad, c := range []struct {
		kp    *kprobe.Kprobe
		errno syscall.Errno
	}{
		{&kprobe.Kprobe{SymbolName: "args_nothing"}, syscall.ENOENT},
		{&kprobe.Kprobe{}, syscall.EINVAL},
		{&kprobe.Kprobe{SymbolName: "fib", Offset: 1 << 20}, syscall.EILSEQ},
		{nil, syscall.EINVAL},
	} {
		var ps []*kprobe.Kprobe
		for _, n := range names {
			ps = append(ps, &kprobe.Kprobe{SymbolName: n, PostHandler: func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}})
		}
		ps = append(ps, &kprobe.Kprobe{Addr: entry})
		ps = slices.Insert(ps, bad, c.kp)
		err := s.RegisterKprobes(ps)
		errno(t, err, c.errno)
		if failed(err) != bad {
			t.Errorf("%v is said of probe %d, not of %d", err, failed(err), bad)
		}
		for i, kp := range ps {
			if kp != nil && (kp.Registered() || kp.Addr != 0 && kp.Addr != entry) {
				t.Errorf("probe %d is registered %v at %v", i, kp.Registered(), kp.Addr)
			}
		}
		if !bytes.Equal(before, v.Text(t)) {
			t.Errorf("the text has changed")
		}
	}
	if l := listText(t, s); l != "" {
		t.Errorf("listed: %s", l)
	}
	v.same(t, s, want, "args")

	rps := []*kprobe.Kretprobe{{Kp: kprobe.Kprobe{SymbolName: "args_ints"}}, {Kp: kprobe.Kprobe{SymbolName: "args_ints", Offset: 1 << 20}}}
	if err := s.RegisterKretprobes(rps); failed(err) != 1 || rps[0].Kp.Registered() {
		t.Errorf("kretprobes: %v", err)
	}
	js := []*kprobe.Jprobe{{Kp: kprobe.Kprobe{SymbolName: "args_ints"}, Entry: func() {}}, {Kp: kprobe.Kprobe{SymbolName: "args_ints"}, Entry: func() {}}}
	err := s.RegisterJprobes(js)
	errno(t, err, syscall.EEXIST)
	if failed(err) != 1 || js[0].Kp.Registered() {
		t.Errorf("jprobes: %v", err)
	}
	// What failed can be registered when it is right.
	rps[1].Kp.Offset = 0
	ok(t, s.RegisterKretprobes(rps))
	ok(t, s.RegisterJprobe(js[0]))
	v.same(t, s, want, "args")
	if rps[0].Hits() != 1 || rps[1].Hits() != 1 || js[0].Kp.Hits() != 1 {
		t.Errorf("%d, %d, %d hits", rps[0].Hits(), rps[1].Hits(), js[0].Kp.Hits())
	}
	for name, err := range map[string]error{
		"kprobes": s.RegisterKprobes(nil), "jprobes": s.RegisterJprobes(nil), "kretprobes": s.RegisterKretprobes(nil),
	} {
		if !errors.Is(err, syscall.EINVAL) {
			t.Errorf("no %s: %v", name, err)
		}
	}
}

// Bad entries get Addr 0, the others are removed.
func unregisterBadEntries(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	before := v.Text(t)
	good := []*kprobe.Kprobe{{SymbolName: "args_ints"}, {SymbolName: "args_many"}}
	never := &kprobe.Kprobe{Addr: 0x1234}
	register(t, s, good...)
	ok(t, s.UnregisterKprobes([]*kprobe.Kprobe{good[0], never, nil, good[0], good[1]}))
	for i, kp := range append(good, never) {
		if kp.Registered() || kp.Addr != 0 {
			t.Errorf("probe %d is registered %v at %v", i, kp.Registered(), kp.Addr)
		}
	}
	if !bytes.Equal(before, v.Text(t)) {
		t.Error("a breakpoint is left")
	}
	errno(t, s.UnregisterKprobe(good[0]), syscall.EINVAL) // twice
	// And once more from the beginning, with counts at 0.
	register(t, s, good...)
	v.play(t, s, "args")
	for _, kp := range good {
		if kp.Hits() != 1 || kp.NMissed() != 0 {
			t.Errorf("%s: %d hits, %d missed", kp.SymbolName, kp.Hits(), kp.NMissed())
		}
	}
	ok(t, s.UnregisterKprobes(good))
	register(t, s, good[0])
	if good[0].Hits() != 0 {
		t.Errorf("%d hits before the first", good[0].Hits())
	}
}

func disableAndEnable(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	original := v.Text(t)
	a, b := &kprobe.Kprobe{SymbolName: "jumper"}, &kprobe.Kprobe{SymbolName: "jumper"}
	errno(t, s.EnableKprobe(a), syscall.EINVAL)
	errno(t, s.DisableKprobe(a), syscall.EINVAL)
	errno(t, s.DisableKprobe(nil), syscall.EINVAL)
	register(t, s, a, b)
	const calls = 4
	check := func(what string, armed bool, roundsA, roundsB uint64) {
		t.Helper()
		v.sum(t, s, calls)
		if seen := !bytes.Equal(original, v.Text(t)); seen != (armed && v.Visible) {
			t.Errorf("%s: a breakpoint is seen: %v", what, seen)
		}
		if a.Hits() != calls*roundsA || b.Hits() != calls*roundsB {
			t.Errorf("%s: %d and %d hits, want %d and %d", what, a.Hits(), b.Hits(), calls*roundsA, calls*roundsB)
		}
	}
	check("both", true, 1, 1)
	ok(t, s.DisableKprobe(a))
	check("one disabled", true, 1, 2)
	ok(t, s.DisableKprobe(a)) // twice is fine
	ok(t, s.DisableKprobe(b))
	check("all disabled", false, 1, 2)
	ok(t, s.EnableKprobe(a))
	ok(t, s.EnableKprobe(a))
	check("one enabled", true, 2, 2)

	// The global switch leaves their own states alone.
	ok(t, s.SetEnabled(false))
	if s.Enabled() {
		t.Error("it is off")
	}
	check("switched off", false, 2, 2)
	ok(t, s.EnableKprobe(b))
	check("enabled while switched off", false, 2, 2)
	ok(t, s.DisableKprobe(a))
	c := &kprobe.Kprobe{SymbolName: "jumper"}
	register(t, s, c)
	check("registered while switched off", false, 2, 2)
	ok(t, s.SetEnabled(true))
	check("switched on", true, 2, 3)
	if c.Hits() != calls || a.Flags != kprobe.FlagDisabled || b.Flags != 0 {
		t.Errorf("%d hits, flags %#x and %#x", c.Hits(), a.Flags, b.Flags)
	}
	// A batch with a bad entry switches nothing.
	errno(t, s.DisableKprobes([]*kprobe.Kprobe{b, {SymbolName: "jumper"}}), syscall.EINVAL)
	check("after a bad batch", true, 2, 4)
	ok(t, s.UnregisterKprobes([]*kprobe.Kprobe{b, c}))
	check("the disabled one is left", false, 2, 4)
	ok(t, s.EnableKprobe(a))
	check("and enabled", true, 3, 4)
}

// The kernel's format: address, letter, symbol, module, tags.
func list(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	at, _ := where(t, s, "args_ints")
	inside := at[2]
	home := v.Home
	if home == "" {
		home = " "
	}
	k := &kprobe.Kprobe{SymbolName: "args_ints"}
	register(t, s, k, &kprobe.Kprobe{SymbolName: "args_ints", Flags: kprobe.FlagDisabled}, &kprobe.Kprobe{Addr: inside})
	ok(t, s.RegisterJprobe(&kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "args_ints"}, Entry: func() {}}))
	ok(t, s.RegisterKretprobe(&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "args_ints"}}))
	line := func(at arch.Addr, kind byte, off arch.Addr, tags string) string {
		return fmt.Sprintf("%016x  %c  args_ints+%#x  %s %s\n", uint64(at), kind, uint64(off), home, tags)
	}
	entry := at[0]
	want := line(entry, 'r', 0, "") + line(entry, 'k', 0, "[DISABLED]") + line(entry, 'k', 0, "") + line(entry, 'j', 0, "") + line(inside, 'k', inside-entry, "")
	if got := listText(t, s); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	ok(t, s.DisableKprobe(k))
	want = line(entry, 'r', 0, "") + line(entry, 'k', 0, "[DISABLED]") + line(entry, 'k', 0, "[DISABLED]") + line(entry, 'j', 0, "") + line(inside, 'k', inside-entry, "")
	if got := listText(t, s); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// A session that is over says so, and a victim that was left goes on.
func afterClose(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	kp := &kprobe.Kprobe{SymbolName: "jumper"}
	register(t, s, kp)
	ok(t, s.Close())
	if kp.Registered() {
		t.Error("registered with a session that is closed")
	}
	errno(t, s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "jumper"}), syscall.ESRCH)
	errno(t, s.SetEnabled(false), syscall.ESRCH)
	if err := s.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the second Close: %v", err)
	}
	if got := v.Start(t, "jumper 5")(); !slices.Equal(got, []string{fmt.Sprintf("jumper 5 %d", sumOf(5))}) {
		t.Errorf("%q", got)
	}
}
