//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/faults"
	"kprobe/internal/tracee"
	"kprobe/target"
)

// openMem opens the process's memory file, anew after an exec: an open one
// stays with the memory it was opened on.
func (p *Process) openMem() error { return p.openMemFor(os.O_RDWR) }

func (p *Process) openMemFor(flag int) error {
	f, err := openOf(p.pid, "mem", flag)
	if err != nil {
		return err
	}
	if old, ok := p.mem.Swap(f).(*os.File); ok {
		old.Close()
	}
	return nil
}

func (p *Process) closeMem() {
	if f, ok := p.mem.Swap((*os.File)(nil)).(*os.File); ok {
		f.Close()
	}
}

// ReadAt fills b from addr, whole or with an error.
func (p *Process) ReadAt(addr arch.Addr, b []byte) error {
	return p.withMem(func(f *os.File) error { return transfer(f, addr, b, (*os.File).ReadAt, "pread", "read") })
}

// WriteAt writes b at addr, whole or with an error. The memory file is used
// because it writes private read-only pages (text) and grows stacks, as
// process_vm_writev does not.
func (p *Process) WriteAt(addr arch.Addr, b []byte) error {
	return p.withMem(func(f *os.File) error { return transfer(f, addr, b, writeMemory, "pwrite", "write") })
}

// withMem has the memory file of the program that is executed now: an exec may replace it
// at any moment.
func (p *Process) withMem(do func(*os.File) error) error {
	for {
		f, _ := p.mem.Load().(*os.File)
		err := do(f)
		if now, _ := p.mem.Load().(*os.File); f == now || !errors.Is(err, os.ErrClosed) {
			return err
		}
	}
}

// transfer moves bytes by a method of the file and never by its bare number: the number may be
// another file's, of another part of the program, as soon as this one has been closed.
func transfer(f *os.File, addr arch.Addr, b []byte, op func(*os.File, []byte, int64) (int, error), call, verb string) error {
	if len(b) == 0 {
		return nil
	}
	if f == nil {
		return target.ErrGone
	}
	err := faults.At(call, 0)
	n := 0
	if err == nil && int64(addr) < 0 {
		err = unix.EINVAL // an offset in no file, as all from 2^63 on
	}
	if err == nil {
		n, err = op(f, b, int64(addr))
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	switch {
	case n == len(b):
		return nil
	case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || n == 0 && err == nil:
		return target.ErrGone // the memory has been given up: nothing can be read there, and nothing written
	case n > 0 || err == unix.EIO || err == unix.EINVAL:
		err = unix.EFAULT // part of the range is not mapped
	}
	return fmt.Errorf("%s %d bytes at %v: %w", verb, len(b), addr, err)
}

// child is a forked process that waits, stopped, to be cleaned and let go. Its
// memory is a copy of the parent's, so the same addresses serve.
type child struct {
	pid    int
	parent *Process // or, inExec, a stand-in: whose addresses are the child's
	mem    *os.File
	inExec bool // it has just executed another program, and is still in that call

	calling *call // the calls that it makes one after the other; nil: it stands where it was born
}

func (c *child) PID() int { return c.pid }

func (c *child) open() *os.File {
	if c.mem == nil {
		c.mem, _ = openOf(c.pid, "mem", os.O_RDWR)
	}
	return c.mem
}

func (c *child) ReadAt(addr arch.Addr, b []byte) error {
	return transfer(c.open(), addr, b, (*os.File).ReadAt, "pread", "read")
}

func (c *child) WriteAt(addr arch.Addr, b []byte) error {
	return transfer(c.open(), addr, b, writeMemory, "pwrite", "write")
}

func (c *child) Regs(r *arch.Regs) error {
	if err := c.back(); err != nil {
		return err
	}
	var u tracee.Registers
	if err := tracee.GetRegs(c.pid, &u); err != nil {
		return tracee.RegsError(err)
	}
	c.parent.abi().ArchRegs(&u, r)
	return nil
}

func (c *child) SetRegs(r *arch.Regs) error {
	if err := c.back(); err != nil {
		return err
	}
	var u tracee.Registers
	c.parent.abi().UserRegs(r, &u)
	return tracee.RegsError(tracee.SetRegs(c.pid, &u))
}

// Free unmaps memory that the child has from its parent.
func (c *child) Free(addr arch.Addr, size int) error {
	unmapped := arch.Range{Start: addr, End: addr + arch.Addr(size)}
	g, err := c.parent.gadgets(c, unmapped)
	if err != nil {
		return err
	}
	if c.calling != nil && c.calling.gadgets != g {
		if err := c.back(); err != nil {
			return err
		}
	}
	_, err = c.remote(c.parent.abi().Munmap, uint64(addr), uint64(size))
	if c.calling != nil && c.calling.gadgets.within(unmapped) {
		return errors.Join(err, c.back()) // it can make no further call there
	}
	return err
}

// ReturnTrapAction implements target.Child.
func (c *child) ReturnTrapAction(ours func(target.Action) bool, old target.Action) error {
	var r tracee.Registers
	if c.calling != nil && c.calling.away {
		r = c.calling.saved
	} else if err := tracee.GetRegs(c.pid, &r); err != nil {
		return tracee.RegsError(err)
	}
	at := scratchBelow(r.SP(), c.parent.arch)
	var saved target.Action
	if err := c.ReadAt(at, saved[:]); err != nil {
		return err
	}
	defer c.WriteAt(at, saved[:])
	abi := c.parent.abi()
	if _, err := c.remote(abi.Sigaction, uint64(unix.SIGTRAP), 0, uint64(at), 8); err != nil {
		return err
	}
	b := make([]byte, abi.ActionSize)
	if err := c.ReadAt(at, b); err != nil {
		return err
	}
	if now := abi.Unpack(b); !ours(now) && !c.parent.tookAway(now) {
		return nil
	}
	if err := c.WriteAt(at, abi.Pack(old)); err != nil {
		return err
	}
	_, err := c.remote(c.parent.abi().Sigaction, uint64(unix.SIGTRAP), uint64(at), 0, 8)
	return err
}

// remote has the child make a call. It stays where it makes calls until back.
func (c *child) remote(nr uint64, args ...uint64) (uint64, error) {
	if c.calling == nil {
		g, err := c.parent.gadgets(c, arch.Range{})
		if err != nil {
			return 0, err
		}
		frame := c.parent.deadMemory() // dead in the parent, dead in its copy
		c.calling = &call{abi: c.parent.abi(), tid: c.pid, tgid: c.pid, gadgets: g, frame: frame, alone: true, memory: c}
	}
	return c.calling.make(nr, args)
}

// back leads the child back to where it was born, with the registers that it had there.
func (c *child) back() error {
	if c.calling == nil {
		return nil
	}
	made := c.calling
	c.calling = nil
	return made.end()
}

func (c *child) Detach() error {
	err := c.back()
	if c.mem != nil {
		c.mem.Close()
	}
	if f, ok := c.parent.mem.Load().(*os.File); c.inExec && ok {
		f.Close()
	}
	if e := tracee.Insist(func() error { return tracee.Request(unix.PTRACE_DETACH, c.pid, 0, 0) }); err == nil {
		err = e
	}
	return err
}
