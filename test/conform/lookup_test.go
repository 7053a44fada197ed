package conform

import (
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/test/harness"
)

// A session finds variables as it finds functions, with their sizes; and a probe on one says that it is none of a function.
func TestLookup(t *testing.T) {
	_, s := watched(t, nil)
	for _, c := range []struct {
		name string
		kind symbol.Kind
		size uint64
	}{{"counter", symbol.Data, 8}, {"watched:counter", symbol.Data, 8}, {"writer0", symbol.Func, 0}} {
		loc, err := s.Lookup(c.name)
		harness.OK(t, err)
		want, err := s.Symbols().Resolve(symbol.Query{Symbol: strings.TrimPrefix(c.name, "watched:"), Kind: c.kind})
		harness.OK(t, err)
		if loc != want[0] || loc.Func.Kind != c.kind || c.size != 0 && loc.Size != c.size {
			t.Errorf("%s: %+v, and by the symbols %+v", c.name, loc, want[0])
		}
	}
	_, err := s.Lookup("no_such_name")
	harness.Errno(t, err, syscall.ENOENT)
	err = s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "counter"})
	harness.Errno(t, err, syscall.ENOENT)
	if !strings.Contains(err.Error(), `"counter" is a variable, not a function`) {
		t.Errorf("a probe on a variable: %v", err)
	}
	want := syscall.ENOENT
	if !testprog.Watches.On(t) {
		want = syscall.ENOTSUP
	}
	harness.Errno(t, s.RegisterWatchpoint(&kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "writer0"}, Len: 8}), want)
	harness.Detach(t, s)
}
