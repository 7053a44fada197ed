package gdbremote

import (
	"bytes"
	"debug/elf"
	"os"

	"kprobe/arch"
	"kprobe/internal/cpu"
	"kprobe/internal/proc"
	"kprobe/symbol"
)

// QEMU describes no registers of MIPS. Its user mode runs here, though: the machine is that of the
// program that its process has mapped, and the answer to g has the registers in GDB's order, each
// as wide as the machine (QEMU's target/mips/gdbstub.c).

// undescribed finds the machine of a stub that describes none; false if it is none of those.
func (t *Target) undescribed() (bool, error) {
	listener := t.c.peer()
	if !t.program || listener == 0 {
		return false, nil
	}
	text, err := os.ReadFile(proc.Process(listener).File("maps"))
	if err != nil {
		return false, nil
	}
	maps, err := symbol.ParseMaps(bytes.NewReader(text))
	if err != nil {
		return false, err
	}
	for _, m := range maps {
		f, err := elf.Open(m.Path)
		if err != nil {
			continue
		}
		f.Close()
		if a := cpu.ShownBy(f); a != nil {
			t.arch = a
			t.about = inOrder(t.arch)
			return true, t.show()
		}
	}
	return false, nil
}

// inOrder describes a machine whose registers come first, in order, a word each.
func inOrder(a *arch.Arch) *description {
	d := &description{byName: make(map[string]*register), registers: make([]register, len(a.RegNames))}
	for i, name := range a.RegNames {
		d.registers[i] = register{name, i, i * a.PtrSize, a.PtrSize}
		d.byName[name] = &d.registers[i]
	}
	return d
}
