package kernel_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// sleep is the command for sleeper.
const sleep = "dmesg -c >/dev/null; rm -f /tmp/fifo /tmp/got; kwork sleep /tmp/fifo /tmp/got"

// sleeper has a task of the guest's sleep in pipe_read until answered.
func sleeper(t testing.TB, v *vm.VM) {
	t.Helper()
	run(t, v, sleep)
}

// sleepUntil has one sleep again and again until that was seen; the last one sleeps on.
func sleepUntil(t testing.TB, v *vm.VM, seen <-chan struct{}) {
	t.Helper()
	testprog.Until(t, "an event", v.PID(), func() bool {
		sleeper(t, v)
		err := testprog.AwaitFor(time.Second, v.PID(), func() error {
			select {
			case <-seen:
				return nil
			default:
				return errors.New("it was not seen")
			}
		})
		if err != nil {
			answered(t, v)
		}
		return err == nil
	})
}

// answered wakes it, and makes sure that it came back as it should.
func answered(t testing.TB, v *vm.VM) {
	t.Helper()
	run(t, v, "echo woken >/tmp/fifo; until test -s /tmp/got; do sleep 0.1; done")
	if got := run(t, v, "cat /tmp/got"); got != "woken\n" {
		t.Errorf("who slept in a probed function says %q", got)
	}
	if got := run(t, v, "dmesg | grep -iE -A9 'oops|bug:|int3|warning:' || true"); got != "" {
		t.Errorf("the kernel has complaints:\n%s", got)
	}
}

// The guest's own return probes and graph tracer take return addresses out of the
// stack, ours too: when we leave, calls that are under way come back all the same.
func TestLeavingCallsThatTheGuestKeeps(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	cases := []struct{ name, on, off string }{
		{"nobody", "true", "true"},
		{"kretprobe", "echo 'r:x pipe_read' >kprobe_events; echo 1 >events/kprobes/x/enable", "echo 0 >events/kprobes/x/enable; echo >kprobe_events"},
		{"graph", "echo pipe_read >set_ftrace_filter; echo function_graph >current_tracer", "echo nop >current_tracer; echo >set_ftrace_filter"},
	}
	if testing.Short() {
		cases = cases[1:] // TestLeavingBySignal leaves such a call, too
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			run(t, v, "cd "+tracing+"; "+c.on)
			defer run(t, v, "cd "+tracing+"; "+c.off)
			s := open(t, v, v.RAM())
			rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "pipe_read"}}
			entered := make(chan struct{}, 100)
			rp.EntryHandler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int { entered <- struct{}{}; return 0 }
			if err := s.RegisterKretprobe(rp); err != nil {
				t.Fatal(err)
			}
			sleeper(t, v)
			<-entered
			run(t, v, "true") // it sleeps by now
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			answered(t, v)
		})
	}
}

// A controller that is ended while probes are in place, calls under way: by the signals that it
// heeds, and by the one that it cannot. The next one finds the rest.
func TestLeavingBySignal(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	// The command would ignore signals that are ignored here, as nohup has it.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGHUP)
	defer signal.Stop(caught)
	signals := []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL}
	if testing.Short() {
		signals = signals[2:]
	}
	for _, sig := range signals {
		t.Run(sig.String(), func(t *testing.T) {
			cmd := exec.Command(testprog.Command(t, "kprobe/cmd/kprobe"), "trace", "-k", v.Stub(), "--ram", v.RAM(), "--no-summary",
				"p:slept pipe_read", "r:woke pipe_read", "p do_sys_openat2", "r do_sys_openat2")
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer cmd.Process.Kill()
			// Nothing tells when its probes are in place: it is woken until it has been seen.
			seen := make(chan struct{})
			go func() {
				for lines := bufio.NewScanner(out); lines.Scan(); {
					if strings.Contains(lines.Text(), " slept: ") {
						close(seen)
						break
					}
				}
				io.Copy(io.Discard, out)
			}()
			sleepUntil(t, v, seen)
			if sig == syscall.SIGKILL {
				killBoth(t, cmd)
			} else if err := cmd.Process.Signal(sig); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); (err == nil) != (sig != syscall.SIGKILL) {
				t.Errorf("it ended so: %v %s", err, &stderr)
			}
			if sig == syscall.SIGKILL {
				m := known(t, v)
				if m == nil || !m.Abandoned || m.Controller != cmd.Process.Pid {
					t.Fatalf("what is known of the machine: %+v", m)
				}
				if err := m.Recover(); err != nil {
					t.Error(err)
				}
			}
			if m := known(t, v); m != nil {
				t.Errorf("it is all put back, and yet: %+v", m)
			}
			answered(t, v)
			run(t, v, "cat /proc/version") // and where no probe is any more
		})
	}
}

// A machine that vanishes is an error.
func TestMachineVanishes(t *testing.T) {
	v := vmtest.Boot(t, vm.Config{})
	s := openReporting(t, v)
	if err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "ksys_sync"}); err != nil {
		t.Fatal(err)
	}
	run(t, v, "sync")
	if err := syscall.Kill(v.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-s.Done()
	if err := s.RegisterKprobe(&kprobe.Kprobe{SymbolName: "vfs_read"}); err == nil {
		t.Error("a probe was put into a machine that has vanished")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

func openReporting(t testing.TB, v *vm.VM) *kprobe.Session {
	t.Helper()
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := kprobe.Open(k, &kprobe.Options{Unlisted: true, Report: func(err error) { t.Log(fmt.Sprint("reported: ", err)) }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
