package symbol

import (
	"debug/elf"
	"encoding/binary"
)

// machine has what the files of one machine have of their own. On one without a record imports are not
// found, and everything else works.
type machine struct {
	relocs relocTypes

	// stub gives the slot of the GOT that a stub's indirect jump of 6 bytes goes by; next is the address
	// behind it. nil where stubs are not known.
	stub func(f *File, jump []byte, next uint64) (slot uint64, ok bool)

	localEntries bool // symbols tell how far from them calls of the same file come
	guarded      bool // code may be made for memory where indirect branches need landing pads
	frames       bool // rules for stacks are read
}

var machines = map[elf.Machine]*machine{
	elf.EM_X86_64: {
		relocs: relocTypes{
			uint32(elf.R_X86_64_GLOB_DAT), uint32(elf.R_X86_64_JMP_SLOT),
			uint32(elf.R_X86_64_RELATIVE), uint32(elf.R_X86_64_IRELATIVE),
		},
		stub: func(_ *File, jump []byte, next uint64) (uint64, bool) {
			// jmp *disp32(%rip)
			return next + uint64(int64(int32(binary.LittleEndian.Uint32(jump[2:])))), jump[1] == 0x25
		},
		frames: true,
	},
	elf.EM_386: {
		relocs: relocTypes{
			uint32(elf.R_386_GLOB_DAT), uint32(elf.R_386_JMP_SLOT),
			uint32(elf.R_386_RELATIVE), uint32(elf.R_386_IRELATIVE),
		},
		stub: func(f *File, jump []byte, _ uint64) (uint64, bool) {
			disp := binary.LittleEndian.Uint32(jump[2:])
			switch jump[1] {
			case 0x25: // jmp *addr32
				return uint64(disp), true
			case 0xa3: // jmp *disp32(%ebx), with the GOT's address in ebx
				return uint64(uint32(f.dynamic().tags[elf.DT_PLTGOT]) + disp), true
			}
			return 0, false
		},
	},
	elf.EM_AARCH64: {
		relocs: relocTypes{
			uint32(elf.R_AARCH64_GLOB_DAT), uint32(elf.R_AARCH64_JUMP_SLOT),
			uint32(elf.R_AARCH64_RELATIVE), uint32(elf.R_AARCH64_IRELATIVE),
		},
		guarded: true,
	},
	// RISC-V has no GLOB_DAT: its GOT entries are plain R_RISCV_64.
	elf.EM_RISCV: {
		relocs: relocTypes{
			uint32(elf.R_RISCV_64), uint32(elf.R_RISCV_JUMP_SLOT),
			uint32(elf.R_RISCV_RELATIVE), 58, /* R_RISCV_IRELATIVE */
		},
	},
	elf.EM_PPC64: {
		relocs: relocTypes{
			uint32(elf.R_PPC64_GLOB_DAT), uint32(elf.R_PPC64_JMP_SLOT),
			uint32(elf.R_PPC64_RELATIVE), uint32(elf.R_PPC64_IRELATIVE),
		},
		localEntries: true,
	},
}

// on is the record of the file's machine.
func (f *File) on() *machine {
	if m := machines[f.elf.Machine]; m != nil {
		return m
	}
	return &machine{}
}

// relocTypes are one machine's names for the relocations that matter here.
type relocTypes struct {
	globDat, jumpSlot, relative, irelative uint32
}
