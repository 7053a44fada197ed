package jit

import (
	"fmt"

	"kprobe/arch"
	"kprobe/bpf"
)

// Machine is a machine that programs are compiled for: the part of the contract in which machines
// differ, and the compiler.
type Machine struct {
	*arch.Arch
	State   arch.Reg // holds the address of the thread's state while a program runs
	Context arch.Reg // has that of the context when it begins
	Result  arch.Reg // has R0 when it ends, its lower half on i386
	Words   int      // of the context, 8 bytes each

	// own tells that the context is not x86-64's, as which a program reads it that does not say.
	own     bool
	compile func(p *bpf.Proof, env *Env) (*Code, error)
}

// The machines.
var (
	AMD64 = &Machine{
		Arch: arch.AMD64, State: arch.R12, Context: arch.DI, Result: arch.AX, Words: ContextWords,
		compile: func(p *bpf.Proof, env *Env) (*Code, error) {
			c := newCompiler(p, env)
			return c.code, c.compile()
		},
	}
	I386 = &Machine{
		Arch: arch.I386, State: arch.BP, Context: arch.AX, Result: arch.AX, Words: ContextWords,
		compile: func(p *bpf.Proof, env *Env) (*Code, error) {
			c := newNarrow(p, env)
			return c.code, c.compile()
		},
	}
	ARM64 = &Machine{
		Arch: arch.ARM64, State: arch.Reg(state64), Context: arch.Reg(regs64[bpf.R1]), Result: arch.Reg(regs64[bpf.R0]), Words: len(bpf.ARM64.Regs),
		own: true, compile: compileARM64,
	}
	RISCV64 = &Machine{
		Arch: arch.RISCV64, State: arch.Reg(rvState), Context: arch.Reg(placesRV.regs[bpf.R1]), Result: arch.Reg(placesRV.regs[bpf.R0]), Words: len(bpf.RISCV64.Regs),
		own: true, compile: compileRISCV64,
	}
)

// Missing says what a machine without a Machine lacks.
func Missing(a *arch.Arch) error { return fmt.Errorf("programs are not compiled for %s", a.Name) }

// Fits tells whether a program that does not say whose context it reads can read the machine's.
func (m *Machine) Fits(proof *bpf.Proof) error {
	if m.own && proof.Program.Context.Regs == nil && proof.Context != 0 {
		return fmt.Errorf("program %q reads its context as that of %s, and the target is of %s", proof.Program.Name, AMD64.Name, m.Name)
	}
	return nil
}

// Compile makes machine code of a program that has been proved.
//
// Errors: the program is for another machine, its maps are not those of
// env.Layout, or it has an instruction that the verifier should not have
// passed.
func (m *Machine) Compile(p *bpf.Proof, env *Env) (*Code, error) {
	prog := p.Program
	if n := len(prog.Context.Regs); n != 0 && (n != m.Words || prog.Context.Word != 8) {
		return nil, fmt.Errorf("jit: program %q has a context of %d registers of %d bytes, which is not the one for %s", prog.Name, n, prog.Context.Word, m.Name)
	}
	for i, spec := range prog.Maps {
		if env.Layout == nil || i >= len(env.Layout.Maps) || env.Layout.Maps[i] != spec {
			return nil, fmt.Errorf("jit: program %q: map %d (%q) is not in its place in the layout", prog.Name, i, spec.Name)
		}
	}
	code, err := m.compile(p, env)
	if err != nil {
		return nil, fmt.Errorf("jit: program %q: %w", prog.Name, err)
	}
	return code, nil
}
