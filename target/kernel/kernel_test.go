package kernel_test

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
	"kprobe/trace"
)

func TestMain(m *testing.M) {
	vmtest.Files = func(t testing.TB) map[string]string {
		k, err := vm.Fetch("amd64", "")
		if err != nil {
			t.Fatal(err)
		}
		dummy := k.Dir + "/lib/modules/" + k.Release + "/kernel/drivers/net/dummy.ko"
		return map[string]string{
			"/bin/kwork":   testprog.Build(t, "kwork", "-O2", "-static"),
			"/bin/ksteady": testprog.Build(t, "ksteady", "-O2", "-static"),
			"/bin/ktraps":  ktraps(t),
			"/dummy.ko":    dummy,
			"/conform.ko":  testprog.BuildModule(t, "conform", dummy),
		}
	}
	vmtest.Suits = canTrap
	vmtest.Gate = true
	vmtest.Main(m)
}

// ktraps builds it. With -short its zeros are in the file: else the kernel writes some thousands each time that it starts,
// and where a probe is there, QEMU steps each.
func ktraps(t testing.TB) string {
	t.Helper()
	built := testprog.Build(t, "ktraps", "-O2", "-static")
	if !testing.Short() {
		return built
	}
	full := filepath.Join(t.TempDir(), "ktraps")
	cmd := exec.Command("objcopy", "--set-section-flags", ".bss=alloc,load,contents", "--set-section-flags", "__libc_freeres_ptrs=alloc,load,contents", built, full)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
	return full
}

// canTrap tells a guest where traps can be served inside. Where 4 bytes of a kernel's text are by
// chance an address behind the beginning of its own handler of traps, no jump may stand there
// (symbol/kernel, Leads), and probes stop instead: so it was in two boots of 13.
func canTrap(t testing.TB, v *vm.VM) bool {
	t.Helper()
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close()
	s, err := kprobe.Look(k, nil)
	if err != nil {
		t.Fatal(err)
	}
	e := s.Plan(&kprobe.Kprobe{SymbolName: "ksys_sync", Program: kprobe.CountOnly})
	return !strings.Contains(e.Trap.Why, "something leads")
}

func run(t testing.TB, v *vm.VM, command string) string {
	t.Helper()
	out, err := v.Run(command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// open opens a session on the shared guest.
func open(t testing.TB, v *vm.VM, ram string) *kprobe.Session {
	t.Helper()
	return attach(t, v, ram, nil)
}

func attach(t testing.TB, v *vm.VM, ram string, o *kprobe.Options) *kprobe.Session {
	t.Helper()
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: ram})
	if err != nil {
		t.Fatal(err)
	}
	if o == nil {
		o = &kprobe.Options{}
	}
	o.Unlisted = true
	if o.Report == nil {
		o.Report = func(err error) { t.Error(err) }
	}
	s, err := kprobe.Open(k, o)
	if err != nil {
		k.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Handlers see each pass, before and behind the instruction, and the guest goes on.
func TestHandlers(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s := open(t, v, v.RAM())
	var mu sync.Mutex
	var pre, post, returned []string
	note := func(list *[]string, text string) {
		mu.Lock()
		defer mu.Unlock()
		*list = append(*list, text)
	}
	kp := &kprobe.Kprobe{SymbolName: "ksys_sync",
		PreHandler: func(p *kprobe.Kprobe, r *kprobe.Regs) int {
			note(&pre, r.Comm())
			return 0
		},
		PostHandler: func(p *kprobe.Kprobe, r *kprobe.Regs, _ uint64) {
			if r.PC() == p.Addr {
				t.Error("the instruction is not done")
			}
			note(&post, r.Comm())
		},
	}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "ksys_sync"},
		Handler: func(ri *kprobe.KretprobeInstance, r *kprobe.Regs) int {
			note(&returned, r.Comm())
			return 0
		}}
	if err := s.RegisterKprobe(kp); err != nil {
		t.Fatal(err)
	}
	if err := s.RegisterKretprobe(rp); err != nil {
		t.Fatal(err)
	}
	run(t, v, "sync; sync; sync")
	want := "sync sync sync"
	for name, got := range map[string][]string{"pre": pre, "post": post, "return": returned} {
		if strings.Join(got, " ") != want {
			t.Errorf("%s-handler: %q", name, got)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	run(t, v, "sync")
	if len(pre) != 3 {
		t.Error("a hit after Close")
	}
}

// Definitions give the lines that the kernel's own tracer gives.
func TestTrace(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s := open(t, v, v.RAM())
	var lines []string
	tr := trace.New(s, func(e *event.Event) { lines = append(lines, string(e.AppendText(nil))) })
	if err := tr.Add("p:myopen do_sys_openat2 dfd=%di:s32 file=+0(%si):ustring", "r:myret do_sys_openat2 ret=$retval:s64"); err != nil {
		t.Fatal(err)
	}
	run(t, v, "cat /proc/version >/dev/null")
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	text := strings.Join(lines, "")
	for _, want := range []string{`myopen: (do_sys_openat2+0x0/`, `dfd=-100 file="/proc/version"`, "ret=3"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

// Where the kernel's own return probes are refused, ours are, however they are served.
func TestReturnsThatTheKernelRefuses(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openWindow(t, v)
	defer s.Close()
	for _, rp := range []*kprobe.Kretprobe{
		{Kp: kprobe.Kprobe{SymbolName: "__switch_to"}},
		{Kp: kprobe.Kprobe{SymbolName: "__switch_to"}, Program: kprobe.CountOnly},
	} {
		if err := s.RegisterKretprobe(rp); !errors.Is(err, syscall.EINVAL) || !strings.Contains(err.Error(), "kretprobe_blacklist") {
			t.Errorf("the return of __switch_to: %v", err)
		}
	}
	out := run(t, v, "cd /sys/kernel/tracing; echo 'r:x __switch_to' >kprobe_events; echo $?; echo >kprobe_events")
	if strings.TrimSpace(out) == "0" {
		t.Error("the kernel has probed the return of __switch_to")
	}
	p := &kprobe.Kprobe{SymbolName: "__switch_to", Program: kprobe.CountOnly}
	if e := s.Plan(p); e.Verdict == kprobe.VerdictRefuse {
		t.Errorf("its entry: %+v", e)
	}
}
