package bpf

import "encoding/binary"

// beside tells whether a helper's bounded read leaves the context. Nothing is no read.
func (vm *VM) beside(c *HelperCall) bool {
	return c.Bounded && vm.regs[R2] != 0 && part(vm.regs[R3], vm.regs[R2], vm.Ctx, vm.ctx) == nil
}

// read copies memory of the target, the program's own included.
func (vm *VM) read(addr uint64, to []byte) bool {
	if len(to) == 0 {
		return true
	}
	if b := vm.Memory(addr, uint64(len(to))); b != nil {
		copy(to, b)
		return true
	}
	return vm.Env.Read != nil && vm.Env.Read(addr, to) == nil
}

// readString copies up to and with a NUL, as strncpy_from_user_nofault does. A longer text is cut,
// with a NUL at the end. No page is touched behind the NUL's.
func (vm *VM) readString(addr uint64, to []byte) (n int, ok bool) {
	const page = 4096
	for n < len(to) {
		at := addr + uint64(n)
		part := to[n:min(len(to), n+int(page-at%page))]
		buf := make([]byte, len(part))
		if !vm.read(at, buf) {
			// The program's own memory may end within a page, behind the NUL.
			part, buf = part[:1], buf[:1]
			if !vm.read(at, buf) {
				return 0, false
			}
		}
		for i, c := range buf {
			if part[i] = c; c == 0 {
				return n + i + 1, true
			}
		}
		n += len(part)
	}
	if n > 0 {
		to[n-1] = 0
	}
	return n, true
}

// trail is the stack that get_stackid asks for.
func (vm *VM) trail(skip, limit int, entry bool) []uint64 {
	if vm.Env.Stack == nil {
		return vm.walk(skip, limit, entry)
	}
	ips := vm.Env.Stack(skip + limit)
	return ips[min(skip, len(ips)):]
}

// walk is get_stackid's: the PC, then the return addresses of the chain of frame
// pointers, which ends at the first that cannot be read, is not above the last or
// is no multiple of the word; up to limit behind the skipped. For entry see StackEntry.
func (vm *VM) walk(skip, limit int, entry bool) (ips []uint64) {
	c := vm.Proof.Program.PtRegs()
	word := func(b []byte) uint64 {
		if c.Word == 4 {
			return uint64(binary.LittleEndian.Uint32(b))
		}
		return binary.LittleEndian.Uint64(b)
	}
	ip, fp := word(vm.ctx[c.PC*c.Word:]), word(vm.ctx[c.FP*c.Word:])
	for n := 0; len(ips) < limit; n++ {
		if n >= skip {
			ips = append(ips, ip)
		}
		frame := make([]byte, 2*c.Word)
		if entry && n == 0 {
			if !vm.read(word(vm.ctx[c.SP*c.Word:]), frame[:c.Word]) {
				break
			}
			if ip = word(frame); ip == 0 {
				break
			}
			continue
		}
		if fp == 0 || fp%uint64(c.Word) != 0 || !vm.read(fp, frame) {
			break
		}
		up := word(frame)
		if ip = word(frame[c.Word:]); ip == 0 {
			break
		}
		if up <= fp {
			up = 0
		}
		fp = up
	}
	return ips
}
