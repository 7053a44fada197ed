package conform

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
)

// The handler has the function's parameters. Each case says what the handler saw
// in the words in which the function says it.
func jprobeArguments(t *testing.T, v *Victim) {
	want := v.Start(t, "args")()
	s := v.Attach(t, nil)
	var saw []string
	say := func(format string, args ...any) { saw = append(saw, fmt.Sprintf(format, args...)) }
	var js []*kprobe.Jprobe
	for name, entry := range map[string]any{
		"args_ints": func(a int32, b uint32, c int64, d uint8, e int16, f int64) {
			say("args_ints %d %d %d %d %d %d", a, b, c, d, e, f)
		},
		"args_many": func(regs *kprobe.Regs, a, b, c, d, e, f, g int32, h int64, i int8) {
			if n, err := regs.Arg(6); err != nil || int32(n) != g {
				t.Errorf("Arg(6) is %d, %v", n, err)
			}
			say("args_many %d %d %d %d %d %d %d %d %d", a, b, c, d, e, f, g, h, i)
		},
		"args_string": func(text kprobe.CString, n uint64) {
			if short, err := text.Read(3); err != nil || short != text.String()[:min(3, n)] {
				t.Errorf("three bytes of it: %q, %v", short, err)
			}
			say("args_string %s", text.String()[:n])
		},
	} {
		js = append(js, &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: name}, Entry: entry})
	}
	for range 2 { // and once more after unregistration
		saw = nil
		ok(t, s.RegisterJprobes(js))
		v.same(t, s, want, "args")
		if !slices.Equal(saw, want) {
			t.Errorf("handlers saw\n%s\nthe functions\n%s", strings.Join(saw, "\n"), strings.Join(want, "\n"))
		}
		for _, j := range js {
			if j.Kp.Hits() != 1 {
				t.Errorf("%s: %d hits", j.Kp.SymbolName, j.Kp.Hits())
			}
		}
		ok(t, s.UnregisterJprobes(js))
	}
	saw = nil
	v.same(t, s, want, "args")
	if len(saw) != 0 {
		t.Errorf("unregistered, and saw %q", saw)
	}
}

func jprobeRefused(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	j := &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "args_ints"}, Entry: func(int32) {}}
	ok(t, s.RegisterJprobe(j))
	errno(t, s.RegisterJprobe(&kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "args_ints"}, Entry: func() {}}), syscall.EEXIST)
	errno(t, s.RegisterJprobe(j), syscall.EINVAL)
	at, _ := where(t, s, "args_many")
	off := uint64(at[2] - at[0])
	for name, c := range map[string]*kprobe.Jprobe{
		"off the entry":             {Kp: kprobe.Kprobe{SymbolName: "args_many", Offset: off}, Entry: func() {}},
		"off the entry, by address": {Kp: kprobe.Kprobe{Addr: at[2]}, Entry: func() {}},
		"no Entry":                  {Kp: kprobe.Kprobe{SymbolName: "args_many"}},
		"nil func":                  {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: (func())(nil)},
		"not a func":                {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: 7},
		"variadic":                  {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: func(...int32) {}},
		"string":                    {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: func(string) {}},
		"slice":                     {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: func([]byte) {}},
		"Go pointer":                {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: func(*int) {}},
		"map":                       {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: func(map[int]int) {}},
		"complex":                   {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: func(complex128) {}},
		"array":                     {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: func([4]int32) {}},
		"struct with text":          {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: func(struct{ S string }) {}},
		"empty struct":              {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: func(struct{}) {}},
		"Regs not first":            {Kp: kprobe.Kprobe{SymbolName: "args_many"}, Entry: func(int32, *kprobe.Regs) {}},
	} {
		t.Run(name, func(t *testing.T) {
			errno(t, s.RegisterJprobe(c), syscall.EINVAL)
			if c.Kp.Registered() || c.Kp.PreHandler != nil {
				t.Error("it is registered, or half so")
			}
		})
	}
	errno(t, s.RegisterKprobe(&j.Kp), syscall.EINVAL) // it belongs to its jprobe
	ok(t, s.UnregisterJprobe(j))
	ok(t, s.RegisterJprobe(&kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "args_ints"}, Entry: func() {}}))
}

// A pointer that leads nowhere is told, and does no harm. What jumper has is none.
func jprobeBadPointers(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	seen := 0
	ok(t, s.RegisterJprobe(&kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "jumper"}, Entry: func(text kprobe.CString, n kprobe.Ptr[int64]) {
		seen++
		_, err := text.Read(10)
		errno(t, err, syscall.EFAULT)
		_, err = n.Load()
		errno(t, err, syscall.EFAULT)
		if text.String() != "(fault)" || text.Addr != 0 {
			t.Errorf("%q at %v", text.String(), text.Addr)
		}
	}}))
	if got := v.sum(t, s, 1); got != sumOf(1) || seen != 1 {
		t.Errorf("result %d, seen %d times", got, seen)
	}
}
