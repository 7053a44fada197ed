package conform

import (
	"bytes"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
)

// Where a probe can be, and what is answered elsewhere.
func placeRefused(t *testing.T, v *Victim) {
	want := v.Start(t, "jumper 10")()
	s := v.Attach(t, nil)
	before := v.Text(t)
	at, end := where(t, s, "jumper")
	entry := at[0]
	size := uint64(end - entry)
	if at[1] == entry+1 {
		t.Fatal("the first instruction has no middle")
	}
	for _, c := range []struct {
		name  string
		kp    *kprobe.Kprobe
		errno syscall.Errno
		text  string
	}{
		{"both", &kprobe.Kprobe{SymbolName: "jumper", Addr: entry}, syscall.EINVAL, "either"},
		{"neither", &kprobe.Kprobe{}, syscall.EINVAL, "either"},
		{"offset only", &kprobe.Kprobe{Offset: 4}, syscall.EINVAL, "either"},
		{"unknown symbol", &kprobe.Kprobe{SymbolName: "jumpr"}, syscall.ENOENT, "jumpr"},
		{"middle of an instruction", &kprobe.Kprobe{SymbolName: "jumper", Offset: 1}, syscall.EILSEQ, "jumper+"},
		{"middle, by address", &kprobe.Kprobe{Addr: entry + 1}, syscall.EILSEQ, "jumper+"},
		{"middle, by address and offset", &kprobe.Kprobe{Addr: entry, Offset: 1}, syscall.EILSEQ, "jumper+"},
		{"just behind the function", &kprobe.Kprobe{SymbolName: "jumper", Offset: size}, syscall.EILSEQ, "bytes long"},
		{"far behind the function", &kprobe.Kprobe{SymbolName: "jumper", Offset: 1 << 40}, syscall.EILSEQ, "bytes long"},
		{"data", &kprobe.Kprobe{Addr: v.Data}, syscall.EINVAL, ""},
		{"nothing mapped", &kprobe.Kprobe{Addr: v.Nowhere}, syscall.EINVAL, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			kp, addr := c.kp, c.kp.Addr
			err := s.RegisterKprobe(kp)
			errno(t, err, c.errno)
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%q does not say %q", err, c.text)
			}
			if kp.Registered() || kp.Addr != addr {
				t.Errorf("a refused probe is registered (%v) at %v", kp.Registered(), kp.Addr)
			}
		})
	}
	if !bytes.Equal(before, v.Text(t)) {
		t.Error("refusals have changed the text")
	}
	v.same(t, s, want, "jumper 10")
}

func addrAndOffset(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	at, _ := where(t, s, "jumper")
	entry, second := at[0], at[1]
	off := uint64(second - entry)
	var pcs []arch.Addr
	note := pre(func(regs *kprobe.Regs) { pcs = append(pcs, regs.PC()) })
	byName := &kprobe.Kprobe{SymbolName: "jumper", Offset: off, PreHandler: note}
	byAddr := &kprobe.Kprobe{Addr: entry, Offset: off, PreHandler: note}
	qualified := &kprobe.Kprobe{SymbolName: "conform:jumper", Offset: off, PreHandler: note}
	for range 2 { // and once more after unregistration
		pcs = nil
		ps := []*kprobe.Kprobe{byName, byAddr, qualified}
		register(t, s, ps...)
		for _, kp := range ps {
			if kp.Addr != second {
				t.Errorf("registered at %v, not %v", kp.Addr, second)
			}
		}
		v.sum(t, s, 1)
		if !slices.Equal(pcs, []arch.Addr{second, second, second}) {
			t.Errorf("hit at %v, want thrice %v", pcs, second)
		}
		ok(t, s.UnregisterKprobes(ps))
		if byName.Addr != 0 || byAddr.Addr != entry {
			t.Errorf("unregistered probes are at %v and %v", byName.Addr, byAddr.Addr)
		}
	}
}

func sameStructTwice(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	kp := &kprobe.Kprobe{SymbolName: "jumper"}
	err := s.RegisterKprobes([]*kprobe.Kprobe{kp, kp})
	errno(t, err, syscall.EINVAL)
	if failed(err) != 1 || kp.Registered() || kp.Addr != 0 {
		t.Errorf("%v; registered %v at %v", err, kp.Registered(), kp.Addr)
	}
	register(t, s, kp)
	at := kp.Addr
	kp.Addr = 0 // as a caller might who forgot
	errno(t, s.RegisterKprobe(kp), syscall.EINVAL)
	kp.Addr = at
	v.sum(t, s, 7)
	if kp.Hits() != 7 {
		t.Errorf("%d hits", kp.Hits())
	}
}

func flags(t *testing.T, v *Victim) {
	s := v.Attach(t, nil)
	odd := &kprobe.Kprobe{SymbolName: "jumper", Flags: 0xfe}
	off := &kprobe.Kprobe{SymbolName: "jumper", Flags: kprobe.FlagDisabled | 0x80}
	register(t, s, odd, off)
	if odd.Flags != 0 || off.Flags != kprobe.FlagDisabled {
		t.Errorf("flags %#x and %#x", odd.Flags, off.Flags)
	}
	v.sum(t, s, 5)
	if odd.Hits() != 5 || off.Hits() != 0 {
		t.Errorf("%d hits, disabled %d", odd.Hits(), off.Hits())
	}
	ok(t, s.EnableKprobe(off))
	v.sum(t, s, 5)
	if odd.Hits() != 10 || off.Hits() != 5 || off.Flags != 0 {
		t.Errorf("%d hits, enabled %d, flags %#x", odd.Hits(), off.Hits(), off.Flags)
	}
}

// The user's own entries are refused, and listed, like the others.
func blackList(t *testing.T, v *Victim) {
	look := v.Attach(t, nil)
	at, end := where(t, look, "jumper")
	ok(t, look.Close())
	mine := kprobe.BlackListEntry{Start: at[0], End: end, Symbol: "jumper", Reason: "the user said so"}
	s := v.Attach(t, &kprobe.Options{BlackList: []kprobe.BlackListEntry{mine}})
	for off := uint64(0); off < uint64(end-at[0]); off++ {
		err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "jumper", Offset: off})
		errno(t, err, syscall.EINVAL)
		if err != nil && !strings.Contains(err.Error(), mine.Reason) {
			t.Errorf("%q does not give the reason", err)
		}
	}
	register(t, s, &kprobe.Kprobe{SymbolName: "fib"})
	es, err := s.BlackList()
	ok(t, err)
	if !slices.Contains(es, mine) {
		t.Error("the user's entry is not listed")
	}
	for i, e := range es {
		if i > 0 && es[i-1].Start > e.Start {
			t.Errorf("not in order: %v after %v", e, es[i-1])
		}
	}
}
