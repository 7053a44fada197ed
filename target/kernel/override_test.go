package kernel_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// openOverriding is openCounting for programs that may override any function, or the listed ones
// only.
func openOverriding(t testing.TB, v *vm.VM, unlisted bool) (*kprobe.Session, *counting) {
	t.Helper()
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window(), OverrideAny: unlisted})
	if err != nil {
		t.Fatal(err)
	}
	before := text(t, outside(t, v))
	c := &counting{Target: k}
	s, err := kprobe.Open(c, &kprobe.Options{Unlisted: true, Report: func(err error) { t.Error(err) }})
	if err != nil {
		k.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		sameLater(t, v, before)
	})
	return s, c
}

// deny loads a program that overrides whatever function a task of a name of less than four letters
// calls, with -EPERM.
func deny(t testing.TB, s *kprobe.Session, comm string) *kprobe.Program {
	t.Helper()
	insns, err := bpftest.Assemble(fmt.Sprintf(`r6 = r1; *(u64 *)(r10 -16) = 0; *(u64 *)(r10 -8) = 0; r1 = r10; r1 += -16; r2 = 16; call get_current_comm;
		r1 = *(u32 *)(r10 -16); if r1 != %d goto out; r1 = r6; r2 = -1; call override_return; out: r0 = 0; exit`,
		binary.LittleEndian.Uint32(append([]byte(comm), 0, 0, 0, 0))))
	if err != nil {
		t.Fatal(err)
	}
	ps, err := s.Load(&bpf.Collection{Programs: []*bpf.Program{{Name: "deny", Kind: bpf.Kprobe, Insns: insns}}})
	if err != nil {
		t.Fatal(err)
	}
	p, err := ps.Program("deny")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A program gives a result in place of a kernel's function, which is not run: by a trap that the
// guest takes, by a jump, and after a stop. Tasks that are not meant get the function's own result,
// and so do all when the probe has gone.
func TestOverride(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "dmesg -c >/dev/null")
	s, stops := openOverriding(t, v, true)
	defer s.Close()
	const f, inner = "do_sys_openat2", "do_filp_open"
	tries := 50
	if testing.Short() {
		tries = 3
	}
	work := fmt.Sprintf("for i in $(seq %d); do dd count=0 of=/tmp/made 2>&1 | grep 'made.*not permitted'; done | wc -l; head -c 5 /proc/version; test -e /tmp/made && echo made; rm -f /tmp/made", tries)
	check := func(how string, denied, hits, stopped bool, p *kprobe.Kprobe) {
		t.Helper()
		want := "0\nLinuxmade\n"
		if denied {
			want = fmt.Sprintf("%d\nLinux", tries)
		}
		before, stopsBefore := p.Hits(), stops.hits.Load()
		if got := run(t, v, work+" || true"); got != want {
			t.Errorf("%s: %q, want %q", how, got, want)
		}
		if n := p.Hits() - before; (n >= uint64(tries)) != hits || p.NMissed() != 0 {
			t.Errorf("%s: %d hits, %d missed", how, n, p.NMissed())
		}
		if n := stops.hits.Load() - stopsBefore; (n != 0) != stopped {
			t.Errorf("%s: %d stops", how, n)
		}
	}
	p := &kprobe.Kprobe{SymbolName: f, Program: deny(t, s, "dd")}
	check("nothing", false, false, false, p)
	if err := s.SetOptimization(false); err != nil {
		t.Fatal(err)
	}
	if err := s.Register(p); err != nil {
		t.Fatal(err)
	}
	testprog.Until(t, "a trap in the text", v.PID(), func() bool {
		s.WaitOptimized()
		b := make([]byte, 1)
		return stops.ReadAt(p.Addr, b) == nil && b[0] == stops.Arch().Break[0]
	})
	check("a trap", true, true, false, p)
	if err := s.SetOptimization(true); err != nil {
		t.Fatal(err)
	}
	optimizedProbes(t, s)
	check("a jump", true, true, false, p)

	// The function's next instruction runs for others only; its returns are those of tasks that ran
	// it.
	behind := &kprobe.Kprobe{SymbolName: inner, Program: kprobe.CountOnly}
	own, denied := 0, 0
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: f}, Handler: func(_ *kprobe.KretprobeInstance, r *kprobe.Regs) int {
		if int64(r.ReturnValue()) == -1 {
			denied++
		} else {
			own++
		}
		return 0
	}}
	handled := 0
	h := &kprobe.Kprobe{SymbolName: f, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { handled++; return 0 }}
	if err := s.Register(h, rp, behind); err != nil {
		t.Fatal(err)
	}
	check("a stop", true, true, true, p)
	if handled < tries || own == 0 {
		t.Errorf("%d handled, %d returned by themselves, %d returned overridden", handled, own, denied)
	}
	t.Logf("%d handled; %d returned by themselves, %d overridden; %d at %s", handled, own, denied, behind.Hits(), inner)
	if err := s.Unregister(p, h, rp, behind); err != nil {
		t.Fatal(err)
	}
	check("nothing again", false, false, false, &kprobe.Kprobe{})
	sane(t, v)
}

// As the kernel has it, programs override those functions only that it lists, and at their entries.
func TestOverrideRefused(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openOverriding(t, v, false)
	defer s.Close()
	refused := func(p kprobe.Probe, says string) {
		t.Helper()
		if err := s.Register(p); !errors.Is(err, syscall.EINVAL) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("registered: %v, want EINVAL: ...%s", err, says)
		}
		if e := s.Plan(p); e.Verdict != kprobe.VerdictRefuse || !strings.Contains(e.Reason, says) {
			t.Errorf("planned: %v", e)
		}
	}
	program := deny(t, s, "dd")
	list, err := s.Target().(*counting).Kernel().Injectable()
	says := "it is not on the kernel's list of functions"
	if err != nil { // as Debian has its kernels
		says = "CONFIG_FUNCTION_ERROR_INJECTION is off"
	}
	refused(&kprobe.Kprobe{SymbolName: "schedule", Program: program}, says)
	refused(&kprobe.Kprobe{SymbolName: "do_sys_openat2", Offset: 5, Program: program}, "must be at its entry")
	p := &kprobe.Kprobe{SymbolName: "schedule", Program: kprobe.CountOnly}
	p.Flags = kprobe.FlagDisabled
	if err := s.Register(p); err != nil {
		t.Fatal(err)
	}
	if err := s.UpdateProgram(p, program); !errors.Is(err, syscall.EINVAL) || p.Program != kprobe.CountOnly {
		t.Errorf("given to a disabled probe: %v", err)
	}
	t.Logf("the kernel lists %d functions, %v", len(list), err)
}
