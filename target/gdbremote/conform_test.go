package gdbremote_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/targettest"
)

// gdbserver, attached to a program that runs.
func TestConformanceGdbserver(t *testing.T) {
	targettest.Run(t, func(t *testing.T) targettest.Subject {
		program := testprog.Build(t, "jumpers", "-O2", "-static", "-no-pie")
		p := testprog.Start(t, "/usr/bin/setsid", program) // see quirks.go, "Interrupts"
		server := testprog.StartCmd(t, exec.Command("sh", "-c", fmt.Sprintf("exec gdbserver --once --attach 127.0.0.1:0 %d 2>&1", p.Pid)))
		var port int
		for port == 0 {
			fmt.Sscanf(server.Line(), "Listening on port %d", &port)
		}
		g := dial(t, fmt.Sprintf("tcp:127.0.0.1:%d", port))
		if g.PID() != p.Pid {
			t.Errorf("it is process %d, not %d", g.PID(), p.Pid)
		}
		code, data := targettest.Program(t, program, "jumper", "command")
		return targettest.Subject{Target: g, Code: code, Data: data + 128, Bad: 0x1000,
			Poke: func() error { p.Round("1"); return nil },
			Kill: func() { p.Signal(syscall.SIGKILL) }}
	})
}

// QEMU's user mode, which runs a program under its own stub from the start.
func TestConformanceQemuUser(t *testing.T) {
	targettest.Run(t, func(t *testing.T) targettest.Subject {
		program := testprog.Build(t, "jumpers", "-O2", "-static", "-no-pie")
		dir, err := os.MkdirTemp("", "gdb") // short: it holds a socket
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(dir) })
		socket := filepath.Join(dir, "s")
		p := testprog.StartCmd(t, exec.Command("qemu-x86_64", "-g", socket, program))
		code, data := targettest.Program(t, program, "jumper", "command")
		var once sync.Once
		return targettest.Subject{Target: dial(t, "unix:"+socket), Code: code, Data: data + 128, Bad: 0x1000,
			Poke: func() error {
				once.Do(func() { p.Expect("ready") })
				p.Round("1")
				return nil
			},
			Kill: func() { p.Signal(syscall.SIGKILL) }}
	})
}

// A machine with a kernel.
func TestConformanceMachine(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	targettest.Run(t, func(t *testing.T) targettest.Subject {
		if t.Name() == "TestConformanceMachine/gone" {
			v = vmtest.Boot(t, vm.Config{}) // it will be killed
		}
		return targettest.Subject{
			Code: guestSymbol(t, v, "__x64_sys_sync"), Data: guestSymbol(t, v, "init_uts_ns"), Bad: 0xffff_c800_0000_0000,
			Target: dialVM(t, v, v.RAM()),
			Poke:   func() error { _, err := v.Run("sync"); return err },
			Kill:   func() { v.Close() }}
	})
}

func dial(t *testing.T, address string) *gdbremote.Target {
	t.Helper()
	var g *gdbremote.Target
	testprog.UntilNil(t, address+" listens", testprog.Here, func() (err error) {
		g, err = gdbremote.Dial(address, nil)
		return err
	})
	t.Cleanup(func() { g.Close() })
	return g
}
