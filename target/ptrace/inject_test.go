//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/testprog"
	"kprobe/target"
)

// A thread makes a call for us that is about to be given a signal, and another one of that number
// is sent meanwhile: only one of both waits. The program gets the details of the first, as it would
// without us.
func TestCallKeepsWhatASignalWasSentWith(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "values", "-O2"))
	p, err := Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	p.Run(func() {
		queue(t, prog.Pid, unix.SIGUSR1, 1)
		st, err := p.Wait()
		for err == nil && st.Kind != target.StopSignal {
			st, err = p.Wait()
		}
		if err != nil || st.Signal != int(unix.SIGUSR1) {
			t.Errorf("%+v, %v", st, err)
			return
		}
		queue(t, prog.Pid, unix.SIGUSR1, 2)
		stops, err := p.Freeze()
		if err != nil || len(stops) > 0 {
			t.Errorf("freeze: %v, %v", stops, err)
		}
		maps, err := p.Maps()
		if err != nil {
			t.Error(err)
			return
		}
		ours, err := p.Share(maps[0].Start-1<<30, 1<<16)
		if err != nil {
			t.Error(err)
			return
		}
		defer p.Unshare(ours)
		if err := p.Thaw(); err != nil {
			t.Error(err)
		}
		if err := p.Resume(st.Thread, st.Signal); err != nil {
			t.Error(err)
		}
	})
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if got := prog.Round("")[0]; got != "values 1" {
		t.Errorf("the program had the %s, and wants 1", got)
	}
}

// queue sends a process a signal with a value.
func queue(t *testing.T, pid int, sig unix.Signal, value int32) {
	t.Helper()
	const siQueue = -1
	var info [128]byte
	*(*int32)(unsafe.Pointer(&info[0])), *(*int32)(unsafe.Pointer(&info[8])) = int32(sig), siQueue
	*(*int32)(unsafe.Pointer(&info[24])) = value
	if _, _, e := unix.Syscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), uintptr(sig), uintptr(unsafe.Pointer(&info))); e != 0 {
		t.Fatal(e)
	}
}
