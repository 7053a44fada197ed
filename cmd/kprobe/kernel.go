package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/target/gdbremote"
	"kprobe/target/kernel"
)

// guest says where a kernel is to be found; the zero value says that none is meant.
type guest struct {
	at      string // a folder of kprobe vm's, or a GDB stub's address
	ram     string
	window  string
	symbols string

	overrideAny bool
}

// kernelFlag lets the verb have a kernel.
func (r *request) kernelFlag(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&r.kernel.at, "kernel", "k", "", "the kernel at `PLACE`: a folder of kprobe vm, or a GDB stub: unix:SOCKET, tcp:HOST:PORT")
	f.StringVar(&r.kernel.ram, "ram", "", "`FILE` that shares the kernel's memory (QEMU: memory-backend-file,share=on)")
	f.StringVar(&r.kernel.window, "window", "", "`FILE` behind a device of the guest's (QEMU: ivshmem-plain), for code that runs in the kernel")
	f.StringVar(&r.kernel.symbols, "symbols", "", "take the kernel's symbols from `FILE` (System.map, vmlinux, bzImage, a copy of /proc/kallsyms), rather than out of its memory")
}

// overrideFlag lets the verb's programs override what the kernel does not allow its own to.
func (r *request) overrideFlag(c *cobra.Command) {
	c.Flags().BoolVar(&r.kernel.overrideAny, "override-any", false, "let programs give results in place of any function of a kernel, and not only of those that it lists as such that may fail")
}

// address is that of its stub.
func (g guest) address() (address string, folder bool) {
	if st, err := os.Stat(g.at); err == nil && st.IsDir() {
		return "unix:" + filepath.Join(g.at, "gdb"), true
	}
	return g.at, false
}

// dial finds the kernel.
func (g guest) dial() (*kernel.Target, error) {
	address, folder := g.address()
	o := &gdbremote.Options{RAM: g.ram, Window: g.window, Symbols: g.symbols, OverrideAny: g.overrideAny}
	if folder {
		for name, o := range map[string]*string{"ram": &o.RAM, "window": &o.Window} {
			path := filepath.Join(g.at, name)
			if _, err := os.Stat(path); err == nil && *o == "" {
				*o = path // else the stub is asked for all of it
			}
		}
	}
	return kernel.Dial(address, o)
}

// open opens a session on a kernel.
func (g guest) open(p *placing, o *kprobe.Options) (*kprobe.Session, error) {
	k, err := g.dial()
	if err != nil {
		return nil, err
	}
	s, err := p.open(k, o)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("kernel %s: %w", g.at, err), ignoreClosed(k.Close()))
	}
	return s, nil
}

// lasted is an error where a kernel is over before its session is: the machine was reset, or has ended. Why was reported then. A process
// may end.
func lasted(s *kprobe.Session) error {
	if _, machine := s.Target().(*kernel.Target); machine {
		if _, over := s.Exited(); over {
			return exitStatus(1)
		}
	}
	return nil
}

// attachKernel opens a tracing's session on a kernel.
func (t *tracing) attachKernel(g guest, o *kprobe.Options) error {
	s, err := g.open(t.placing, o)
	if err == nil {
		t.sessions = append(t.sessions, s)
	}
	return err
}

// look opens a session that only reads.
func (g guest) look() (*kprobe.Session, error) {
	k, err := g.dial()
	if err != nil {
		return nil, err
	}
	s, err := kprobe.Look(k, nil)
	if err != nil {
		k.Close()
	}
	return s, err
}

// sessions are those that others have on the kernel. They have its stub; what
// they tell of their probes is in a file.
func (g guest) sessions() ([]kprobe.SessionState, error) {
	address, _ := g.address()
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if _, err := os.Stat(path); err != nil {
			return nil, fmt.Errorf("kernel %s: %w", g.at, err)
		}
	} else if !strings.HasPrefix(address, "tcp:") {
		return nil, fmt.Errorf("kernel %s: neither a folder of kprobe vm nor unix:SOCKET nor tcp:HOST:PORT", g.at)
	}
	return kprobe.SessionsAt(kernel.Place(address)), nil
}
