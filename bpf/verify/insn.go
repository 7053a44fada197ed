package verify

import "kprobe/bpf"

// An insnCheck holds that an instruction exists and that the fields it does not use are 0.
type insnCheck struct {
	p  *bpf.Program
	pc int
	bpf.Insn
}

func (c *insnCheck) run() error {
	if c.Dst > bpf.R10 || c.Src > bpf.R10 {
		return c.bad("there is no register above r10")
	}
	switch c.Class() {
	case bpf.ClassALU, bpf.ClassALU64:
		return c.writing(c.arithmetic())
	case bpf.ClassLD:
		return c.writing(c.constant())
	case bpf.ClassLDX:
		return c.writing(c.load())
	case bpf.ClassST:
		return c.storeConst()
	case bpf.ClassSTX:
		return c.store()
	}
	return c.jump()
}

func (c *insnCheck) bad(format string, a ...any) error { return c.p.Refuse(c.pc, format, a...) }

func (c *insnCheck) unknown() error { return c.bad("unknown instruction") }

// unused holds that a field is 0.
func (c *insnCheck) unused(wrong bool) error {
	if wrong {
		return c.bad("a field that the instruction does not use is not 0 (dst %d, src %d, offset %d, imm %d)", c.Dst, c.Src, c.Off, c.Imm)
	}
	return nil
}

// writing is of an instruction that is right so far and writes a register.
func (c *insnCheck) writing(err error) error {
	if err == nil && c.Dst == bpf.R10 {
		return c.frameWritten()
	}
	return err
}

func (c *insnCheck) frameWritten() error {
	return c.bad("r10 is the frame pointer and cannot be written: copy it to another register first")
}

func (c *insnCheck) arithmetic() error {
	switch op := c.Alu(); {
	case op == bpf.End:
		if c.Imm != 16 && c.Imm != 32 && c.Imm != 64 {
			return c.bad("byte order of %d bits: 16, 32 and 64 can be swapped", c.Imm)
		}
		if c.Class() == bpf.ClassALU64 && c.X() {
			return c.unknown()
		}
		return c.unused(c.Src != 0 || c.Off != 0)
	case op == bpf.Neg:
		if c.X() {
			return c.unknown()
		}
		return c.unused(c.Src != 0 || c.Off != 0 || c.Imm != 0)
	case op > bpf.End:
		return c.unknown()
	}
	return c.binary()
}

// binary is arithmetic with a second operand.
func (c *insnCheck) binary() error {
	if err := c.unused(c.X() && c.Imm != 0 || !c.X() && c.Src != 0); err != nil {
		return err
	}
	width := int32(64)
	if c.Class() == bpf.ClassALU {
		width = 32
	}
	op := c.Alu()
	divides, shifts := op == bpf.Div || op == bpf.Mod, op == bpf.Lsh || op == bpf.Rsh || op == bpf.Arsh
	variant := c.Off == 0
	if divides {
		variant = variant || c.Off == 1
	} else if op == bpf.Mov && c.X() {
		variant = variant || c.Off == 8 || c.Off == 16 || c.Off == 32 && width == 64
	}
	switch {
	case !variant:
		return c.bad("unknown variant %d of the instruction", c.Off)
	case !c.X() && c.Imm == 0 && divides:
		return c.bad("division by zero")
	case !c.X() && shifts && (c.Imm < 0 || c.Imm >= width):
		return c.bad("shift by %d of %d bits", c.Imm, width)
	}
	return nil
}

// constant is an ld_imm64.
func (c *insnCheck) constant() error {
	if !c.Wide() {
		return c.bad("unknown instruction (loads of packets do not exist here)")
	}
	if c.pc+1 >= len(c.p.Insns) {
		return c.bad("the second half of the ld_imm64 is missing")
	}
	upper := c.p.Insns[c.pc+1].Imm
	switch {
	case c.Off != 0:
		return c.unused(true)
	case c.Src == bpf.LoadImm:
		return nil
	case c.Src == bpf.LoadFunc:
		return c.bad("it takes the address of a function: bpf_loop and bpf_for_each_map_elem call one back, nothing else")
	case c.Src != bpf.LoadMap && c.Src != bpf.LoadMapValue:
		return c.bad("ld_imm64 of kind %d: numbers, maps and values of maps can be loaded", c.Src)
	case c.Imm < 0 || int(c.Imm) >= len(c.p.Maps):
		return c.bad("map %d of %d", c.Imm, len(c.p.Maps))
	case c.Src == bpf.LoadMap:
		return c.unused(upper != 0)
	}
	switch m := c.p.Maps[c.Imm]; {
	case m.Type != bpf.Array:
		return c.bad("address in the value of map %q, which is a %v: only an array's is known", m.Name, m.Type)
	case uint32(upper) >= m.ValueSize:
		return c.bad("offset %d in the value of map %q, which has %d bytes", uint32(upper), m.Name, m.ValueSize)
	}
	return nil
}

func (c *insnCheck) load() error {
	if c.Mode() != bpf.ModeMem && (c.Mode() != bpf.ModeMemSX || c.Size() == 8) {
		return c.unknown()
	}
	return c.unused(c.Imm != 0)
}

func (c *insnCheck) storeConst() error {
	if c.Mode() != bpf.ModeMem {
		return c.unknown()
	}
	return c.unused(c.Src != 0)
}

// store is of a register, or an atomic operation.
func (c *insnCheck) store() error {
	switch {
	case c.Mode() == bpf.ModeMem:
		return c.unused(c.Imm != 0)
	case c.Mode() != bpf.ModeAtomic:
		return c.unknown()
	case c.Size() < 4:
		return c.bad("an atomic operation is on 4 or 8 bytes, not %d", c.Size())
	case !c.Atomic():
		return c.bad("unknown atomic operation %#x", c.Imm)
	case c.Imm&bpf.AtomicFetch != 0 && c.Imm != bpf.AtomicCmpxchg && c.Src == bpf.R10:
		return c.frameWritten()
	}
	return nil
}

func (c *insnCheck) jump() error {
	switch {
	case c.Conditional():
		return c.unused(c.X() && c.Imm != 0 || !c.X() && c.Src != 0)
	case c.Op == bpf.ClassJMP|bpf.Ja:
		return c.unused(c.Dst != 0 || c.Src != 0 || c.Imm != 0)
	case c.Op == bpf.ClassJMP32|bpf.Ja: // a long one
		return c.unused(c.Dst != 0 || c.Src != 0 || c.Off != 0)
	case c.Op == bpf.ClassJMP|bpf.MayGoto:
		return c.unused(c.Dst != 0 || c.Src != 0 || c.Imm != 0)
	case c.Op == bpf.ClassJMP|bpf.Exit:
		return c.unused(c.Dst != 0 || c.Src != 0 || c.Off != 0 || c.Imm != 0)
	case c.Op != bpf.ClassJMP|bpf.Call:
		return c.unknown()
	}
	if err := c.unused(c.Dst != 0 || c.Off != 0); err != nil {
		return err
	}
	switch {
	case c.Src == bpf.CallKernel:
		return c.bad("call of a kernel function: there is no kernel here, use helpers")
	case c.Src > bpf.CallLocal:
		return c.bad("unknown kind of call %d", c.Src)
	}
	return nil
}
