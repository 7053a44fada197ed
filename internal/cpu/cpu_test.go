package cpu

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"kprobe/arch"
)

// standing is a CPU with registers, page tables and a kernel's memory of the test's.
type standing struct {
	registers map[string]uint64
	tables    map[uint64]uint64 // entries by their physical addresses
	general   arch.Regs
	symbols   map[string]arch.Addr
	memory    map[arch.Addr]uint64
}

func (s *standing) Register(name string) (uint64, error) {
	v, ok := s.registers[name]
	if !ok {
		return 0, fmt.Errorf("no register %s", name)
	}
	return v, nil
}

func (s *standing) Entry(phys uint64) (uint64, error) { return s.tables[phys], nil }

func (s *standing) General() *arch.Regs { return &s.general }

func (s *standing) Symbol(name string) (arch.Addr, bool) { a, ok := s.symbols[name]; return a, ok }

func (s *standing) Word(at arch.Addr) uint64 { return s.memory[at] }

const (
	root = 0x10_0000 // where the first table is
	next = 0x1000    // from one table to the next
	page = 0x7654_3000
)

// Each machine's tables lead to a page through all levels, to a larger one through fewer, and to
// nothing where an entry says so. Without translation an address is physical.
func TestTranslate(t *testing.T) {
	const upper = 0xffff_ffff_8123_4567 // a kernel's, on machines of one space
	amd64 := map[string]uint64{"cr0": cr0Paging, "cr3": root, "cr4": 0, "efer": eferLong}
	arm64 := map[string]uint64{"SCTLR": arm64Enabled, "TCR_EL1": 16<<16 | 2<<30, "TTBR1_EL1": root}
	riscv64 := map[string]uint64{"satp": riscvSv39<<60 | root>>12}
	s390x := map[string]uint64{"pswm": s390xDAT, "cr13": root | 1<<2} // a table of the third regions, then segments
	for _, tt := range []struct {
		name      string
		m         *Machine
		registers map[string]uint64
		addr      arch.Addr
		shifts    []int // of the levels
		bits      int   // of an index
		entry     func(next uint64, level, levels int) uint64
		want      uint64
		err       error
	}{
		{"amd64", AMD64, amd64, upper, []int{39, 30, 21, 12}, 9, func(n uint64, _, _ int) uint64 { return n | entryPresent }, page | 0x567, nil},
		{"amd64, 2 MiB", AMD64, amd64, upper, []int{39, 30, 21}, 9, func(n uint64, l, all int) uint64 {
			if l == all-1 {
				return n&^(2<<20-1) | entryPresent | entryLarge
			}
			return n | entryPresent
		}, page&^(2<<20-1) | 0x3_4567, nil},
		{"amd64, not there", AMD64, amd64, upper, []int{39, 30}, 9, func(n uint64, l, all int) uint64 {
			if l == all-1 {
				return 0
			}
			return n | entryPresent
		}, 0, syscall.EFAULT},
		{"arm64", ARM64, arm64, upper, []int{39, 30, 21, 12}, 9, func(n uint64, _, _ int) uint64 { return n | arm64Valid | arm64Table }, page | 0x567, nil},
		{"arm64, 2 MiB", ARM64, arm64, upper, []int{39, 30, 21}, 9, func(n uint64, l, all int) uint64 {
			if l == all-1 {
				return n&^(2<<20-1) | arm64Valid
			}
			return n | arm64Valid | arm64Table
		}, page&^(2<<20-1) | 0x3_4567, nil},
		{"riscv64", RISCV64, riscv64, upper, []int{30, 21, 12}, 9, func(n uint64, l, all int) uint64 {
			if l == all-1 {
				return n>>12<<riscvEntry | riscvValid | riscvLeaf
			}
			return n>>12<<riscvEntry | riscvValid
		}, page | 0x567, nil},
		{"s390x", S390X, s390x, 0x1_2345_6789, []int{31, 20, 12}, 11, func(n uint64, _, _ int) uint64 { return n }, page | 0x789, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &standing{registers: tt.registers, tables: map[uint64]uint64{}}
			table := uint64(root)
			for level, shift := range tt.shifts {
				leads := table + next
				if level == len(tt.shifts)-1 {
					leads = page
				}
				bits := tt.bits
				if tt.m == S390X && shift == 12 {
					bits = 8 // page tables are smaller
				}
				s.tables[table+uint64(tt.addr)>>shift&(1<<bits-1)*8] = tt.entry(leads, level, len(tt.shifts))
				table = leads
			}
			if got, err := tt.m.Paging.Translate(s, tt.addr); got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("%#x is at %#x, %v; want %#x, %v", uint64(tt.addr), got, err, tt.want, tt.err)
			}
		})
	}
	for _, m := range machines {
		if m.Paging == nil {
			continue
		}
		off := &standing{registers: map[string]uint64{"cr0": 0, "cr3": 0, "cr4": 0, "efer": 0, "SCTLR": 0, "satp": 0, "pswm": 0}}
		if got, err := m.Paging.Translate(off, 0x1234_5678); got != 0x1234_5678 || err != nil {
			t.Errorf("%s, without translation: %#x, %v", m.Arch.Name, got, err)
		}
		if _, err := m.Paging.Translate(&standing{}, 0x1234_5678); err == nil {
			t.Errorf("%s: a register that is not there is no error", m.Arch.Name)
		}
	}
}

// A task is found by a register in the kernel, and not in a program.
func TestTask(t *testing.T) {
	const task = 0xffff_8000_1234_5678
	for _, tt := range []struct {
		m         *Machine
		registers map[string]uint64
		want      arch.Addr
	}{
		{ARM64, map[string]uint64{"cpsr": 0x3c5, "SP_EL0": task}, task},
		{ARM64, map[string]uint64{"cpsr": 0x1000, "SP_EL0": task}, 0},
		{RISCV64, map[string]uint64{"tp": task}, task},
		{RISCV64, map[string]uint64{"tp": 0x3f_1234_5678}, 0},
	} {
		if got, err := tt.m.Kernel.Task(&standing{registers: tt.registers}); got != tt.want || err != nil {
			t.Errorf("%s, %v: %v, %v; want %v", tt.m.Arch.Name, tt.registers, got, err, tt.want)
		}
	}
}

// At the first instruction of a handler, the registers at the instruction that faulted are told, for
// the kernel's own instructions only.
func TestExcepted(t *testing.T) {
	const entry, sp, pc, flags = 0xffff_ffff_8200_0010, 0xffff_c900_0000_1000, 0xffff_ffff_8112_3456, 0x10246
	x86 := func(at arch.Addr, code arch.Addr, cs uint64) *standing {
		s := &standing{symbols: map[string]arch.Addr{"asm_exc_page_fault": entry, "asm_exc_divide_error": entry + 16}}
		s.general[arch.IP], s.general[arch.SP] = uint64(at), sp
		s.memory = map[arch.Addr]uint64{sp + code: pc, sp + code + 8: cs, sp + code + 16: flags, sp + code + 24: sp + 64}
		return s
	}
	for _, tt := range []struct {
		name string
		s    *standing
		trap int
		ok   bool
	}{
		{"a page fault", x86(entry, 8, 0x10), 14, true},
		{"a division", x86(entry+16, 0, 0x10), 0, true},
		{"a program's", x86(entry, 8, 0x33), 0, false},
		{"behind the handler's first instruction", x86(entry+1, 8, 0x10), 0, false},
	} {
		trap, at, ok := AMD64.Kernel.Excepted(tt.s)
		if ok != tt.ok || ok && (trap != tt.trap || at[arch.IP] != pc || at[arch.FLAGS] != flags&^amd64Resume || at[arch.SP] != sp+64) {
			t.Errorf("%s: trap %d, %v, at %#x, flags %#x", tt.name, trap, ok, at[arch.IP], at[arch.FLAGS])
		}
	}
	arm := &standing{
		symbols:   map[string]arch.Addr{"vectors": entry},
		registers: map[string]uint64{"ELR_EL1": pc, "SPSR_EL1": flags, "ESR_EL1": 0x25<<26 | 7},
	}
	a := arch.ARM64
	arm.general[a.PC] = entry + 0x200
	if trap, at, ok := ARM64.Kernel.Excepted(arm); !ok || trap != 0x25 || at[a.PC] != pc || at[a.Flags] != flags {
		t.Errorf("arm64: trap %#x, %v, at %#x", trap, ok, at[a.PC])
	}
	arm.general[a.PC] = entry + 0x400 // a program's exceptions come there
	if _, _, ok := ARM64.Kernel.Excepted(arm); ok {
		t.Error("arm64: an exception of a program's is taken for the kernel's own")
	}
}

// A machine is known by its name in a description; one without a record shows nothing.
func TestRecords(t *testing.T) {
	for _, m := range machines {
		if Of(m.Arch) != m || m.Name != "" && Named(m.Name) != m.Arch {
			t.Errorf("%s is another's", m.Arch.Name)
		}
		if err := m.Walks(); (err == nil) != (m.Paging != nil) {
			t.Errorf("%s: %v", m.Arch.Name, err)
		}
	}
	if Named("") != nil || Of(arch.I386).Walks() == nil || Missing(arch.I386) == nil {
		t.Error("what is not known is taken for known")
	}
}
