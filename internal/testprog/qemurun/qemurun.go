// Package qemurun runs machine code of another machine from any state, under QEMU's user mode: for
// tests that compare what an instruction does here with what it does there. It imports nothing of
// the project.
package qemurun

import (
	"bufio"
	"embed"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/*.c
var sources embed.FS

// State is what code of arm64 runs from and ends in: the general registers, and the vector
// registers in halves, the lower first.
type State struct {
	X              [31]uint64
	SP, PC, PState uint64
	V              [64]uint64
}

// RISCV64State is State for code of riscv64: the registers but x0, and those of floating point.
type RISCV64State struct {
	PC uint64
	X  [31]uint64 // from x1 on
	F  [32]uint64
}

// S390XState is State for code of s390x, big-endian: the program status word, and all registers but those of
// vectors.
type S390XState struct {
	Mask, PC uint64
	R        [16]uint64
	A        [16]uint32
	FPC, _   uint32
	F        [16]uint64
}

// PPC64LEState is State for code of ppc64le: all registers that most programs have, but those of vectors.
type PPC64LEState struct {
	R                    [32]uint64
	PC, CTR, LR, XER, CR uint64
	F                    [32]uint64
}

// Stop is why code ended: a signal, and the address that it is about.
type Stop struct{ Signal, Addr uint64 }

// Signals, as Linux numbers them on this machine.
const (
	SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV = 4, 5, 7, 8, 11
)

// Machine is an address space that code runs in.
type Machine struct {
	t     testing.TB
	qemu  string
	order binary.ByteOrder
	in    *bufio.Writer
	out   *bufio.Reader
}

// ARM64 starts one. It ends with the test. With SVE the frame of a signal would have the vector
// registers in two places.
func ARM64(t testing.TB) *Machine {
	t.Helper()
	return start(t, "arm64", "aarch64-linux-gnu-gcc", nil, "qemu-aarch64", "-cpu", "max,sve=off,sme=off")
}

// RISCV64 starts one for riscv64. In the tests' states the registers that its own code would
// reckon addresses from have any values.
func RISCV64(t testing.TB) *Machine {
	t.Helper()
	return start(t, "riscv64", "riscv64-linux-gnu-gcc", []string{"-mcmodel=medany", "-Wl,--no-relax"}, "qemu-riscv64")
}

// S390X starts one for s390x. The breakpoint of that machine raises SIGILL where nobody traces.
func S390X(t testing.TB) *Machine {
	t.Helper()
	m := start(t, "s390x", "s390x-linux-gnu-gcc", []string{"-march=z10", "-Wl,--build-id=none"}, "qemu-s390x", "-cpu", "max")
	m.order = binary.BigEndian
	return m
}

// PPC64LE starts one for ppc64le.
func PPC64LE(t testing.TB) *Machine {
	t.Helper()
	return start(t, "ppc64le", "powerpc64le-linux-gnu-gcc", []string{"-mno-vsx", "-mno-altivec"}, "qemu-ppc64le", "-cpu", "power10")
}

func start(t testing.TB, name, compiler string, flags []string, qemu ...string) *Machine {
	t.Helper()
	dir := t.TempDir()
	src, exe := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	source, err := sources.ReadFile("testdata/" + name + ".c")
	if err == nil {
		err = os.WriteFile(src, source, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	// Out of the way of what tests map.
	build := exec.Command(compiler, append(flags, "-O1", "-ffreestanding", "-fno-stack-protector", "-nostdlib", "-static",
		"-Wl,-Ttext=0x1000000", "-o", exe, src)...)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", build, err, out)
	}
	cmd := exec.Command(qemu[0], append(qemu[1:], exe)...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("%s: %v", qemu[0], err)
		}
	})
	return &Machine{t, qemu[0], binary.LittleEndian, bufio.NewWriterSize(in, 1<<16), bufio.NewReaderSize(out, 1<<16)}
}

func (m *Machine) put(v any) {
	if err := binary.Write(m.in, m.order, v); err != nil {
		m.t.Fatalf("%s has ended: %v", m.qemu, err)
	}
}

// ask sends what is waiting to be sent, and reads an answer.
func (m *Machine) ask(v any) {
	err := m.in.Flush()
	if err == nil {
		err = binary.Read(m.out, m.order, v)
	}
	if err != nil {
		m.t.Fatalf("%s has ended: %v", m.qemu, err)
	}
}

// Map has memory at an address, for everything. It replaces what is there.
func (m *Machine) Map(addr, size uint64) { m.put([]uint64{'m', addr, size}) }

// MapGuarded has memory in which indirect branches must lead to landing pads (PROT_BTI).
func (m *Machine) MapGuarded(addr, size uint64) { m.put([]uint64{'b', addr, size}) }

// Write fills memory, and makes it visible to the fetch of instructions.
func (m *Machine) Write(addr uint64, b []byte) {
	m.put([]uint64{'w', addr, uint64(len(b))})
	m.put(b)
}

// Read gives what memory holds.
func (m *Machine) Read(addr uint64, n int) []byte {
	m.put([]uint64{'g', addr, uint64(n)})
	if err := m.in.Flush(); err != nil {
		m.t.Fatalf("%s has ended: %v", m.qemu, err)
	}
	b := make([]byte, n)
	if _, err := io.ReadFull(m.out, b); err != nil {
		m.t.Fatalf("%s has ended: %v", m.qemu, err)
	}
	return b
}

// Run runs from a state to the first signal, and leaves the state of then in s.
func (m *Machine) Run(s *State) Stop { return m.run(s) }

// RunRISCV64 is Run for riscv64.
func (m *Machine) RunRISCV64(s *RISCV64State) Stop { return m.run(s) }

// RunS390X is Run for s390x.
func (m *Machine) RunS390X(s *S390XState) Stop { return m.run(s) }

// RunPPC64LE is Run for ppc64le.
func (m *Machine) RunPPC64LE(s *PPC64LEState) Stop { return m.run(s) }

func (m *Machine) run(state any) (end Stop) {
	m.put(uint64('r'))
	m.put(state)
	m.ask(&end)
	m.ask(state)
	return end
}
