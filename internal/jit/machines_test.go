package jit

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"kprobe/internal/testprog"
)

// The tests of what programs do once more, in a process of their own, compiled for i386
// and run as 32-bit code, by QEMU where the machine runs none.
func TestI386(t *testing.T) {
	if testprog.Programs32.On(t) {
		testOf(t, "386")
	} else {
		testOf(t, "386"+emulated)
	}
}

// For arm64, and run by QEMU.
func TestARM64(t *testing.T) { testOf(t, "arm64") }

// And for riscv64.
func TestRISCV64(t *testing.T) { testOf(t, "riscv64") }

func testOf(t *testing.T, machine string) {
	if os.Getenv(machineVariable) != "" {
		t.Fatal("it runs itself")
	}
	args := []string{"-test.v", "-test.run=^(TestClang|TestArithmetic|TestBranches|TestFarJumps|TestMemory|TestAtomics|TestLocalCalls|" +
		"TestHelperCalls|TestPrograms|TestKeysOfOneTag|TestRandomPrograms|TestSoakRandomPrograms|FuzzCompile)$"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), machineVariable+"="+machine)
	out, err := cmd.CombinedOutput()
	if n := bytes.Count(out, []byte("\n--- PASS")); err != nil || n != 13 {
		t.Errorf("%v, %d passed:\n%s", err, n, out)
	}
}
