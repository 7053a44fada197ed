package vm_test

import (
	"bytes"
	"os"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

func run(t *testing.T, v *vm.VM, command string) string {
	t.Helper()
	out, err := v.Run(command)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// The guest is the machine that was asked for, runs commands, and has its memory
// in the file.
func TestBoot(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	if got := run(t, v, "uname -rm"); got != v.Kernel.Release+" x86_64\n" {
		t.Errorf("uname: %q", got)
	}
	if got := run(t, v, "nproc"); got != "2\n" {
		t.Errorf("nproc: %q", got)
	}
	if got := run(t, v, "printf 'no newline'"); got != "no newline" {
		t.Errorf("output without an end of line: %q", got)
	}
	long := strings.Repeat("0123456789", 2000)
	if got := run(t, v, "echo "+long); got != long+"\n" {
		t.Errorf("a long command came back as %d bytes", len(got))
	}
	if out, err := v.Run("echo seen; exit 7"); out != "seen\n" || err == nil || !strings.Contains(err.Error(), "exit status 7") {
		t.Errorf("a command that fails: %q, %v", out, err)
	}
	if _, err := v.Run("if"); err == nil {
		t.Error("a command with a mistake in it succeeded")
	}
	if got := run(t, v, "test -d /sys/kernel/debug/kprobes && test -d /sys/kernel/tracing/events && cat /proc/sys/kernel/printk"); !strings.HasPrefix(got, "1\t") { // the last words of a panic only
		t.Errorf("printk: %q", got)
	}
	secret := "the memory of the guest" // what the guest holds reads otherwise
	run(t, v, "echo '"+strings.ReplaceAll(secret, " ", "_")+"' | tr _ ' ' >/tmp/secret")
	ram, err := os.ReadFile(v.RAM())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(ram, []byte(secret)) {
		t.Error("the file ram does not hold the guest's memory")
	}
	info, err := v.Monitor("info status")
	if err != nil || !strings.Contains(info, "VM status: running") {
		t.Errorf("monitor: %q, %v", info, err)
	}
}

// What commands left running ends while a later command is read: nothing of that is lost.
func TestOrphans(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "for i in $(seq 300); do usleep ${i}0000 & done >/dev/null 2>&1")
	long := strings.Repeat("0123456789", 100)
	testprog.Until(t, "all have ended", v.PID(), func() bool {
		if got := run(t, v, "echo "+long); got != long+"\n" {
			t.Fatalf("a command came back as %q", got)
		}
		return run(t, v, "pidof usleep || true") == ""
	})
}

// CPUs that take turns have one thread, others one each.
func TestTurns(t *testing.T) {
	cpu := regexp.MustCompile(`CPU #\d+: thread_id=(\d+)`)
	for _, turns := range []bool{false, true} {
		v := vmtest.Boot(t, vm.Config{CPUs: 2, Turns: turns})
		info, err := v.Monitor("info cpus")
		if err != nil {
			t.Fatal(err)
		}
		cpus := cpu.FindAllStringSubmatch(info, -1)
		if len(cpus) != 2 || (cpus[0][1] == cpus[1][1]) != turns {
			t.Errorf("turns %v: %s", turns, info)
		}
	}
}

// A guest that is reset is as new.
func TestReset(t *testing.T) {
	v := vmtest.Boot(t, vm.Config{Reboot: true})
	run(t, v, "touch /tmp/before")
	told := false
	if err := v.Reset(func() { told = true }); err != nil || !told {
		t.Fatal(told, err)
	}
	if got := run(t, v, "ls /tmp"); got != "" {
		t.Errorf("of before the reset there is %q", got)
	}
}

// A guest that ends, or never begins, is an error and no hang.
func TestEnd(t *testing.T) {
	v := vmtest.Boot(t, vm.Config{Files: map[string]string{"/etc/tests": "vm_test.go"}})
	if got := run(t, v, "wc -l </etc/tests"); got == "0\n" {
		t.Error("the file that was to ride along is empty")
	}
	if _, err := v.Run("poweroff -f"); err == nil {
		t.Error("the guest ended, and Run did not say so")
	}
	if err := v.Wait(); err != nil {
		t.Error(err)
	}
	if _, err := v.Run("true"); err == nil {
		t.Error("a guest that has ended ran a command")
	}
	if _, err := vm.Boot(vm.Config{Dir: t.TempDir(), Machine: "pdp11"}); err == nil {
		t.Error("a pdp11 was booted")
	}
	if _, err := vm.Boot(vm.Config{Dir: t.TempDir(), Memory: 1}); err == nil {
		t.Error("a kernel was booted in 1 MiB")
	}
}
