//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"fmt"
	"os"

	"kprobe/internal/proc"
	"kprobe/internal/rights"
)

// Withheld implements target.Withholder.
func (p *Process) Withheld() error {
	if !p.started {
		return nil // a program that it executed under us was told of then, and why an earlier one lacks rights is not known
	}
	return withheld(p.pid)
}

// withheld tells of a process that has executed a program with less rights than the program's file
// gives: it would gain some yet. nil where it has them all. A file that cannot be looked at is not
// told of.
func withheld(pid int) error {
	name := proc.Thread(pid).File("exe")
	f, err := rights.Look(name)
	if err != nil {
		return nil
	}
	gains := f.Gains(pid)
	if gains == "" {
		return nil
	}
	path, _ := os.Readlink(name)
	return fmt.Errorf("process %d executes %s without the rights that this file gives (%s): the kernel gives it none while an ordinary user traces it", pid, path, gains)
}
