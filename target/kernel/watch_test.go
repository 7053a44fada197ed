package kernel_test

import (
	"encoding/binary"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/vm/vmtest"
	"kprobe/symbol"
	"kprobe/trace"
)

// A variable of the kernel's that a program has it write and read: each access is reported, with
// the value then, and the task; writes, reads and both are told apart, and nothing is reported when
// the session is over.
func TestWatchKernel(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s := open(t, v, v.RAM())
	defer s.Close()
	var mu sync.Mutex
	got := make(map[kprobe.Access][]string)
	watch := func(access kprobe.Access) *kprobe.Watchpoint {
		w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "panic_timeout"}, Len: 4, Access: access}
		w.Handler = func(w *kprobe.Watchpoint, r *kprobe.Regs) {
			b := make([]byte, 4)
			if err := s.ReadMem(w.Kp.Addr, b); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got[access] = append(got[access], r.Comm()+string(rune('0'+binary.LittleEndian.Uint32(b))))
		}
		return w
	}
	ws := []*kprobe.Watchpoint{watch(kprobe.Write), watch(kprobe.Read)}
	if err := s.RegisterWatchpoint(ws[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterWatchpoint(ws[1]); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("the same data is watched in two ways: %v", err)
	}
	same := watch(kprobe.Write) // which shares it
	same.Handler = nil
	if err := s.RegisterWatchpoint(same); err != nil {
		t.Error(err)
	}
	old := run(t, v, "cat /proc/sys/kernel/panic")
	run(t, v, "for i in 3 4; do echo $i >/proc/sys/kernel/panic; done; cat /proc/sys/kernel/panic >/dev/null")
	if n := same.Hits(); n != 2 {
		t.Errorf("%d writes for the second watcher", n)
	}
	if err := s.UnregisterWatchpoint(same); err != nil {
		t.Error(err)
	}
	if err := s.DisableWatchpoint(ws[0]); err != nil {
		t.Fatal(err)
	}
	run(t, v, "echo 7 >/proc/sys/kernel/panic")
	if want := []string{"sh3", "sh4"}; !slices.Equal(got[kprobe.Write], want) || ws[0].Hits() != 2 {
		t.Errorf("writes %q, not %q", got[kprobe.Write], want)
	}
	if err := s.UnregisterWatchpoint(ws[0]); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterWatchpoint(ws[1]); err != nil {
		t.Fatal(err)
	}
	run(t, v, "cat /proc/sys/kernel/panic >/dev/null")
	bad := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: "no_such_variable"}, Len: 4}
	if err := s.RegisterWatchpoint(bad); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a variable that is not there: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	run(t, v, "cat /proc/sys/kernel/panic; echo "+strings.TrimSpace(old)+" >/proc/sys/kernel/panic")
	if read := got[kprobe.Read]; len(read) == 0 || read[len(read)-1] != "cat7" {
		t.Errorf("reads %q", read)
	}
	if n := ws[1].Hits(); n != uint64(len(got[kprobe.Read])) {
		t.Error("a read after Close was told of")
	}
}

// Variables are known by name, also those that each CPU has of its own, to stops and to what runs
// in the guest.
func TestVariables(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openWindow(t, v)
	for _, inside := range []bool{false, true} {
		var mu sync.Mutex
		var lines []string
		tr := trace.New(s, func(e *event.Event) {
			mu.Lock()
			defer mu.Unlock()
			lines = append(lines, string(e.AppendText(nil)))
		})
		tr.Inside = inside
		if err := tr.Add("p:e ksys_sync n=@nr_cpu_ids:u32 j=@jiffies:u64 c0=@cpu_number.cpu0:u32 c1=@cpu_number.cpu1:u32"); err != nil {
			t.Fatal(err)
		}
		// A name is no variable if it is the pattern for the CPUs, or was thrown away when the
		// kernel had started.
		for _, name := range []string{"cpu_number", "__per_cpu_load"} {
			if err := tr.Add("p ksys_sync x=@" + name + ":u32"); !errors.Is(err, syscall.ENOENT) {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, name := range []string{"nr_cpu_ids", "cpu_number.cpu1", "vmlinux:panic_timeout"} {
			if loc, err := s.Lookup(name); err != nil || loc.Func.Kind != symbol.Data || loc.Size < 4 || loc.Off != 0 {
				t.Errorf("%s: %+v, %v", name, loc, err)
			}
		}
		if _, err := s.Lookup("cpu_number"); !errors.Is(err, syscall.ENOENT) {
			t.Errorf("the pattern for the CPUs: %v", err)
		}
		run(t, v, "sync; sync")
		tr.Flush()
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
		mu.Lock()
		want := regexp.MustCompile(`e: \(ksys_sync\+0x0/0x\w+\) n=2 j=4[0-9]{9} c0=0 c1=1$`)
		if len(lines) != 2 || !want.MatchString(lines[0]) || !want.MatchString(lines[1]) {
			t.Errorf("inside %v: %q", inside, lines)
		}
		mu.Unlock()
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
