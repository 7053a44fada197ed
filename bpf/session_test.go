package bpf_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"kprobe/bpf"
)

// A program of a session is two, each of which knows where it runs.
func TestSession(t *testing.T) {
	for _, version := range versions {
		c := load(t, "testdata/session.bpf.c", version)
		var names []string
		for _, p := range c.Programs {
			names = append(names, p.Name)
		}
		if want := []string{"all", "all.entry", "both", "both.entry"}; !slices.Equal(names, want) {
			t.Fatalf("%s: programs %q, not %q", version, names, want)
		}
		ret, entry := c.Program("both"), c.Program("both.entry")
		if ret.Kind != bpf.Kretprobe || ret.Attach != "jumpers:jumper" || !ret.Glob || ret.Entry != entry.Name {
			t.Errorf("%s: the return's is %+v", version, ret)
		}
		if entry.Kind != bpf.Kprobe || entry.Attach != "" || !entry.Called || entry.Entry != "" {
			t.Errorf("%s: the entry's is %+v", version, entry)
		}
		l := verified(t, c)
		for _, half := range []string{"both", "both.entry"} {
			if n := l.proofs[half].CallData; n != 8 {
				t.Errorf("%s: %s has %d bytes of each call", version, half, n)
			}
		}
		word := make([]byte, 8)
		for _, n := range []uint64{20, 21} {
			l.vm.Env.CallData, l.vm.Env.CallDataAddr = word, 0x1000
			if r := l.run(t, "both.entry", map[string]uint64{"rsi": n}); r.R0 != n&1 {
				t.Errorf("%s: the entry's answers %d for %d", version, r.R0, n)
			}
			if got := binary.LittleEndian.Uint64(word); got != n {
				t.Errorf("%s: it keeps %d, not %d", version, got, n)
			}
		}
		l.vm.Env.CallData, l.vm.Env.CallDataAddr = word, 0x1000
		l.run(t, "both", map[string]uint64{"rax": 4711})
		for name, want := range map[string]uint64{"entered": 2, "returned": 21, "last": 4711} {
			b, err := l.Var(name).In(l.mapOf(t, ".bss"))
			if err != nil {
				t.Fatal(err)
			}
			if got := binary.LittleEndian.Uint64(b); got != want {
				t.Errorf("%s: %s is %d, not %d", version, name, got, want)
			}
		}
		if err := c.Leave("both"); err != nil || len(c.Programs) != 2 {
			t.Errorf("%s: without it there are %d programs (%v)", version, len(c.Programs), err)
		}
	}
}
