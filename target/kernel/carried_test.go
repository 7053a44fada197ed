package kernel_test

import (
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// cable is a line to a guest's stub that can be cut: to the stub that looks like a client that was
// killed.
type cable struct {
	address string
	mu      sync.Mutex
	ends    []net.Conn
}

func newCable(t testing.TB, v *vm.VM) *cable {
	t.Helper()
	path := filepath.Join(t.TempDir(), "stub")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	c := &cable{address: "unix:" + path}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			stub, err := net.Dial("unix", strings.TrimPrefix(v.Stub(), "unix:"))
			if err != nil {
				client.Close()
				continue
			}
			c.mu.Lock()
			c.ends = append(c.ends, client, stub)
			c.mu.Unlock()
			for _, way := range [][2]net.Conn{{client, stub}, {stub, client}} {
				go func() {
					io.Copy(way[0], way[1])
					way[0].Close()
				}()
			}
		}
	}()
	t.Cleanup(func() { l.Close(); c.cut() })
	return c
}

func (c *cable) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.ends {
		e.Close()
	}
	c.ends = nil
}

// A controller vanishes while the guest's own return probe has one of our return addresses: the
// next puts the real one back, where the guest keeps it, or as soon as it is there again.
func TestVanishedWhileTheGuestKeeps(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "cd "+tracing+"; echo 'r:x pipe_read' >kprobe_events; echo 1 >events/kprobes/x/enable")
	defer run(t, v, "cd "+tracing+"; echo 0 >events/kprobes/x/enable; echo >kprobe_events")
	for _, carried := range []bool{false, true} {
		t.Run(map[bool]string{false: "kept", true: "carried"}[carried], func(t *testing.T) {
			c := newCable(t, v)
			options := &gdbremote.Options{RAM: v.RAM()}
			k, err := kernel.Dial(c.address, options)
			if err != nil {
				t.Fatal(err)
			}
			s, err := kprobe.Open(k, &kprobe.Options{Unlisted: true, Report: func(err error) { t.Log("reported: ", err) }})
			if err != nil {
				t.Fatal(err)
			}
			hook := k.Kernel().Lookup("rethook_hook")
			prepare, ok := k.Kernel().Table().Addr("arch_rethook_prepare")
			if len(hook) != 1 || !ok {
				t.Fatalf("the guest's return probes are not what they were: %v", hook)
			}
			// Here an address has been taken from its slot and is in none of the task's records
			// yet.
			between := behindCall(t, k, hook[0].Addr, prepare)
			rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "pipe_read"}}
			entered := make(chan struct{}, 100)
			rp.EntryHandler = func(*kprobe.KretprobeInstance, *kprobe.Regs) int {
				if carried { // it comes no further
					if err := k.SetBreak(between); err != nil {
						t.Error(err)
					}
				}
				entered <- struct{}{}
				return 0
			}
			if err := s.RegisterKretprobe(rp); err != nil {
				t.Fatal(err)
			}
			asleep := make(chan error, 1)
			go func() {
				_, err := v.Run(sleep)
				asleep <- err
			}()
			<-entered
			if carried {
				testprog.Until(t, "the guest's probe", v.PID(), func() bool { return anyAt(k, between) })
			} else if err := <-asleep; err != nil {
				t.Fatal(err)
			} else {
				run(t, v, "true") // it sleeps by now
			}
			c.cut()
			<-s.Done()
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			next, err := kernel.Dial(c.address, options)
			if err == nil {
				err = next.Close()
			}
			if err != nil {
				t.Error(err)
			}
			if carried {
				if err := <-asleep; err != nil {
					t.Fatal(err)
				}
			}
			answered(t, v)
		})
	}
}

// anyAt tells whether a CPU stands at an address.
func anyAt(k *kernel.Target, at arch.Addr) bool {
	for _, th := range k.Threads() {
		var r arch.Regs
		if k.Regs(th, &r) == nil && r.Addr(k.Arch().PC) == at {
			return true
		}
	}
	return false
}

// behindCall is the instruction behind a function's call of another.
func behindCall(t *testing.T, k *kernel.Target, start, callee arch.Addr) arch.Addr {
	t.Helper()
	code := make([]byte, 512)
	if err := k.ReadAt(start, code); err != nil {
		t.Fatal(err)
	}
	for off := 0; off < len(code)-16; {
		insn, err := amd64.Decode(code[off:], 64)
		if err != nil {
			t.Fatalf("at %v: %v", start+arch.Addr(off), err)
		}
		call := code[off] == 0xe8
		if off += int(insn.Len); call && start+arch.Addr(off)+arch.Addr(int64(insn.Rel)) == callee {
			return start + arch.Addr(off)
		}
	}
	t.Fatalf("no call of %v", callee)
	return 0
}
