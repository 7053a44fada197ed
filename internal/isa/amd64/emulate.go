package amd64

import (
	"encoding/binary"
	"errors"
	"fmt"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
)

// The work of branches, done on saved registers. This is the complete set of
// what Place emulates: everything else runs on the CPU. Each emulation first
// finds out whether it can, and changes memory and registers last.

type emulation = func(r *arch.Regs, mem arch.Memory) error

// Emulation gives up where the CPU would fault or change the segment: then
// the slot, where there is one, shows the program what really happens.
var (
	errNotCanonical = errors.New("branch to a non-canonical address")
	errFar          = errors.New("far branch to another segment")
	errNullSegment  = errors.New("memory of a null segment")
	errFlags        = errors.New("return that changes more than a program may")
)

// FLAGS bits.
const (
	flagCF = 1 << 0
	flagPF = 1 << 2
	flagAF = 1 << 4
	flagZF = 1 << 6
	flagSF = 1 << 7
	flagTF = 1 << 8
	flagDF = 1 << 10
	flagOF = 1 << 11
	flagNT = 1 << 14
	flagRF = 1 << 16
	flagAC = 1 << 18
	flagID = 1 << 21
)

// holds evaluates condition cc, the low four bits of a Jcc opcode. The lowest
// bit negates the condition that the other three select.
func holds(cc byte, flags uint64) bool {
	var yes bool
	less := flags&flagSF != 0 != (flags&flagOF != 0)
	switch cc >> 1 {
	case 0:
		yes = flags&flagOF != 0
	case 1:
		yes = flags&flagCF != 0
	case 2:
		yes = flags&flagZF != 0
	case 3:
		yes = flags&(flagCF|flagZF) != 0
	case 4:
		yes = flags&flagSF != 0
	case 5:
		yes = flags&flagPF != 0
	case 6:
		yes = less
	case 7:
		yes = less || flags&flagZF != 0
	}
	return yes != (cc&1 != 0)
}

// setPC goes on at to. A jump to an address that is not canonical faults
// before it jumps. The check is the one of 4-level paging: where 5 levels
// allow more it errs to the safe side.
func (m *machine) setPC(r *arch.Regs, to uint64) error {
	if m.mode == 64 && uint64(int64(to)<<16>>16) != to {
		return fmt.Errorf("%w %#x", errNotCanonical, to)
	}
	r[arch.IP] = uint64(m.cut(arch.Addr(to)))
	return nil
}

func (m *machine) emulateJump(to arch.Addr) emulation {
	return func(r *arch.Regs, _ arch.Memory) error { return m.setPC(r, uint64(to)) }
}

func (p *placement) emulateJcc(cc byte) emulation {
	m, next, target := p.machine, uint64(p.next), uint64(p.target)
	return func(r *arch.Regs, _ arch.Memory) error {
		if holds(cc, r[arch.FLAGS]) {
			return m.setPC(r, target)
		}
		return m.setPC(r, next)
	}
}

// emulateLoop does loopne, loope, loop and jrcxz (E0 to E3). The address size
// is the width of the counter; a 32-bit result clears the upper half of RCX as
// every 32-bit result does, a 16-bit one keeps the rest.
func (p *placement) emulateLoop() emulation {
	m, next, target := p.machine, uint64(p.next), uint64(p.target)
	op, width := p.in.Opcode, 8*uint(p.in.AddrSize)
	mask := ^uint64(0) >> (64 - width)
	return func(r *arch.Regs, _ arch.Memory) error {
		taken, cx := false, r[arch.CX]
		if op == 0xe3 {
			taken = cx&mask == 0
		} else {
			zero := r[arch.FLAGS]&flagZF != 0
			count := (cx - 1) & mask
			taken = count != 0 && (op == 0xe2 || zero == (op == 0xe1))
			if width == 16 {
				cx = cx&^mask | count
			} else {
				cx = count
			}
		}
		to := next
		if taken {
			to = target
		}
		if err := m.setPC(r, to); err != nil {
			return err
		}
		r[arch.CX] = cx
		return nil
	}
}

// operand is the r/m operand of an indirect branch.
type operand struct {
	reg               arch.Reg // the register itself, or NoReg for memory
	base, index       arch.Reg // NoReg where there is none
	segment, selector arch.Reg // base and selector of FS or GS, or NoReg
	shift             uint     // of the index
	disp              uint64
	mask              uint64 // of the address size
}

func (p *placement) operand() operand {
	in := &p.in
	o := operand{reg: arch.NoReg, base: arch.NoReg, index: arch.NoReg, segment: arch.NoReg}
	rm, mod := in.ModRM&7, in.ModRM>>6
	if mod == 3 {
		o.reg = extended(rm, in.Rex&rexB)
		return o
	}
	o.mask = ^uint64(0) >> (64 - 8*uint(in.AddrSize))
	switch {
	case in.Prefix&PrefixFS != 0:
		o.segment, o.selector = arch.FSBase, arch.FS
	case in.Prefix&PrefixGS != 0:
		o.segment, o.selector = arch.GSBase, arch.GS
	}
	if in.relOperand() {
		o.disp = uint64(p.target)
		return o
	}
	o.disp = uint64(p.disp())
	if in.HasSIB {
		rm = in.SIB & 7
		if index := in.SIB >> 3 & 7; index != numSP || in.Rex&rexX != 0 {
			o.index, o.shift = extended(index, in.Rex&rexX), uint(in.SIB>>6)
		}
	}
	if rm != numBP || mod != 0 {
		o.base = extended(rm, in.Rex&rexB)
	}
	return o
}

// extended is the register of a 3-bit field and its REX bit.
func extended(field, rex byte) arch.Reg {
	if rex != 0 {
		field |= 8
	}
	return x86.Reg(field).Arch()
}

// address computes the address of a memory operand. Segment bases other than those of FS and GS are
// 0; these two the target has to know in 32-bit mode as well, where a null selector in them faults.
func (m *machine) address(o *operand, r *arch.Regs) (arch.Addr, error) {
	a := o.disp
	if o.base != arch.NoReg {
		a += r[o.base]
	}
	if o.index != arch.NoReg {
		a += r[o.index] << o.shift
	}
	a &= o.mask
	if o.segment != arch.NoReg {
		if m.mode == 32 && r[o.selector]&^3 == 0 {
			return 0, errNullSegment
		}
		a += r[o.segment]
	}
	return m.cut(arch.Addr(a)), nil
}

// value reads the operand, a word of the mode's width.
func (m *machine) value(o *operand, r *arch.Regs, mem arch.Memory) (uint64, error) {
	if o.reg != arch.NoReg {
		return r[o.reg], nil
	}
	a, err := m.address(o, r)
	if err != nil {
		return 0, err
	}
	return m.load(mem, a, m.facts.PtrSize)
}

func (m *machine) load(mem arch.Memory, a arch.Addr, size int) (uint64, error) {
	var b [8]byte
	if err := mem.ReadAt(a, b[:size]); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b[:]), nil
}

func (p *placement) emulateIndirectJump() emulation {
	m, o := p.machine, p.operand()
	return func(r *arch.Regs, mem arch.Memory) error {
		to, err := m.value(&o, r, mem)
		if err != nil {
			return err
		}
		return m.setPC(r, to)
	}
}

// callTo pushes next and goes to to.
func (m *machine) callTo(r *arch.Regs, mem arch.Memory, to uint64, next arch.Addr) error {
	after := *r
	if err := m.setPC(&after, to); err != nil {
		return err
	}
	sp := m.cut(r.Addr(arch.SP) - arch.Addr(m.facts.PtrSize))
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(next))
	if err := mem.WriteAt(sp, b[:m.facts.PtrSize]); err != nil {
		return err
	}
	after[arch.SP] = uint64(sp)
	*r = after
	return nil
}

func (p *placement) emulateCall() emulation {
	m, next, target := p.machine, p.next, uint64(p.target)
	return func(r *arch.Regs, mem arch.Memory) error { return m.callTo(r, mem, target, next) }
}

func (p *placement) emulateIndirectCall() emulation {
	m, o, next := p.machine, p.operand(), p.next
	return func(r *arch.Regs, mem arch.Memory) error {
		to, err := m.value(&o, r, mem)
		if err != nil {
			return err
		}
		return m.callTo(r, mem, to, next)
	}
}

// popped is the immediate of ret: how much more it takes off the stack.
func (p *placement) popped() uint64 {
	if p.in.ImmSize != 2 {
		return 0
	}
	return uint64(binary.LittleEndian.Uint16(p.raw[p.in.ImmOff:]))
}

func (p *placement) emulateReturn() emulation {
	m, drop := p.machine, p.popped()
	return func(r *arch.Regs, mem arch.Memory) error {
		to, err := m.load(mem, r.Addr(arch.SP), m.facts.PtrSize)
		if err != nil {
			return err
		}
		if err := m.setPC(r, to); err != nil {
			return err
		}
		r[arch.SP] = uint64(m.cut(arch.Addr(r[arch.SP] + uint64(m.facts.PtrSize) + drop)))
		return nil
	}
}

// farSize is the operand size of far branches: 4 bytes in 64-bit mode too.
func (p *placement) farSize() int {
	switch {
	case p.in.Rex&rexW != 0:
		return 8
	case p.in.Prefix&PrefixOpSize != 0:
		return 2
	}
	return 4
}

// words loads n words of size bytes each, in order.
func (m *machine) words(mem arch.Memory, a arch.Addr, size int, w []uint64) error {
	for i := range w {
		var err error
		if w[i], err = m.load(mem, m.cut(a+arch.Addr(i*size)), size); err != nil {
			return err
		}
	}
	return nil
}

// sameSegment tells that loading the selector into reg changes nothing.
func sameSegment(r *arch.Regs, reg arch.Reg, selector uint64) error {
	if uint16(selector) != uint16(r[reg]) {
		return fmt.Errorf("%w %#x", errFar, uint16(selector))
	}
	return nil
}

func (p *placement) emulateFarReturn() emulation {
	m, size, drop := p.machine, p.farSize(), p.popped()
	return func(r *arch.Regs, mem arch.Memory) error {
		var w [2]uint64 // offset, selector
		if err := m.words(mem, r.Addr(arch.SP), size, w[:]); err != nil {
			return err
		}
		if err := sameSegment(r, arch.CS, w[1]); err != nil {
			return err
		}
		if err := m.setPC(r, w[0]); err != nil {
			return err
		}
		r[arch.SP] = uint64(m.cut(arch.Addr(r[arch.SP] + uint64(2*size) + drop)))
		return nil
	}
}

// emulateFarJump does jmp m16:32 and, in 32-bit mode, jmp ptr16:32.
func (p *placement) emulateFarJump() emulation {
	m, size := p.machine, p.farSize()
	if p.is(MapOneByte, 0xea) {
		var imm [8]byte
		n := copy(imm[:], p.raw[p.in.ImmOff:])
		offset := binary.LittleEndian.Uint64(imm[:]) << (64 - 8*size) >> (64 - 8*size)
		selector := uint64(binary.LittleEndian.Uint16(imm[n-2:]))
		return func(r *arch.Regs, _ arch.Memory) error {
			if err := sameSegment(r, arch.CS, selector); err != nil {
				return err
			}
			return m.setPC(r, offset)
		}
	}
	o := p.operand()
	return func(r *arch.Regs, mem arch.Memory) error {
		a, err := m.address(&o, r)
		if err != nil {
			return err
		}
		offset, err := m.load(mem, a, size)
		if err != nil {
			return err
		}
		selector, err := m.load(mem, m.cut(a+arch.Addr(size)), 2)
		if err != nil {
			return err
		}
		if err := sameSegment(r, arch.CS, selector); err != nil {
			return err
		}
		return m.setPC(r, offset)
	}
}

// iretFlags are the flags that iret loads in a program: not IF and IOPL, and
// not the virtual ones.
const iretFlags = flagCF | flagPF | flagAF | flagZF | flagSF | flagTF | flagDF | flagOF | flagNT | flagRF | flagAC | flagID

// emulateIret does the return of a program to itself, as user-level context switches use it. The
// kernel's uses of iret are not emulated.
func (p *placement) emulateIret() emulation {
	m, size := p.machine, p.farSize()
	n := 5 // IP, CS, flags, SP, SS
	if m.mode == 32 {
		n = 3 // without a change of privilege the stack stays
	}
	return func(r *arch.Regs, mem arch.Memory) error {
		if r[arch.CS]&3 != 3 || r[arch.FLAGS]&flagNT != 0 {
			return errFlags
		}
		var w [5]uint64
		if err := m.words(mem, r.Addr(arch.SP), size, w[:n]); err != nil {
			return err
		}
		if err := sameSegment(r, arch.CS, w[1]); err != nil {
			return err
		}
		sp := r[arch.SP] + uint64(n*size)
		if n == 5 {
			if err := sameSegment(r, arch.SS, w[4]); err != nil {
				return err
			}
			sp = w[3]
		}
		if err := m.setPC(r, w[0]); err != nil {
			return err
		}
		mask := uint64(iretFlags)
		if size == 2 {
			mask &= 0xffff
		}
		r[arch.FLAGS] = r[arch.FLAGS]&^mask | w[2]&mask
		r[arch.SP] = uint64(m.cut(arch.Addr(sp)))
		return nil
	}
}
