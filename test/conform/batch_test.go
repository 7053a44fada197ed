package conform

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/change"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// A batch of up to change.AtOnce probes is one stop of the target. A larger one is as many as it has such pieces.
func TestConformBatchIsOneStop(t *testing.T) {
	path := testprog.Build(t, "manyfns", "-O2")
	for _, pieces := range []int{1, 2} {
		p := testprog.Start(t, path)
		s, stops := attachCounted(t, p.Pid)
		var ps []*kprobe.Kprobe
		for _, fn := range harness.FuncsOf(t, p.Pid, path) {
			if strings.HasPrefix(fn.Name, "many_") && len(ps) < pieces*change.AtOnce {
				ps = append(ps, &kprobe.Kprobe{Addr: arch.Addr(fn.Addr)})
			}
		}
		if len(ps) < pieces*change.AtOnce {
			t.Fatalf("only %d functions", len(ps))
		}
		for _, do := range []struct {
			name string
			f    func([]*kprobe.Kprobe) error
			maps int // stops to map memory, in which nothing else is done, at most
			want int
		}{
			{"register", s.RegisterKprobes, pieces, pieces}, {"disable", s.DisableKprobes, 0, pieces}, {"enable", s.EnableKprobes, 0, pieces},
			{"unregister", s.UnregisterKprobes, 0, pieces}, {"register again", s.RegisterKprobes, 0, pieces},
		} {
			before := stops.n.Load()
			harness.OK(t, do.f(ps))
			if n := int(stops.n.Load() - before); n < do.want || n > do.want+do.maps {
				t.Errorf("%s of %d probes: %d stops", do.name, len(ps), n)
			}
		}
	}
}

// The kernel's format: address, letter, symbol, module, tags (kprobes.txt
// appendix A).
func TestConformList(t *testing.T) {
	path := testprog.Build(t, "args", "-O2")
	p := testprog.Start(t, path)
	s := harness.Attach(t, p.Pid, nil)
	k := &kprobe.Kprobe{SymbolName: "args_ints"}
	off := &kprobe.Kprobe{SymbolName: "args_ints", Flags: kprobe.FlagDisabled}
	lib := &kprobe.Kprobe{SymbolName: "libc.so.6:getenv", Offset: 0}
	j := &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "args_ints"}, Entry: func() {}}
	r := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "args_ints"}}
	fn := funcNamed(t, p.Pid, path, "args_ints")
	at := harness.Instructions(t, s, fn)
	inside := &kprobe.Kprobe{SymbolName: "args_ints", Offset: uint64(at[2]) - fn.Addr}
	harness.Register(t, s, k, off, lib, inside)
	harness.OK(t, s.RegisterJprobe(j))
	harness.OK(t, s.RegisterKretprobe(r))
	want := fmt.Sprintf(`%016x  r  args_ints+0x0    
%016[1]x  k  args_ints+0x0    [DISABLED]
%016[1]x  k  args_ints+0x0    
%016[1]x  j  args_ints+0x0    
%016[2]x  k  args_ints+%#x    
%016[4]x  k  getenv+0x0  libc.so.6 
`, fn.Addr, uint64(at[2]), uint64(at[2])-fn.Addr, uint64(lib.Addr))
	if got := listOf(t, s); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	// Other processes see the same, switches included.
	sees := func(what string) {
		t.Helper()
		states, err := kprobe.Sessions(p.Pid)
		harness.OK(t, err)
		if len(states) != 1 || states[0].Controller != os.Getpid() || states[0].List != listOf(t, s) {
			t.Errorf("%s: others see %+v, not\n%s", what, states, listOf(t, s))
		}
	}
	sees("registered")
	harness.OK(t, s.DisableKprobe(k))
	sees("disabled")
	harness.OK(t, s.EnableKprobe(k))
	sees("enabled")
	harness.OK(t, s.UnregisterKprobe(off))
	sees("unregistered")
	harness.Detach(t, s)
	if states, err := kprobe.Sessions(p.Pid); err != nil || len(states) != 0 {
		t.Errorf("after Close others see %v, %v", states, err)
	}
	for e, want := range map[kprobe.ListEntry]string{
		{Addr: 0x1000, Kind: 'k', Symbol: "f+0x0", Module: "lib.so", Gone: true, Disabled: true}: "0000000000001000  k  f+0x0  lib.so [GONE]",
		{Addr: 0xffffffff8134cc59, Kind: 'k', Symbol: "vfs_read+0x9", Disabled: true}:            "ffffffff8134cc59  k  vfs_read+0x9    [DISABLED]",
		{Addr: 0xffffffff8134cc55, Kind: 'k', Symbol: "vfs_read+0x5"}:                            "ffffffff8134cc55  k  vfs_read+0x5    ",
	} {
		if e.String() != want {
			t.Errorf("%q, want %q", e, want)
		}
	}
}

// A session that is over says so.
func TestConformAfterTheEnd(t *testing.T) {
	p, s := harness.Jumper(t, nil)
	kp := &kprobe.Kprobe{SymbolName: "jumper"}
	harness.Register(t, s, kp)
	harness.OK(t, p.Signal(syscall.SIGKILL))
	<-s.Done()
	if e, over := s.Exited(); !over || e.Signal != int(syscall.SIGKILL) {
		t.Errorf("ended with %v, %v", e, over)
	}
	harness.Errno(t, s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "jumper"}), syscall.ESRCH)
	harness.Errno(t, s.DisableKprobe(kp), syscall.ESRCH)
	harness.Errno(t, s.SetEnabled(false), syscall.ESRCH)
	harness.OK(t, s.UnregisterKprobe(kp))
	harness.OK(t, s.Close())
	if err := s.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the second Close: %v", err)
	}
	harness.Errno(t, s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "jumper"}), syscall.ESRCH)
}
