package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"

	"kprobe/arch"
	"kprobe/internal/jumps"
	"kprobe/internal/machine"
	"kprobe/symbol"
)

// Where the kernel puts a program that can be anywhere, without randomisation,
// and how much a heap behind a program is given in the survey.
const (
	usualBias = 0x5555_5555_4000
	heapRoom  = 1 << 27
)

// detourSize is about what a detour takes that calls a program.
const detourSize = 200

// surveyAll is plan --jumps.
func surveyAll(out io.Writer, files []string) error {
	if len(files) == 0 {
		return errors.New("at least one ELF file must be given")
	}
	for _, name := range files {
		if err := surveyJumps(out, name); err != nil {
			return err
		}
	}
	return nil
}

// surveyJumps prints, for a file's functions, where a jump could stand.
func surveyJumps(out io.Writer, name string) error {
	r, err := os.Open(name)
	if err != nil {
		return err
	}
	defer r.Close()
	f, err := symbol.Open(r, &symbol.Options{Path: name, Debug: symbol.DebugFinder("/")})
	if err != nil {
		return err
	}
	m, err := machine.OfELF(f.Machine(), f.Class(), f.Order())
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if m.ISA.JumpForm() == nil || m.Arch.PtrSize != 8 {
		return fmt.Errorf("%s: where jumps could stand is not told for %s", name, m.Arch.Name)
	}
	code, err := jumps.Open(m.ISA, f)
	if err != nil {
		return err
	}
	if f.Type() == elf.ET_DYN {
		code = code.At(usualBias)
	}
	var module arch.Range
	for _, s := range f.Segments() {
		start, end := arch.Addr(s.Vaddr)+code.Bias, arch.Addr(s.Vaddr+s.Memsz)+code.Bias
		if module.End == 0 {
			module.Start = start
		}
		module = arch.Range{Start: min(module.Start, start), End: max(module.End, end)}
	}
	s := code.Survey(module, []arch.Range{{Start: module.End, End: module.End + heapRoom}}, detourSize)
	_, err = fmt.Fprintf(out, "%s at %v\n%v", name, module.Start, s)
	return err
}
