package gdbremote

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/cpu"
)

// ReadAt fills p from addr, whole or with an error. Of a machine it is the memory
// that the CPU last reported sees; of its kernel, any CPU's. Where the kernel and
// programs have address spaces of their own, it is the kernel's.
func (t *Target) ReadAt(addr arch.Addr, p []byte) error {
	return t.still(func() error {
		return memoryError("read", addr, p, t.read(addr, p))
	})
}

// ReadUser is ReadAt for the program that the CPU last reported runs.
func (t *Target) ReadUser(addr arch.Addr, p []byte) error {
	if !t.apart() {
		return t.ReadAt(addr, p)
	}
	return t.still(func() error {
		return memoryError("read", addr, p, t.byPage(addr, p, t.translateUser, t.readPhysical))
	})
}

// WriteAt writes p at addr, whole or with an error. The stub does the write: it knows which CPUs
// may have translated the code that was there.
func (t *Target) WriteAt(addr arch.Addr, p []byte) error {
	return t.change(func() error {
		return memoryError("write", addr, p, t.write(addr, p))
	})
}

func memoryError(verb string, addr arch.Addr, p []byte, err error) error {
	if err != nil {
		err = fmt.Errorf("%s %d bytes at %v: %w", verb, len(p), addr, err)
	}
	return err
}

// read goes through the page tables where the memory is shared, and where the
// stub might take the address for one of the program's.
func (t *Target) read(addr arch.Addr, p []byte) error {
	if t.apart() {
		return t.byPage(addr, p, t.translate, t.readPhysical)
	}
	if t.ram == nil {
		return t.readVirtual(addr, p)
	}
	virtual := addr
	return t.byPage(addr, p, t.translate, func(phys uint64, p []byte) error {
		defer func() { virtual += arch.Addr(len(p)) }()
		if t.ram.read(phys, p) {
			return nil
		}
		return t.readVirtual(virtual, p)
	})
}

// byPage has f go through memory page by page, at its physical addresses: pages
// lie anywhere.
func (t *Target) byPage(addr arch.Addr, p []byte, translate func(arch.Addr) (uint64, error), f func(uint64, []byte) error) error {
	for len(p) > 0 {
		n := min(len(p), int(cpu.PageSize-addr%cpu.PageSize))
		phys, err := translate(addr)
		if err == nil {
			err = f(phys, p[:n])
		}
		if err != nil {
			return err
		}
		addr += arch.Addr(n)
		p = p[n:]
	}
	return nil
}

// readVirtual has the stub read.
func (t *Target) readVirtual(addr arch.Addr, p []byte) error {
	return t.seen(addr, len(p), func(at uint64) error { return t.m(at, p) })
}

func (t *Target) write(addr arch.Addr, p []byte) error {
	if t.apart() {
		return t.byPage(addr, p, t.translate, func(phys uint64, p []byte) error {
			return t.physically(func() error { return t.bigM(phys, p) })
		})
	}
	return t.seen(addr, len(p), func(at uint64) error { return t.bigM(at, p) })
}

// seen lets f use the stub on an address. A CPU that is in user mode may not see
// its kernel (see quirks.go); then we go through the page tables ourselves.
func (t *Target) seen(addr arch.Addr, size int, f func(at uint64) error) error {
	if err := t.choose(t.current); err != nil {
		return err
	}
	err := f(uint64(addr))
	if err == nil || t.program || !t.has.physical || int(addr%cpu.PageSize)+size > cpu.PageSize {
		return err
	}
	if phys, bad := t.translate(addr); bad == nil {
		return t.physically(func() error { return f(phys) })
	}
	return err
}

// m is the request m, and bigM is M, or X where the stub has that.
func (t *Target) m(addr uint64, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), (t.has.packet-8)/2)
		answer, err := t.c.ask(fmt.Sprintf("m%x,%x", addr, n))
		if err != nil {
			return err
		}
		b, err := hex.DecodeString(answer)
		if err != nil || len(b) == 0 || len(b) > n {
			return stubFault("m", answer)
		}
		copy(p, b)
		p, addr = p[len(b):], addr+uint64(len(b))
	}
	return nil
}

func (t *Target) bigM(addr uint64, p []byte) error {
	for len(p) > 0 {
		n := min(len(p), (t.has.packet-64)/2) // in the worst case each byte is two
		request := fmt.Sprintf("M%x,%x:%x", addr, n, p[:n])
		if t.has.binary {
			request = fmt.Sprintf("X%x,%x:%s", addr, n, p[:n])
		}
		answer, err := t.c.ask(request)
		if err != nil {
			return err
		}
		if answer != "OK" {
			return stubFault(request[:1], answer)
		}
		p, addr = p[n:], addr+uint64(n)
	}
	return nil
}

// stubFault turns a stub's error, whose number means nothing, into EFAULT.
func stubFault(request, answer string) error {
	if len(answer) == 3 && answer[0] == 'E' {
		if _, err := strconv.ParseUint(answer[1:], 16, 8); err == nil {
			return syscall.EFAULT
		}
	}
	return refused(request, answer)
}

// physically makes the stub take addresses for physical ones meanwhile.
func (t *Target) physically(f func() error) error {
	if err := t.c.command("Qqemu.PhyMemMode:1"); err != nil {
		return err
	}
	err := f()
	if off := t.c.command("Qqemu.PhyMemMode:0"); err == nil {
		err = off
	}
	return err
}

// ram is the file that holds a guest's memory.
type ram struct {
	*os.File
	size uint64
	base uint64 // the physical address that it begins with
	*cpu.Paging
}

// openRAM finds out where the machine has a file: the bytes that the CPU is about to execute must
// be there. Errors: it is not this machine's memory.
func (t *Target) openRAM(f *os.File) error {
	st, err := f.Stat()
	if err == nil {
		t.ram, err = t.place(f, uint64(st.Size()))
	}
	return err
}

func (t *Target) place(f *os.File, size uint64) (*ram, error) {
	by := cpu.Of(t.arch)
	if err := by.Walks(); err != nil {
		return nil, err
	}
	p := by.Paging
	m := &ram{f, size, p.Bases[0], p}
	if !t.has.physical && len(p.Bases) == 1 {
		return m, nil
	}
	pc, err := t.pc(t.current)
	if err != nil {
		return nil, err
	}
	translate := t.translate
	if away, err := t.elsewhere(t.current); err != nil {
		return nil, err
	} else if away {
		translate = t.translateUser
	}
	phys, err := translate(pc)
	if errors.Is(err, syscall.EFAULT) {
		phys, err = uint64(pc), nil // it runs the firmware, which no table of the kernel's holds
	}
	if errors.Is(err, syscall.ENOTSUP) && len(p.Bases) == 1 {
		return m, nil // it is in pages that each CPU has of its own: the file does not tell
	}
	if err != nil {
		return nil, err
	}
	var stub, file [64]byte
	phys &^= uint64(len(stub) - 1)
	if err := t.physically(func() error { return t.m(phys, stub[:]) }); err != nil {
		return nil, err
	}
	differs := len(p.Bases) > 1
	for _, m.base = range p.Bases {
		if m.read(phys, file[:]) {
			if file == stub {
				return m, nil
			}
			differs = true
		}
	}
	if !differs {
		return m, nil // the CPU is where the file does not tell
	}
	return nil, fmt.Errorf("%s does not hold the memory of this machine", f.Name())
}

// read reads physical memory. It answers false where that is not in the file, or
// it cannot be told where: the stub knows.
func (m *ram) read(phys uint64, p []byte) bool {
	end := phys + uint64(len(p))
	if phys < m.base || end-m.base > m.size || m.SameUpTo != 0 && end > m.SameUpTo || phys < m.Hole.End && end > m.Hole.Start {
		return false
	}
	n, err := m.ReadAt(p, int64(phys-m.base))
	return err == nil && n == len(p)
}
