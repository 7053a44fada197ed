package conform

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// Places of a process where no probe can be.
func TestConformPlaceRefused(t *testing.T) {
	path := testprog.Build(t, "jumpers", "-O2")
	p := testprog.Start(t, path)
	want := p.Round("10")[0]
	s := harness.Attach(t, p.Pid, &kprobe.Options{BlackList: []kprobe.BlackListEntry{}})
	before := rawText(t, p.Pid, path)
	var restorer arch.Addr
	bl, err := s.BlackList()
	harness.OK(t, err)
	for _, e := range bl {
		if e.Symbol == "__restore_rt" {
			restorer = e.Start
		}
	}
	if restorer == 0 {
		t.Fatal("no signal trampoline in the blacklist")
	}
	for _, c := range []struct {
		name  string
		kp    *kprobe.Kprobe
		errno syscall.Errno
		text  string
	}{
		{"a near name", &kprobe.Kprobe{SymbolName: "jumpr"}, syscall.ENOENT, "jumper"},
		{"unknown in a library", &kprobe.Kprobe{SymbolName: "libc.so.6:getenw"}, syscall.ENOENT, "getenv"},
		{"beyond user space", &kprobe.Kprobe{Addr: 0xffff_8000_0000_0000}, syscall.EINVAL, ""},
		{"the kernel's page", &kprobe.Kprobe{SymbolName: "[vdso]:__vdso_clock_gettime"}, syscall.EINVAL, "kernel"},
		{"the signal trampoline", &kprobe.Kprobe{Addr: restorer}, syscall.EINVAL, "__restore_rt"},
		{"inside the signal trampoline", &kprobe.Kprobe{Addr: restorer + 7}, syscall.EINVAL, "__restore_rt"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kp, addr := c.kp, c.kp.Addr
			err := s.RegisterKprobe(kp)
			harness.Errno(t, err, c.errno)
			if err != nil && !strings.Contains(err.Error(), c.text) {
				t.Errorf("%q does not say %q", err, c.text)
			}
			if kp.Registered() || kp.Addr != addr {
				t.Errorf("a refused probe is registered (%v) at %v", kp.Registered(), kp.Addr)
			}
		})
	}
	if !slices.Equal(before, rawText(t, p.Pid, path)) {
		t.Error("refusals have changed the text")
	}
	if got := p.Round("10")[0]; got != want {
		t.Errorf("%q, without probes %q", got, want)
	}
}

func TestConformAmbiguousSymbol(t *testing.T) {
	path := harness.Compile(t, "twice", `
static PROBED int f(int a) { BARRIER(); return a + 1; }
int other(int);
int main(void) { while (next()) printf("%d\n", f(1) + other(2)); return 0; }
`, "-x", "c", writeFile(t, "other.c", `
static __attribute__((noinline, noclone, used)) int f(int a) { __asm__ volatile("" ::: "memory"); return a + 2; }
int other(int a) { return f(a) * 2; }
`))
	p := testprog.Start(t, path)
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "f"}
	err := s.RegisterKprobe(kp)
	harness.Errno(t, err, syscall.EADDRNOTAVAIL)
	both := 0
	for _, fn := range harness.FuncsOf(t, p.Pid, path) {
		if fn.Name == "f" {
			both++
			if !strings.Contains(err.Error(), arch.Addr(fn.Addr).String()) {
				t.Errorf("%q does not name the candidate at %#x", err, fn.Addr)
			}
			harness.Register(t, s, &kprobe.Kprobe{Addr: arch.Addr(fn.Addr)})
		}
	}
	if both != 2 || len(s.List()) != 2 {
		t.Errorf("%d functions of that name, %d probes", both, len(s.List()))
	}
}

// A struct belongs to one session at a time.
func TestConformStructOfAnother(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	s := harness.Attach(t, p.Pid, nil)
	kp := &kprobe.Kprobe{SymbolName: "jumper"}
	harness.Register(t, s, kp)
	other := harness.Attach(t, testprog.Start(t, testprog.Build(t, "jumpers", "-O2")).Pid, nil)
	harness.Errno(t, other.RegisterKprobe(kp), syscall.EINVAL)
	p.Round("7")
	if kp.Hits() != 7 {
		t.Errorf("%d hits", kp.Hits())
	}
}

// A breakpoint of somebody else's is not ours to move, nor to decode behind.
func TestConformForeignBreakpoint(t *testing.T) {
	path := testprog.Build(t, "jumpers", "-O2")
	p := testprog.Start(t, path)
	s := harness.Attach(t, p.Pid, nil)
	fn := funcNamed(t, p.Pid, path, "jumper")
	entry := arch.Addr(fn.Addr)
	at := harness.Instructions(t, s, fn)
	original := harness.RawMem(t, p.Pid, entry, 1)
	writeRaw(t, p.Pid, entry, []byte{0xcc})
	t.Cleanup(func() { writeRaw(t, p.Pid, entry, original) })
	harness.Errno(t, s.RegisterKprobe(&kprobe.Kprobe{Addr: entry}), syscall.EBUSY)
	harness.Errno(t, s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "jumper"}), syscall.EBUSY)
	// The bytes that it hides are part of an instruction.
	harness.Errno(t, s.RegisterKprobe(&kprobe.Kprobe{Addr: entry + 1}), syscall.EBUSY)
	harness.Errno(t, s.RegisterKprobe(&kprobe.Kprobe{Addr: at[1]}), syscall.EBUSY)
	if got := harness.RawMem(t, p.Pid, entry, 1); got[0] != 0xcc {
		t.Errorf("the foreign breakpoint is %#x now", got[0])
	}
	writeRaw(t, p.Pid, entry, original)

	// A change that hides ours is told when ours goes, and left alone.
	kp := &kprobe.Kprobe{Addr: at[1]}
	harness.Register(t, s, kp)
	writeRaw(t, p.Pid, at[1], []byte{0x90})
	harness.Errno(t, s.UnregisterKprobe(kp), syscall.EBUSY)
	if got := harness.RawMem(t, p.Pid, at[1], 1); got[0] != 0x90 {
		t.Errorf("the foreign byte was changed to %#x", got[0])
	}
	if kp.Registered() {
		t.Error("the probe is registered still")
	}
	writeRaw(t, p.Pid, at[1], []byte{0xcc}) // whoever did it takes it back, and ours goes with Close
}

// A trap that the program has of its own is not a place for another.
func TestConformOwnTrap(t *testing.T) {
	path := harness.Compile(t, "owntrap", `
PROBED int trapping(int a) { if (a) __asm__ volatile("own_trap: int3"); return a; }
int main(void) { while (next()) trapping(0); return 0; }`)
	p := testprog.Start(t, path)
	s := harness.Attach(t, p.Pid, nil)
	fn := funcNamed(t, p.Pid, path, "trapping")
	code := harness.RawMem(t, p.Pid, arch.Addr(fn.Addr), int(fn.Size))
	off := bytes.IndexByte(code, 0xcc)
	err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "trapping", Offset: uint64(off)})
	harness.Errno(t, err, syscall.EINVAL)
	if off < 0 || !strings.Contains(fmt.Sprint(err), "of its own") {
		t.Errorf("at +%d: %v", off, err)
	}
	harness.Register(t, s, &kprobe.Kprobe{SymbolName: "trapping", Offset: uint64(off) + 1}) // what is behind it is known
}

// What we have put into a process is not to be probed.
func TestConformBlackList(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	s := harness.Attach(t, p.Pid, nil)
	harness.Register(t, s, &kprobe.Kprobe{SymbolName: "main"})
	es, err := s.BlackList()
	harness.OK(t, err)
	own := 0
	for _, e := range es {
		if e.Symbol == "[kprobe]" {
			own++
			harness.Errno(t, s.RegisterKprobe(&kprobe.Kprobe{Addr: e.Start}), syscall.EINVAL)
			harness.Errno(t, s.RegisterKprobe(&kprobe.Kprobe{Addr: e.End - 1}), syscall.EINVAL)
		}
	}
	if own == 0 {
		t.Error("our own code is not listed")
	}
	// The kernel's file: 0xSTART-0xEND, a tab, the symbol.
	e := kprobe.BlackListEntry{Start: 0x1000, End: 0x1010, Symbol: "f"}
	if got := e.String(); got != "0x0000000000001000-0x0000000000001010\tf" {
		t.Errorf("%q", got)
	}
}
