package bpf

import (
	"encoding/binary"
	"fmt"
	"slices"

	"kprobe/bpf/layout"
	"kprobe/bpf/printk"
)

// call runs a helper: arguments in R1 to R5, the answer in R0.
func (vm *VM) call(slot int) (bad string) {
	r, env := &vm.regs, &vm.Env
	c := vm.Proof.Calls[slot]
	if c == nil {
		return "a call that was not proved"
	}
	// mem is memory that an argument points to.
	mem := func(addr, n uint64) []byte {
		b := vm.own(addr, n)
		if b == nil {
			bad = fmt.Sprintf("%s: %d bytes at %#x are no memory of the program", c.Helper.Name, n, addr)
			return make([]byte, min(n, 1<<20))
		}
		return b
	}
	// mapAt is the map an argument points to.
	mapAt := func(addr uint64) *Map {
		if m := vm.mapOf(addr); m != nil && m.Addr == addr {
			return m
		}
		bad = fmt.Sprintf("%s: no map at %#x", c.Helper.Name, addr)
		return nil
	}
	answer := func(e errno) { r[R0] = uint64(-int64(e)) }
	switch c.Helper.ID {
	case FnMapLookupElem, FnMapUpdateElem, FnMapDeleteElem:
		m := mapAt(r[R1])
		if m == nil {
			return bad
		}
		key := append([]byte(nil), mem(r[R2], uint64(m.Spec.KeySize))...)
		if bad != "" {
			return bad
		}
		switch c.Helper.ID {
		case FnMapLookupElem:
			r[R0] = 0
			if elem, ok := m.find(key); ok {
				r[R0] = m.Addr + m.valueOff(elem, env.Slot%int(m.slots))
			}
		case FnMapUpdateElem:
			value := append([]byte(nil), mem(r[R3], uint64(m.Spec.ValueSize))...)
			if bad == "" {
				answer(m.update(key, value, r[R4], env.Slot, false))
			}
		case FnMapDeleteElem:
			answer(m.remove(key))
		}

	case FnMapWalk:
		m := mapAt(r[R1])
		if m == nil {
			return bad
		}
		position, key := mem(r[R2], 8), mem(r[R3], uint64(m.Spec.KeySize))
		r[R0] = 0
		for bad == "" {
			elem := binary.LittleEndian.Uint64(position)
			if elem >= uint64(m.elems) {
				break
			}
			binary.LittleEndian.PutUint64(position, elem+1)
			if m.keyAt(uint32(elem), key) {
				r[R0] = m.Addr + m.valueOff(uint32(elem), env.Slot%int(m.slots))
				break
			}
		}

	case FnProbeRead, FnProbeReadUser, FnProbeReadKernel:
		answer(0)
		if dst := mem(r[R1], r[R2]); bad == "" && (vm.beside(c) || !vm.read(r[R3], dst)) {
			clear(dst)
			answer(EFAULT)
		}
	case FnProbeWriteUser:
		answer(0)
		if src := mem(r[R2], r[R3]); bad == "" && len(src) > 0 && (env.Write == nil || env.Write(r[R1], src) != nil) {
			answer(EFAULT)
		}
	case FnProbeReadStr, FnProbeReadUserStr, FnProbeReadKernelStr:
		if dst := mem(r[R1], r[R2]); bad == "" {
			n, ok := vm.readString(r[R3], dst)
			r[R0] = uint64(n)
			if !ok || vm.beside(c) {
				clear(dst)
				answer(EFAULT)
			}
		}

	case FnKtimeGetNs, FnKtimeGetBootNs, FnKtimeGetCoarseNs:
		r[R0] = env.Now(c.Helper.ID)
	case FnGetPrandomU32:
		r[R0] = uint64(env.Random())
	case FnGetSmpProcessorID:
		r[R0] = uint64(env.CPU)
	case FnGetCurrentPidTgid:
		r[R0] = env.PidTgid
	case FnGetCurrentUidGid:
		r[R0] = env.UidGid
	case FnGetCurrentTask:
		r[R0] = env.Task
	case FnGetFuncIP:
		r[R0] = env.FuncIP
	case FnGetAttachCookie:
		r[R0] = env.Cookie
	case FnCallData:
		if r[R0] = env.CallDataAddr; r[R2] > uint64(len(env.CallData)) {
			return fmt.Sprintf("call_data: %d bytes, and the call has %d", r[R2], len(env.CallData))
		}
	case FnCallWord:
		if r[R0] = env.CallDataAddr; len(env.CallData) < 8 {
			return fmt.Sprintf("call_word: the call has %d bytes", len(env.CallData))
		}
	case FnVector:
		if answer(0); env.Vector != nil {
			r[R0] = env.Vector(r[R1] - 1)
		}
	case FnGetCurrentComm:
		if dst := mem(r[R1], r[R2]); bad == "" {
			clear(dst)
			copy(dst[:len(dst)-1], env.Comm)
			answer(0)
		}

	case FnTracePrintk, FnTraceVprintk:
		p := Printk{Thread: uint32(env.PidTgid), Format: printk.CString(mem(r[R1], min(r[R2], MaxPrintk)))}
		if c.Helper.ID == FnTracePrintk {
			p.Args = make([]uint64, 3)
			copy(p.Args[:c.Set-2], r[R3:])
		} else {
			for b := mem(r[R3], min(r[R4], 8*MaxPrintkOf)); len(b) >= 8; b = b[8:] {
				p.Args = append(p.Args, binary.LittleEndian.Uint64(b))
			}
		}
		if bad == "" && env.Trace != nil {
			p.Texts = vm.texts(&p)
			env.Trace(p)
		}
		r[R0] = r[R2]

	case FnPerfEventOutput:
		m := mapAt(r[R2])
		data := mem(r[R4], r[R5])
		switch {
		case bad != "":
		case r[R3]>>32 != 0:
			answer(EINVAL)
		case !m.output(env.Slot, data):
			answer(ENOSPC)
		default:
			answer(0)
		}
	case FnRingbufOutput:
		m := mapAt(r[R1])
		data := mem(r[R2], r[R3])
		switch {
		case bad != "":
		case r[R3] > uint64(m.ringSize)-layout.RecordHeader:
			answer(E2BIG)
		case !m.output(env.Slot, data):
			answer(EAGAIN)
		default:
			answer(0)
		}
	case FnRingbufReserve:
		if m := mapAt(r[R1]); m != nil {
			off, ok := m.reserve(env.Slot, r[R2])
			r[R0] = 0
			if ok {
				r[R0] = m.Addr + off
				vm.records = append(vm.records, openRecord{m, off, r[R2]})
			}
		}
	case FnRingbufSubmit, FnRingbufDiscard:
		open := slices.IndexFunc(vm.records, func(o openRecord) bool { return o.m.Addr+o.off == r[R1] })
		if open < 0 {
			return fmt.Sprintf("%s: no record at %#x", c.Helper.Name, r[R1])
		}
		vm.records[open].m.finish(vm.records[open].off, c.Helper.ID == FnRingbufDiscard)
		vm.records = slices.Delete(vm.records, open, open+1)

	case FnGetStackid:
		m := mapAt(r[R2])
		switch flags := r[R3]; {
		case bad != "":
		case flags&^(stackSkip|stackUser|stackFast|stackReuse|StackEntry) != 0:
			answer(EINVAL)
		default:
			ips := vm.trail(int(flags&stackSkip), int(m.Spec.ValueSize/8), flags&StackEntry != 0)
			if len(ips) == 0 {
				answer(EFAULT)
				break
			}
			id, e := m.trace(ips, flags)
			if r[R0] = uint64(id); e != 0 {
				answer(e)
			}
		}
	case FnMapNext:
		m := mapAt(r[R1])
		if m == nil {
			return bad
		}
		if dst := mem(r[R2], r[R3]); bad == "" {
			r[R0] = m.next(dst, r[R4])
		}
	case FnOverrideReturn:
		vm.res.Override, vm.res.Return = true, r[R2]
		answer(0)
	default:
		return c.Helper.Name + " is not there"
	}
	return bad
}

// texts reads those that a printed line asks for.
func (vm *VM) texts(p *Printk) (texts []string) {
	n := 0
	for c := range printk.Conversions(p.Format) {
		if n == len(p.Args) {
			break
		}
		if c.Verb == 's' {
			b := make([]byte, PrintkText)
			if _, ok := vm.readString(p.Args[n], b); ok {
				texts = append(texts, printk.CString(b))
			} else {
				texts = append(texts, printk.Unreadable)
			}
		}
		n++
	}
	return texts
}

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
