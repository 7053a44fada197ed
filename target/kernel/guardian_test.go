package kernel_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// A controller that is killed at any moment, attaching and leaving included, leaves a machine that
// goes on by itself, with nothing of ours in its text: only its guardian connects.
func TestGuardian(t *testing.T) {
	rounds, steady := 10, "1"
	switch {
	case os.Getenv("SOAK") != "":
		rounds, steady = 100, "1 2"
	case testing.Short():
		rounds = 5 // one of each sort
	}
	v := vmtest.Shared(t, "amd64")
	before := text(t, outside(t, v))
	command := testprog.Command(t, "kprobe/cmd/kprobe")
	place := []string{"-k", v.Stub(), "--ram", v.RAM(), "--window", v.Window()}
	run(t, v, "dmesg -c >/dev/null; rm -f /tmp/stop; while ! test -f /tmp/stop; do cat /proc/version >/dev/null; sync; done >/dev/null 2>&1 &")
	// Each call of it that comes out wrong is the doing of a probe, or of its end.
	run(t, v, "for i in "+steady+"; do ksteady /tmp/stop >/tmp/steady$i & done")
	defer run(t, v, "touch /tmp/stop")
	rnd := testprog.Rand(t)
	var stood []time.Duration
	for i := range rounds {
		args := [][]string{
			{"trace", "p do_sys_openat2 file=+0(%si):ustring", "r do_sys_openat2 $retval", "p ksys_sync+4"},
			{"stat", "p vfs_read", "p vfs_open", "r vfs_read"},
			{"trace", "--stops", "r vfs_read", "r do_sys_openat2"},
			{"trace", "-d", "200ms", "p ksys_sync", "r vfs_read"}, // which may be leaving
			{"script", "-q", "-e", "tracepoint:sched:sched_process_fork, tracepoint:sched:sched_switch { @ = count(); }"},
		}[i%5]
		cmd := exec.Command(command, slices.Concat(args[:1], place, args[1:])...)
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		drained := make(chan struct{})
		go func() { io.Copy(io.Discard, out); close(drained) }()
		after := time.Duration(rnd.Int64N(int64(2 * time.Second)))
		t.Logf("round %d: %s is killed after %v", i, strings.Join(args, " "), after)
		time.Sleep(after)
		cmd.Process.Signal(syscall.SIGKILL)
		began := time.Now()
		run(t, v, "cat /proc/version") // it comes past the probes
		stood = append(stood, time.Since(began))
		<-drained
		cmd.Wait() // for the guardian as well, which has its standard error
		if strings.Contains(said.String(), "not restored") {
			t.Errorf("round %d, %v: %s", i, args, &said)
		}
		run(t, v, "cat /proc/version")
	}
	slices.Sort(stood)
	t.Logf("until the machine answered, %d rounds: half within %v, all within %v", rounds, stood[len(stood)/2], stood[len(stood)-1])
	if on := strings.TrimSpace(run(t, v, "cat "+tracing+"/events/sched/enable")); on != "0" {
		t.Errorf("trace events of the guest are on: %s", on)
	}
	run(t, v, "touch /tmp/stop; while pidof ksteady >/dev/null; do sleep 0.1; done")
	if got := run(t, v, "cat /tmp/steady*"); strings.Trim(got, "steady\n") != "" || got == "" {
		t.Errorf("what system calls answered: %s", got)
	}
	sameLater(t, v, before)
	sane(t, v)
}

// killBoth kills a controller, and its guardian first: the next one has to put all back.
func killBoth(t testing.TB, controller *exec.Cmd) {
	t.Helper()
	guardian := 0
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", controller.Process.Pid))
	for _, list := range lists {
		pids, _ := os.ReadFile(list)
		for _, pid := range strings.Fields(string(pids)) {
			if line, _ := os.ReadFile("/proc/" + pid + "/cmdline"); bytes.HasPrefix(line, []byte("kprobe-machine-guardian\x00")) {
				guardian, _ = strconv.Atoi(pid)
			}
		}
	}
	if guardian == 0 {
		t.Fatal("it has no guardian")
	}
	for _, pid := range []int{guardian, controller.Process.Pid} {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// known is the record of a machine's controllers.
func known(t testing.TB, v *vm.VM) *kernel.Machine {
	t.Helper()
	all, err := kernel.Machines()
	if err != nil {
		t.Fatal(err)
	}
	if i := slices.IndexFunc(all, func(m kernel.Machine) bool { return m.Address == kernel.Place(v.Stub()) }); i >= 0 {
		return &all[i]
	}
	return nil
}

// A machine has one controller at a time, and the second one is told so at once.
func TestOneController(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s := open(t, v, v.RAM())
	defer s.Close()
	if k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM()}); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("a second controller: %v, %v", k, err)
	}
	if m := known(t, v); m == nil || m.Abandoned || m.Controller != os.Getpid() {
		t.Errorf("what is known of the machine: %+v", m)
	}
}
