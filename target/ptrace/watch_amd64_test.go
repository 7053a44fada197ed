//go:build linux && amd64

package ptrace

import (
	"debug/elf"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// Under a hypervisor in another one, processors of Intel's report one access of some million as a
// breakpoint, and DR6 does not say of what. The program would be killed by that signal.
func TestAccessNotOwnedUpTo(t *testing.T) {
	testprog.Watches.Need(t)
	path := testprog.Build(t, "watched", "-O2", "-no-pie")
	prog := testprog.Start(t, path, "0")
	counter := target.Watch{Addr: symbolOf(t, path, "counter"), Len: 8, Write: true}
	other := target.Watch{Addr: symbolOf(t, path, "other"), Len: 8, Write: true}
	p, err := Attach(prog.Pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	// accessed is the report of the next access, once as it is, and once with a signal of that
	// code.
	accessed := func(code int32, ws ...target.Watch) (owned, unowned target.Stop) {
		p.Run(func() {
			watch(t, p, ws...)
			prog.Send("direct 1")
			var err error
			if owned, err = p.Wait(); err != nil {
				t.Error(err)
				return
			}
			var info tracee.Siginfo
			tid := int(owned.Thread)
			err = tracee.TransferSiginfo(unix.PTRACE_GETSIGINFO, tid, &info)
			info.Code = code
			if err == nil {
				err = tracee.TransferSiginfo(unix.PTRACE_SETSIGINFO, tid, &info)
			}
			if err != nil {
				t.Error(err)
			}
			unowned = target.Stop{Kind: target.StopTrap, Thread: owned.Thread, Signal: int(unix.SIGTRAP)}
			p.askAccess(&unowned)
			watch(t, p)
			p.Resume(owned.Thread, 0)
		})
		prog.Expect("counter")
		return owned, unowned
	}
	for _, c := range []struct {
		name  string
		code  int32
		ws    []target.Watch
		kind  target.StopKind
		which uint
		among uint
	}{
		{"one is watched", tracee.TrapBrkpt, []target.Watch{counter}, target.StopAccess, 1, 0},
		{"the second is", tracee.TrapBrkpt, []target.Watch{{}, counter}, target.StopAccess, 2, 0},
		{"two are", tracee.TrapBrkpt, []target.Watch{counter, other}, target.StopAccess, 0, 3},
		{"not for an access", tracee.SiKernel, []target.Watch{counter}, target.StopTrap, 0, 0},
	} {
		owned, unowned := accessed(c.code, c.ws...)
		if owned.Kind != target.StopAccess || owned.Accessed == 0 || owned.Among != 0 {
			t.Errorf("%s: %+v", c.name, owned)
		}
		if unowned.Kind != c.kind || unowned.Accessed != c.which || unowned.Among != c.among {
			t.Errorf("%s, not owned up to: %+v", c.name, unowned)
		}
	}
	// A signal that the program is sent otherwise is its own, whatever it looks like.
	p.Run(func() {
		watch(t, p, counter)
		prog.Send("unowned")
		if s, err := p.Wait(); err != nil || s.Kind != target.StopTrap {
			t.Errorf("sent: %+v, %v", s, err)
		} else {
			p.Resume(s.Thread, 0)
		}
	})
	prog.Expect("counter")
}

func watch(t *testing.T, p *Process, ws ...target.Watch) {
	t.Helper()
	if _, err := p.Freeze(); err != nil {
		t.Error(err)
	}
	if err := p.Watch(ws); err != nil {
		t.Error(err)
	}
	p.Thaw()
}

func symbolOf(t *testing.T, path, name string) arch.Addr {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := f.Symbols()
	i := slices.IndexFunc(all, func(s elf.Symbol) bool { return s.Name == name })
	if err != nil || i < 0 {
		t.Fatalf("%s of %s: %v", name, path, err)
	}
	return arch.Addr(all[i].Value)
}
