package kernel_test

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// file makes one of so many zeros.
func file(t testing.TB, size int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	err := os.WriteFile(path, nil, 0o600)
	if err == nil {
		err = os.Truncate(path, size)
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// runs tells whether a machine does.
func runs(t testing.TB, v *vm.VM) bool {
	t.Helper()
	status, err := v.Monitor("info status")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(status, "running")
}

// A machine that is not taken goes on, whatever the reason, and nothing is left to do.
func TestRefusalLetsGo(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	none := filepath.Join(t.TempDir(), "none")
	for _, tt := range []struct {
		o    gdbremote.Options
		want string
	}{
		{gdbremote.Options{RAM: none}, "no such file"},
		{gdbremote.Options{RAM: v.RAM(), Window: none}, "no such file"},
		{gdbremote.Options{RAM: v.RAM(), Symbols: none}, "no such file"},
		{gdbremote.Options{RAM: file(t, 256<<20)}, "does not hold the memory"}, // which the greeting finds
		{gdbremote.Options{RAM: v.RAM(), Window: file(t, 4096)}, "not a few times 2 MiB"},
		{gdbremote.Options{RAM: v.RAM(), Symbols: file(t, 4096)}, "no kernel"},
	} {
		k, err := kernel.Dial(v.Stub(), &tt.o)
		if err == nil {
			k.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) || errors.Is(err, gdbremote.ErrStands) || kernel.Gone(err) {
			t.Errorf("%v, want %s", err, tt.want)
		}
		if !runs(t, v) {
			t.Fatalf("after %v the machine stands", err)
		}
		if m := known(t, v); m != nil {
			t.Errorf("after %v it is known: %+v", err, m)
		}
	}
	run(t, v, "true")
}

// A machine whose stub hears no second client, since it has another one, may stand later for a call
// that was given up. That is known, and mended.
func TestRefusalThatNobodyHeard(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	g, err := gdbremote.Dial(v.Stub(), nil)
	if err != nil {
		t.Fatal(err)
	}
	k, err := kernel.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Patience: 200 * time.Millisecond})
	if err == nil {
		k.Close()
	}
	if !errors.Is(err, gdbremote.ErrStands) {
		t.Errorf("a second client: %v", err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	testprog.Until(t, "the stub takes the call that was given up", v.PID(), func() bool { return !runs(t, v) })
	m := known(t, v)
	if m == nil || !m.Stands || !m.Abandoned || m.Controller != 0 {
		t.Fatalf("what is known of it: %+v", m)
	}
	if err := m.Recover(); err != nil {
		t.Error(err)
	}
	if m := known(t, v); m != nil || !runs(t, v) {
		t.Errorf("recovered, it runs: %v, and this is known: %+v", runs(t, v), m)
	}
	run(t, v, "true")
}

// A machine in which return addresses are swapped does not go on before they are back: nothing but
// the breakpoints that a greeting takes out would stop it where they lead to.
func TestRefusalOfOneThatMustNotGoOn(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	cmd := exec.Command(testprog.Command(t, "kprobe/cmd/kprobe"), "trace", "-k", v.Stub(), "--ram", v.RAM(), "--no-summary", "r:woke pipe_read", "p:slept pipe_read")
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	seen := make(chan struct{})
	go func() {
		bufio.NewReader(out).ReadString('\n')
		close(seen)
		io.Copy(io.Discard, out)
	}()
	sleepUntil(t, v, seen)
	killBoth(t, cmd)
	cmd.Wait()
	for _, o := range []gdbremote.Options{{RAM: file(t, 256<<20)}, {Symbols: file(t, 4096)}} {
		k, err := kernel.Dial(v.Stub(), &o)
		if err == nil {
			k.Close()
		}
		if !errors.Is(err, gdbremote.ErrStands) || !strings.Contains(err.Error(), "return addresses") {
			t.Errorf("%+v: %v", o, err)
		}
		if runs(t, v) {
			t.Fatalf("after %v the machine runs", err)
		}
		if m := known(t, v); m == nil || m.Stands || m.Controller != cmd.Process.Pid {
			t.Errorf("what is known of it: %+v", m)
		}
	}
	if m := known(t, v); m == nil {
		t.Fatal("it is not known")
	} else if err := m.Recover(); err != nil {
		t.Error(err)
	}
	answered(t, v)
}
