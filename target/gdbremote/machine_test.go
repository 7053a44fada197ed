package gdbremote_test

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target"
	"kprobe/target/gdbremote"
)

func TestMain(m *testing.M) { vmtest.Main(m) }

func dialVM(t *testing.T, v *vm.VM, ram string) *gdbremote.Target {
	t.Helper()
	g, err := gdbremote.Dial(v.Stub(), &gdbremote.Options{RAM: ram})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() }) // a test that fails leaves the guest to others
	return g
}

func closeTarget(t *testing.T, g *gdbremote.Target) {
	t.Helper()
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// guestSymbol asks the guest for an address.
func guestSymbol(t *testing.T, v *vm.VM, name string) arch.Addr {
	t.Helper()
	out, err := v.Run("grep ' " + name + "$' /proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	a, err := strconv.ParseUint(strings.Fields(out)[0], 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return arch.Addr(a)
}

// serve runs command in the guest while stops are served, until it has ended.
func serve(t *testing.T, v *vm.VM, g *gdbremote.Target, command string, stop func(target.Stop)) string {
	t.Helper()
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	go func() {
		out, err := v.Run(command)
		done <- result{out, err}
		g.Wake()
	}()
	for {
		st, err := g.Wait()
		if err != nil {
			t.Fatal(err)
		}
		if st.Kind != target.StopWoken {
			stop(st)
			continue
		}
		select {
		case r := <-done:
			if r.err != nil {
				t.Fatal(r.err)
			}
			return r.out
		default:
		}
	}
}

// The stub's reads, the RAM file's through our page walk, and the guest's own text agree; and a
// write is seen by the guest's next fetch.
func TestMachineMemory(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	at := guestSymbol(t, v, "linux_banner")
	var views [][]byte
	for _, ram := range []string{"", v.RAM()} {
		g := dialVM(t, v, ram)
		b := make([]byte, 9000) // of several pages
		if err := g.ReadAt(at, b); err != nil {
			t.Fatal(err)
		}
		views = append(views, b)
		if err := g.ReadAt(0xffff_c800_0000_0000-4, make([]byte, 8)); err == nil {
			t.Error("memory that is not mapped was read")
		}
		closeTarget(t, g)
	}
	if !bytes.HasPrefix(views[0], []byte("Linux version 6.1.")) {
		t.Errorf("linux_banner: %.40q", views[0])
	}
	if !bytes.Equal(views[0], views[1]) {
		t.Error("the stub and the file with the guest's memory disagree")
	}
}

// A breakpoint stops every pass, however many CPUs run it, and changes no byte.
func TestMachineBreakpoint(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	at := guestSymbol(t, v, "__x64_sys_sync")
	g := dialVM(t, v, v.RAM())
	before := make([]byte, 16)
	if err := g.ReadAt(at, before); err != nil {
		t.Fatal(err)
	}
	if err := g.SetBreak(at); err != nil {
		t.Fatal(err)
	}
	hits := 0
	serve(t, v, g, "for i in 1 2 3 4 5; do sync; done", func(st target.Stop) {
		if st.Kind != target.StopTrap || !st.Back {
			t.Fatalf("stop %+v", st)
		}
		hits++
		var r arch.Regs
		if err := g.Regs(st.Thread, &r); err != nil {
			t.Fatal(err)
		}
		if r.Addr(arch.IP) != at {
			t.Errorf("PC %#x at the breakpoint of %v", r[arch.IP], at)
		}
		if err := g.Step(st.Thread); err != nil {
			t.Fatal(err)
		}
		var after arch.Regs
		if err := g.Regs(st.Thread, &after); err != nil {
			t.Fatal(err)
		}
		if after[arch.IP] == r[arch.IP] {
			t.Error("a step that went nowhere")
		}
		if err := g.Resume(st.Thread, 0); err != nil {
			t.Fatal(err)
		}
	})
	if hits != 5 {
		t.Errorf("%d hits of 5", hits)
	}
	now := make([]byte, len(before))
	if err := g.ReadAt(at, now); err != nil || !bytes.Equal(now, before) {
		t.Errorf("the bytes are % x, and were % x (%v)", now, before, err)
	}
	closeTarget(t, g)
	if err := g.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the second Close: %v", err)
	}
	if out, err := v.Run("sync; echo up"); err != nil || out != "up\n" { // it runs, and nothing stops it
		t.Errorf("after Close: %q, %v", out, err)
	}
}

// A client that vanished has left the machine stopped, with its breakpoint. The
// next one finds neither.
func TestMachineLeftovers(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	at := guestSymbol(t, v, "__x64_sys_sync")
	dead := dialVM(t, v, "")
	if err := dead.SetBreak(at); err != nil {
		t.Fatal(err)
	}
	gdbremote.Vanish(dead)
	if status, err := v.Monitor("info status"); err != nil || !strings.Contains(status, "paused") {
		t.Fatalf("the guest that was left behind: %q, %v", status, err)
	}
	g := dialVM(t, v, "")
	serve(t, v, g, "for i in 1 2 3 4; do taskset 1 sync; taskset 2 sync; done", func(st target.Stop) { t.Fatalf("stop %+v", st) })
	closeTarget(t, g)
}

// A stub with a client already does not answer a second one: that ends.
func TestMachineHasOneClient(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	g := dialVM(t, v, "")
	if _, err := gdbremote.Dial(v.Stub(), &gdbremote.Options{Patience: 200 * time.Millisecond}); !errors.Is(err, target.ErrGone) {
		t.Errorf("the second client: %v", err)
	}
	closeTarget(t, g)
	closeTarget(t, dialVM(t, v, "")) // the second one's call is taken late, and stops the guest once more
}

func TestMachineMonitor(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	g := dialVM(t, v, "")
	defer closeTarget(t, g)
	if out, err := g.Monitor("info version"); err != nil || !strings.Contains(out, ".") {
		t.Errorf("%q, %v", out, err)
	}
	if got := g.Threads(); len(got) != 2 {
		t.Errorf("CPUs: %v", got)
	}
	if g.PID() != 0 || g.Arch() != arch.AMD64 || !g.IsMachine() {
		t.Errorf("it is process %d of %s", g.PID(), g.Arch().Name)
	}
}
