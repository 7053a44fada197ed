//go:build linux && amd64

package ptrace

import (
	"errors"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/internal/tracee"
)

// runs starts a program and waits until it has begun to run.
func runs(t *testing.T, argv ...string) int {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	testprog.Executed(t, cmd.Process.Pid, argv[0])
	testprog.AllIn(t, cmd.Process.Pid, "S")
	return cmd.Process.Pid
}

func attached(t *testing.T, pid int) *Process {
	t.Helper()
	p, err := Attach(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// Where a file has the instructions that calls are made with is looked for once, and looked at
// in each process.
func TestGadgetsAreRemembered(t *testing.T) {
	first := attached(t, runs(t, "sleep", "1000"))
	found, err := first.gadgets(first, arch.Range{})
	if err != nil || found.call == 0 || found.back == 0 {
		t.Fatalf("%+v, %v", found, err)
	}
	second := attached(t, runs(t, "sleep", "1000"))
	maps, err := second.Maps()
	if err != nil {
		t.Fatal(err)
	}
	known := 0
	for _, m := range maps {
		if in, ok := second.recall(second, m); ok && (in.back >= 0 || in.entries[0] >= 0) {
			known++
		}
	}
	if known == 0 {
		t.Error("nothing is remembered of the second process's files")
	}
	right := func(what string) {
		t.Helper()
		second.found = gadgets{}
		g, err := second.gadgets(second, arch.Range{})
		if err != nil || g.call == 0 || g.back == 0 {
			t.Fatalf("%s: %+v, %v", what, g, err)
		}
		is := func(at arch.Addr, code string) bool {
			b := make([]byte, len(code))
			return second.ReadAt(at, b) == nil && string(b) == code
		}
		if !is(g.call, second.abi().Entries[0].Code) || !slices.ContainsFunc(second.abi().Back, func(code string) bool { return is(g.back, code) }) {
			t.Errorf("%s: %+v are others", what, g)
		}
	}
	right("as they are")

	// The files are others now, by the same name and number.
	scanned.Lock()
	for key, in := range scanned.places {
		for n := range in.entries {
			in.entries[n] = 1
		}
		in.back = 1
		scanned.places[key] = in
	}
	scanned.Unlock()
	right("when they have them elsewhere")
	// And now the remembered places have none.
	scanned.Lock()
	for key, in := range scanned.places {
		in = places{back: -1}
		for n := range in.entries {
			in.entries[n] = -1
		}
		scanned.places[key] = in
	}
	scanned.Unlock()
	right("when they seem to have none")
}

// A process that has threads or children is perhaps not alone with its memory.
func TestAlone(t *testing.T) {
	if p := attached(t, runs(t, "sleep", "1000")); !p.alone() {
		t.Error("a process that has made nobody is not alone")
	}
	if p := attached(t, runs(t, "sh", "-c", "sleep 1000 & wait")); p.alone() {
		t.Error("a process with a child is alone")
	}
}

// A thread found without a filter has none as long as no thread runs.
func TestFilterIsAskedForAgain(t *testing.T) {
	p := attached(t, runs(t, "sleep", "1000"))
	p.Run(func() {
		if _, err := p.Freeze(); err != nil {
			t.Error(err)
			return
		}
		th := p.threads[p.pid]
		if err := p.remote(th, p.abi().Munmap, 0, 4096); err != nil {
			t.Error(err)
		}
		if !th.unfiltered {
			t.Error("it is asked for at each call")
		}
		if err := p.Thaw(); err != nil || th.unfiltered {
			t.Errorf("it is not asked for when the thread has run: %v", err)
		}
	})
}

// A probe may take the instructions that calls are made with. Then others are borrowed, and a
// program that has none left is refused with a reason: nothing else is executed in their place.
func TestGadgetsMayBeProbed(t *testing.T) {
	pid := runs(t, "sleep", "1000")
	if testing.Short() { // with a part of libc
		pid = testprog.Start(t, testprog.Build(t, "rets", "-O2", "-static")).Pid
	}
	p := attached(t, pid)
	p.Run(func() {
		if _, err := p.Freeze(); err != nil {
			t.Error(err)
			return
		}
		defer p.Thaw()
		dead := time.AfterFunc(time.Minute, func() { syscall.Kill(pid, syscall.SIGKILL) }) // else this might last for ever
		defer dead.Stop()
		was := map[arch.Addr][]byte{}
		defer func() {
			for at, code := range was {
				if err := p.WriteAt(at, code); err != nil {
					t.Error(err)
				}
			}
		}()
		const most = 1 << 14
		for {
			err := p.remote(p.threads[pid], p.abi().Munmap, 0, 4096)
			if errors.Is(err, unix.ENOEXEC) && len(was) > 1 {
				break
			}
			if err != nil || len(was) > most {
				t.Errorf("with %d probed: %v", len(was), err)
				return
			}
			at := p.found.call
			if was[at] != nil {
				t.Errorf("the instruction at %v is borrowed, which is probed", at)
				return
			}
			was[at] = make([]byte, len(p.arch.Break))
			if err := errors.Join(p.ReadAt(at, was[at]), p.WriteAt(at, p.arch.Break)); err != nil {
				t.Error(err)
				return
			}
		}
		t.Logf("%d were borrowed, one after the other", len(was))
	})
	// Facts about its file are not taken for other files': there it has them all.
	second := attached(t, runs(t, "sleep", "1000"))
	if g, err := second.gadgets(second, arch.Range{}); err != nil || g.back == 0 {
		t.Errorf("another process has %+v, %v", g, err)
	}
}

// A thread that is stopped by an instruction in place of a call is left as it was, at once.
func TestCallThatTraps(t *testing.T) {
	pid := runs(t, "sleep", "1000")
	p := attached(t, pid)
	p.Run(func() {
		if _, err := p.Freeze(); err != nil {
			t.Error(err)
			return
		}
		defer p.Thaw()
		dead := time.AfterFunc(time.Minute, func() { syscall.Kill(pid, syscall.SIGKILL) })
		defer dead.Stop()
		g, err := p.gadgets(p, arch.Range{})
		var before, after tracee.Registers
		was := make([]byte, len(p.arch.Break))
		if err = errors.Join(err, tracee.GetRegs(pid, &before), p.ReadAt(g.call, was), p.WriteAt(g.call, p.arch.Break)); err != nil {
			t.Error(err)
			return
		}
		defer p.WriteAt(g.call, was)
		g.callCode = string(p.arch.Break)
		p.found = g
		if err := p.remote(p.threads[pid], p.abi().Munmap, 0, 4096); !errors.Is(err, unix.EIO) {
			t.Errorf("a call that traps ends with: %v", err)
		}
		if err := tracee.GetRegs(pid, &after); err != nil || before != after {
			t.Errorf("%v: the thread's registers are %+v, were %+v", err, after, before)
		}
		p.found = gadgets{}
	})
	if s := taskState(pid, pid); s == 0 || s == 'Z' {
		t.Errorf("the program is in state %c", s)
	}
}
