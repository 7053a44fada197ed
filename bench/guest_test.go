package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe"
	"kprobe/arch"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
	"kprobe/trace"
)

const (
	guestFunc = "vfs_read"
)

// turns are how many reads are timed, and how many of them in a turn that is taken off it: a
// program's start is not what is measured. ours tells that the time that we take for a hit is
// a part of it: a stop waits for us, a record does not. The best of some turns counts:
// where each read stops the machine, of many, since QEMU translates the kernel's clock
// tick anew as often as one falls between two stops.
type turns struct {
	reads, few int
	best       int
	ours       bool
}

var (
	running  = turns{reads: 300_000, few: 20_000, best: 2}
	stopping = turns{reads: 300, few: 100, best: 6, ours: true} // where each stops the machine
)

// BenchmarkGuest is what a hit in a kernel costs that is served there: "added-ns" to a
// read of one byte. All rows are of one guest, each beside the same without a probe. "hand"
// are the least detours that one would write by hand: a locked counter, and a
// record of six words in a ring; "trap" is one that counts where there is no jump, and "guest" is what the kernel's own kprobes add, through
// ftrace, by a jump and by a trap, and its return probe. "stub" is the stub's breakpoint with nothing but what it
// takes to go on, "stop" a probe with a handler. Time is that which QEMU has had of the host's processors: others may
// have them meanwhile.
func BenchmarkGuest(b *testing.B) {
	added := make(map[string]float64)
	program := filepath.Join(b.TempDir(), "reads")
	if msg, err := exec.Command("gcc", "-O2", "-static", "-s", "-o", program, "testdata/reads.c").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, msg)
	}
	v := vmtest.Boot(b, vm.Config{CPUs: 2, Files: map[string]string{"bin/reads": program}})
	for _, row := range []struct {
		name string
		turns
		on func(b *testing.B, v *vm.VM) (off func(), hits func() uint64)
	}{
		{"hand/count", running, func(b *testing.B, v *vm.VM) (func(), func() uint64) { return byHand(b, v, false) }},
		{"count", running, func(b *testing.B, v *vm.VM) (func(), func() uint64) {
			s := openGuest(b, v)
			kp := &kprobe.Kprobe{SymbolName: guestFunc, Program: kprobe.CountOnly}
			register(b, s, kp)
			return func() { s.Close() }, ready(b, s, kp.Hits)
		}},
		{"hand/event", running, func(b *testing.B, v *vm.VM) (func(), func() uint64) { return byHand(b, v, true) }},
		{"event", running, func(b *testing.B, v *vm.VM) (func(), func() uint64) {
			s := openGuest(b, v)
			tr := trace.New(s, func(*event.Event) {})
			tr.Inside = true
			if err := tr.Add("p:e " + guestFunc + " file=%di:x64 buf=%si:x64 count=%dx:u64"); err != nil {
				b.Fatal(err)
			}
			return func() { tr.Flush(); s.Close() }, ready(b, s, func() uint64 { return tr.Counts()[0].Hits })
		}},
		{"trap", running, func(b *testing.B, v *vm.VM) (func(), func() uint64) {
			s := openGuest(b, v)
			kp := &kprobe.Kprobe{SymbolName: guestFunc, Offset: 5, Program: kprobe.CountOnly}
			if err := s.SetOptimization(false); err != nil {
				b.Fatal(err)
			}
			register(b, s, kp)
			return func() { s.Close() }, trapped(b, s, kp)
		}},
		{"return", running, func(b *testing.B, v *vm.VM) (func(), func() uint64) {
			s := openGuest(b, v)
			tr := trace.New(s, func(*event.Event) {})
			tr.Inside = true
			if err := tr.Add("r:e " + guestFunc + " ret=$retval:s64"); err != nil {
				b.Fatal(err)
			}
			return func() { tr.Flush(); s.Close() }, ready(b, s, func() uint64 { return tr.Counts()[0].Hits })
		}},
		{"guest/return", running, func(b *testing.B, v *vm.VM) (func(), func() uint64) {
			return own(b, v, "r64:x "+guestFunc+" ret=$retval:s64", false)
		}},
		{"guest/ftrace", running, func(b *testing.B, v *vm.VM) (func(), func() uint64) { return ownProbe(b, v, guestFunc, false) }},
		{"guest/jump", running, func(b *testing.B, v *vm.VM) (func(), func() uint64) { return ownProbe(b, v, guestFunc+"+5", true) }},
		{"guest/trap", running, func(b *testing.B, v *vm.VM) (func(), func() uint64) { return ownProbe(b, v, guestFunc+"+5", false) }},
		{"stub", stopping, bareStops},
		{"stop", stopping, func(b *testing.B, v *vm.VM) (func(), func() uint64) {
			s := openGuest(b, v)
			kp := &kprobe.Kprobe{SymbolName: guestFunc, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
			register(b, s, kp)
			return func() { s.Close() }, kp.Hits
		}},
	} {
		b.Run(row.name, func(b *testing.B) {
			var with, without []float64
			for b.Loop() {
				without = append(without, reads(b, v, row.turns))
				off, hits := row.on(b, v)
				before := hits()
				with = append(with, reads(b, v, row.turns))
				off()
				if n, all := hits()-before, uint64(row.best*(row.reads+row.few)); hits() != 0 && n < all {
					b.Errorf("%d hits of %d reads", n, all)
				}
			}
			added[row.name] = slices.Min(with) - slices.Min(without)
			b.ReportMetric(slices.Min(with), "ns/op")
			b.ReportMetric(added[row.name], "added-ns")
			b.ReportMetric(slices.Min(without), "alone-ns")
		})
	}
	note("guest: return recorded", func(r *row) {
		r.floor, r.ours, r.aim = added["guest/return"], added["return"], "1.0x"
	})
	others := fmt.Sprintf("ftrace %.3g, jump %.3g, trap %.3g ns", added["guest/ftrace"], added["guest/jump"], added["guest/trap"])
	for name, rows := range map[string]struct{ floor, ours, aim string }{
		"guest: hit counted":  {"hand/count", "count", "1.5x"},
		"guest: hit recorded": {"hand/event", "event", "1.5x"},
		"guest: hit trapped":  {"guest/trap", "trap", "1x"}, // of its own
		"guest: hit stopped":  {"stub", "stop", "1.2x"},
	} {
		note(name, func(r *row) {
			r.floor, r.ours, r.aim, r.guest = added[rows.floor], added[rows.ours], rows.aim, others
		})
	}
}

// reads times a read, the best of some turns.
func reads(b *testing.B, v *vm.VM, t turns) float64 {
	b.Helper()
	turn := func(n int) float64 {
		before := used(b, v, t.ours)
		if _, err := v.Run(fmt.Sprintf("reads %d", n)); err != nil {
			b.Fatal(err)
		}
		return float64(used(b, v, t.ours) - before)
	}
	best := math.Inf(1)
	for range t.best {
		best = min(best, (turn(t.reads)-turn(t.few))/float64(t.reads-t.few))
	}
	return best
}

// used is the time, in nanoseconds, that the guest's CPUs have had of the host's, and we, if that counts.
func used(b *testing.B, v *vm.VM, ours bool) (sum int64) {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", v.PID()))
	if err != nil || len(threads) == 0 {
		b.Fatal("QEMU has no threads", err)
	}
	for _, th := range threads {
		text, err := os.ReadFile(th)
		var ns int64
		if _, bad := fmt.Sscan(string(text), &ns); err == nil && bad == nil {
			sum += ns
		}
	}
	if !ours {
		return sum
	}
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		b.Fatal(err)
	}
	return sum + own.Utime.Nano() + own.Stime.Nano()
}

func dialGuest(b *testing.B, v *vm.VM) *kernel.Target {
	b.Helper()
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
	if err != nil {
		b.Fatal(err)
	}
	return k
}

func openGuest(b *testing.B, v *vm.VM) *kprobe.Session {
	b.Helper()
	s, err := kprobe.Open(dialGuest(b, v), &kprobe.Options{Unlisted: true, Report: func(err error) { b.Errorf("reported: %v", err) }})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// ready waits for the jump.
func ready(b *testing.B, s *kprobe.Session, hits func() uint64) func() uint64 {
	b.Helper()
	testprog.Until(b, "a jump", testprog.Here, func() bool {
		s.WaitOptimized()
		return s.List()[0].Optimized
	})
	return hits
}

// trapped waits for the trap in the guest's text.
func trapped(b *testing.B, s *kprobe.Session, kp *kprobe.Kprobe) func() uint64 {
	b.Helper()
	testprog.Until(b, "a trap", testprog.Here, func() bool {
		s.WaitOptimized()
		have := make([]byte, len(s.Arch().Break))
		return s.Target().ReadAt(kp.Addr, have) == nil && bytes.Equal(have, s.Arch().Break)
	})
	return kp.Hits
}

// ownProbe is a probe of the guest's own.
func ownProbe(b *testing.B, v *vm.VM, place string, jump bool) (off func(), hits func() uint64) {
	b.Helper()
	return own(b, v, "p:x "+place+" file=%di:x64 buf=%si:x64 count=%dx:u64", jump)
}

// own is a definition, named x, that the guest has to serve itself.
func own(b *testing.B, v *vm.VM, definition string, jump bool) (off func(), hits func() uint64) {
	b.Helper()
	do := func(command string) {
		if _, err := v.Run("cd /sys/kernel/tracing; " + command); err != nil {
			b.Fatal(err)
		}
	}
	optimization := 0
	if jump {
		optimization = 1
	}
	do(fmt.Sprintf("echo %d >/proc/sys/debug/kprobes-optimization", optimization))
	do("echo '" + definition + "' >kprobe_events; echo 1 >events/kprobes/x/enable")
	if jump {
		do("for i in 1 2 3 4 5 6 7 8 9 10; do grep -q OPTIMIZED /sys/kernel/debug/kprobes/list && break; sleep 0.1; done; grep -q OPTIMIZED /sys/kernel/debug/kprobes/list")
	}
	return func() { do("echo 0 >events/kprobes/x/enable; echo >kprobe_events; echo >trace") }, func() uint64 { return 0 }
}

// byHand puts a detour in the place of a function's first NOP.
func byHand(b *testing.B, v *vm.VM, ring bool) (off func(), hits func() uint64) {
	b.Helper()
	k := dialGuest(b, v)
	site, ok := k.Kernel().Table().Addr(guestFunc)
	if !ok {
		b.Fatal("no " + guestFunc)
	}
	const size, ringAt = 1 << 20, 1 << 19
	var start arch.Addr
	var ours []byte
	nop := []byte{0x0f, 0x1f, 0x44, 0, 0}
	frozen := func(f func() error) {
		k.Run(func() {
			_, err := k.Freeze()
			if err == nil {
				err = f()
			}
			if e := k.Thaw(); err == nil {
				err = e
			}
			if err != nil {
				b.Fatal(err)
			}
		})
	}
	frozen(func() (err error) {
		if start, _, err = k.Window(); err != nil {
			return err
		}
		if ours, err = k.Share(start, size); err != nil {
			return err
		}
		code := handMade(start, ring, ringAt, nop)
		at := start + 4096
		code = append(code, jump(at+arch.Addr(len(code)), site+5)...)
		if err = k.WriteAt(at, code); err == nil {
			err = k.WriteAt(site, jump(site, at))
		}
		return err
	})
	over := make(chan struct{})
	go k.Run(func() {
		defer close(over)
		for {
			if st, err := k.Wait(); err != nil || st.Kind == 0 {
				return
			}
		}
	})
	off = func() {
		k.Wake()
		<-over
		frozen(func() error {
			if err := k.WriteAt(site, nop); err != nil {
				return err
			}
			return k.Free(start, size)
		})
		if err := k.Close(); err != nil {
			b.Fatal(err)
		}
	}
	return off, func() uint64 { return binary.LittleEndian.Uint64(ours) }
}

func jump(from, to arch.Addr) []byte {
	return binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(to-from-5))
}

// handMade counts at an address; or takes the count for the place of a record: the
// counter of time, rdi, rsi, rdx, rsp and the return address.
func handMade(counter arch.Addr, ring bool, ringAt uint32, displaced []byte) []byte {
	c := []byte{0x9c, 0x50, 0x48, 0xb8} // pushfq; push rax; mov rax, counter
	c = binary.LittleEndian.AppendUint64(c, uint64(counter))
	if !ring {
		c = append(c, 0xf0, 0x48, 0xff, 0x00) // lock inc [rax]
	} else {
		c = append(c,
			0x51, 0x52, // push rcx, rdx
			0xb9, 1, 0, 0, 0, 0xf0, 0x48, 0x0f, 0xc1, 0x08, // mov ecx, 1; lock xadd [rax], rcx
			0x81, 0xe1, 0xff, 0x0f, 0, 0, // and ecx, 4095
			0x48, 0xc1, 0xe1, 6, 0x48, 0x01, 0xc1, 0x48, 0x81, 0xc1) // shl rcx, 6; add rcx, rax; add rcx, ring
		c = binary.LittleEndian.AppendUint32(c, ringAt)
		c = append(c,
			0x0f, 0x31, 0x48, 0xc1, 0xe2, 32, 0x48, 0x09, 0xd0, 0x48, 0x89, 0x01, // rdtsc; mov [rcx], rdx:eax
			0x48, 0x89, 0x79, 8, 0x48, 0x89, 0x71, 16, // mov [rcx+8], rdi; mov [rcx+16], rsi
			0x48, 0x8b, 0x04, 0x24, 0x48, 0x89, 0x41, 24, // rdx
			0x48, 0x89, 0x61, 32, // rsp
			0x48, 0x8b, 0x44, 0x24, 32, 0x48, 0x89, 0x41, 40, // the return address
			0x5a, 0x59)
	}
	return append(append(c, 0x58, 0x9d), displaced...) // pop rax; popfq
}
