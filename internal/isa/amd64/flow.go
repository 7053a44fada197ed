package amd64

import "kprobe/internal/isa"

// prefixBytes are the legacy prefixes.
var prefixBytes = map[byte]uint16{
	0x66: PrefixOpSize, 0x67: PrefixAddrSize, 0xf0: PrefixLock, 0xf2: PrefixRepne, 0xf3: PrefixRep,
	0x2e: PrefixCS, 0x36: PrefixSS, 0x3e: PrefixDS, 0x26: PrefixES, 0x64: PrefixFS, 0x65: PrefixGS,
}

// flowRows give the flow of opcodes that do more than go on, if the opcode alone tells it. Rows
// with isa.Next depend on ModRM or prefixes: see classify.
var flowRows = []struct {
	flow           isa.Flow
	oneByte, map0F string
}{
	{isa.CondJump, "70-7f e0-e3", "80-8f"},
	{isa.Jump, "e9 eb", ""},
	{isa.Call, "e8", ""},
	{isa.IndirectJump, "ea", ""},
	{isa.IndirectCall, "9a", ""},
	{isa.Return, "c2 c3 ca cb", ""},
	{isa.Syscall, "", "05 34"},
	{isa.Break, "cc", ""},
	{isa.Trap, "cd ce f1", ""},
	{isa.Undefined, "", "0b b9 ff"},
	{isa.Privileged, "6c-6f cf e4-e7 ec-ef f4 fa fb", "06-09 20-24 26 30 32 35 37 aa"},
	{isa.Next, "c7 ff", "00 01 78 79 ae c7"},
}

// classify sets the flow of an instruction that has attrFlow, and corrects attributes that depend
// on its ModRM byte.
func (i *Inst) classify(a attr, long bool) attr {
	if i.Map > Map0F || i.Enc != Legacy {
		return a
	}
	i.Flow = flowOf[i.Map][i.Opcode]
	if i.Flow != isa.Next {
		return a
	}
	reg, mem := i.ModRM>>3&7, i.ModRM < 0xc0
	switch {
	case i.Map == MapOneByte && i.Opcode == 0xff:
		switch reg {
		case 2, 3:
			i.Flow = isa.IndirectCall
		case 4, 5:
			i.Flow = isa.IndirectJump
		}
		if long && i.OpSize == 4 && (reg == 2 || reg == 4 || reg == 6) {
			i.OpSize = 8 // near branches and push, not inc, dec and far ones
		}
	case i.Map == MapOneByte && i.Opcode == 0xc7:
		if reg == 7 { // xbegin, whose immediate is where an abort goes
			i.Flow = isa.CondJump
			a |= attrRel
		}
	case i.privileged(reg, mem):
		i.Flow = isa.Privileged
	case i.Opcode == 0x01 && i.ModRM == 0xec && i.PP == 2: // uiret
		i.Flow = isa.Return
	}
	return a
}

// privileged tells whether an instruction of map 0F whose ModRM byte decides
// faults outside the kernel.
func (i *Inst) privileged(reg byte, mem bool) bool {
	switch i.Opcode {
	case 0x00:
		return reg == 2 || reg == 3 // lldt, ltr
	case 0x78, 0x79:
		return i.PP == 0 // vmread, vmwrite; the others are SSE4a
	case 0xae:
		return i.PP == 2 && mem && reg == 6 // clrssbsy
	case 0xc7:
		return mem && (reg == 3 || reg >= 5) // xrstors, xsaves, vmptrld ...
	case 0x01:
		if mem {
			return reg == 2 || reg == 3 || reg >= 6 || // lgdt, lidt, lmsw, invlpg
				reg == 5 && i.PP == 0
		}
		switch i.ModRM {
		case 0xd0, 0xd4, 0xd5, 0xd6, 0xd7, 0xf9, 0xfa, 0xfb, 0xfc, 0xfd:
			return false // xgetbv, vmfunc, xend, xtest, enclu, rdtscp, monitorx, mwaitx, clzero, rdpru
		case 0xe8:
			return i.PP == 2 // setssbsy; else serialize
		}
		return reg != 4 && reg != 5 // smsw, rdpkru, stui ...; the rest is the kernel's or a hypervisor's
	}
	return false
}
