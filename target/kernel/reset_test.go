package kernel_test

import (
	"bufio"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// reboots boots a guest that can be reset.
func reboots(t testing.TB, words string) *vm.VM {
	t.Helper()
	return vmtest.Boot(t, vm.Config{CPUs: 2, Turns: true, Reboot: true, Append: words, Files: vmtest.Files(t)})
}

// reset resets it, as its button would.
func reset(t testing.TB, v *vm.VM, meanwhile func()) {
	t.Helper()
	if err := v.Reset(meanwhile); err != nil {
		t.Fatal(err)
	}
}

// A machine that is reset under a session ends it, with one error that says so. The new kernel,
// which may be at the same addresses or not, finds none of our breakpoints, and the next session
// knows it for a new one.
func TestReset(t *testing.T) {
	kernels := map[string][]gdbremote.Options{"nokaslr": {{RAM: "ram", Window: "window"}, {}}, "": {{RAM: "ram"}}}
	if testing.Short() {
		kernels = map[string][]gdbremote.Options{"nokaslr": {{RAM: "ram", Window: "window"}}} // each is a boot or two
	}
	for words, shared := range kernels {
		t.Run("append "+words, func(t *testing.T) {
			v := reboots(t, words)
			for _, o := range shared {
				if o.RAM != "" {
					o.RAM = v.RAM()
				}
				if o.Window != "" {
					o.Window = v.Window()
				}
				k, err := kernel.Dial(v.Stub(), &o)
				if err != nil {
					t.Fatal(err)
				}
				var mu sync.Mutex
				var told []error
				s, err := kprobe.Open(k, &kprobe.Options{Unlisted: true, Report: func(err error) {
					mu.Lock()
					defer mu.Unlock()
					told = append(told, err)
				}})
				if err != nil {
					t.Fatal(err)
				}
				hits := 0
				kp := &kprobe.Kprobe{SymbolName: "ksys_sync", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { hits++; return 0 }}
				rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "pipe_read"}, Handler: func(*kprobe.KretprobeInstance, *kprobe.Regs) int { return 0 }}
				if err := errors.Join(s.RegisterKprobe(kp), s.RegisterKretprobe(rp)); err != nil {
					t.Fatal(err)
				}
				if o.Window != "" {
					counters(t, s, "write_null")
				}
				sleeper(t, v)
				run(t, v, "sync; echo >/dev/null")
				if hits != 1 {
					t.Errorf("%d hits before the reset", hits)
				}
				reset(t, v, func() { <-s.Done() })
				if len(told) != 1 || !errors.Is(told[0], target.ErrGone) || !strings.Contains(told[0].Error(), "reset") {
					t.Errorf("reported: %v", told)
				}
				if err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "vfs_read"}); err == nil {
					t.Error("a probe was put into a machine that was reset")
				}
				if err := s.Close(); err != nil {
					t.Errorf("Close: %v", err)
				}
				run(t, v, "sync; echo >/dev/null")
				if hits != 1 {
					t.Errorf("%d hits after the reset", hits)
				}
				sleeper(t, v)
				answered(t, v)
				next := open(t, v, v.RAM())
				hits = 0
				kp = &kprobe.Kprobe{SymbolName: "ksys_sync", PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { hits++; return 0 }}
				if err := next.RegisterKprobe(kp); err != nil {
					t.Fatal(err)
				}
				run(t, v, "sync")
				if err := next.Close(); err != nil || hits != 1 {
					t.Errorf("the next session: %d hits, %v", hits, err)
				}
			}
		})
	}
}

// A machine that is reset while a handler has it stand is not written to, though its text was known
// before.
func TestResetWhileItStands(t *testing.T) {
	v := reboots(t, "nokaslr")
	for name, change := range map[string]func(*kernel.Target, *kprobe.Regs) error{
		"WriteAt": func(k *kernel.Target, _ *kprobe.Regs) error {
			at, _ := k.Kernel().Table().Addr("linux_proc_banner")
			return k.WriteAt(at, []byte("x"))
		},
		"SetRegs": func(k *kernel.Target, r *kprobe.Regs) error {
			return k.SetRegs(target.Thread(r.CPU()+1), r.Raw())
		},
	} {
		t.Run(name, func(t *testing.T) {
			k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM()})
			if err != nil {
				t.Fatal(err)
			}
			in, out := make(chan bool), make(chan bool)
			s, err := kprobe.Open(k, &kprobe.Options{Unlisted: true, Report: func(err error) { t.Log(err) }})
			if err != nil {
				t.Fatal(err)
			}
			kp := &kprobe.Kprobe{SymbolName: "ksys_sync", PreHandler: func(_ *kprobe.Kprobe, r *kprobe.Regs) int {
				in <- true
				<-out
				if err := change(k, r); !errors.Is(err, target.ErrGone) {
					t.Errorf("after the reset: %v", err)
				}
				return 0
			}}
			if err := s.RegisterKprobe(kp); err != nil {
				t.Fatal(err)
			}
			run(t, v, "(sleep 0.1; sync) >/dev/null 2>&1 &") // it is not waited for: the console is the reset's
			<-in
			reset(t, v, func() { close(out); <-s.Done() })
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if got := run(t, v, "cat /proc/version"); !strings.Contains(got, "Linux version") {
				t.Errorf("the new kernel is called %q", got)
			}
		})
	}
}

// Notes that a killed controller left are void after a reset: the next one writes nothing of them,
// and is not kept from its work by them.
func TestResetAfterKilled(t *testing.T) {
	v := reboots(t, "nokaslr") // where all that was noted could be taken for the new kernel's
	shared := []string{"-k", v.Stub(), "--ram", v.RAM(), "--window", v.Window()}
	left := map[string][]string{"stat": {"p ksys_sync", "p:tick tick_sched_timer"}, "trace": {"r:woke pipe_read", "p:slept pipe_read"}}
	if testing.Short() {
		delete(left, "trace")
	}
	for verb, defs := range left {
		t.Run(verb, func(t *testing.T) {
			cmd := exec.Command(testprog.Command(t, "kprobe/cmd/kprobe"), append(append([]string{verb}, shared...), defs...)...)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			if verb == "stat" {
				testprog.Until(t, "a jump", v.PID(), func() bool { return vmtest.Journalled(t, v.Window()) })
			} else {
				seen := make(chan struct{})
				go func() {
					bufio.NewReader(out).ReadString('\n')
					close(seen)
					io.Copy(io.Discard, out)
				}()
				sleepUntil(t, v, seen)
			}
			killBoth(t, cmd)
			cmd.Wait()
			// It may stand, at once or where one of the old breakpoints is met. The next client
			// lets it go. There may be a kernel, or none yet.
			up, over := make(chan bool), make(chan bool)
			reset(t, v, func() {
				go func() {
					defer close(over)
					for {
						if k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()}); err == nil {
							k.Close()
						}
						select {
						case <-up:
							return
						case <-time.After(2 * time.Second):
						}
					}
				}()
			})
			close(up)
			<-over
			s, _ := openWindow(t, v)
			if vmtest.Journalled(t, v.Window()) {
				t.Error("the window still has what was noted before the reset")
			}
			counters(t, s, "ksys_sync")
			sleeper(t, v)
			answered(t, v)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
