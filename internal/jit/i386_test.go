package jit

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// The tests of what programs do once more, in a process of their own, compiled for i386
// and run as 32-bit code.
func TestI386(t *testing.T) {
	if runsNarrow {
		t.Fatal("it runs itself")
	}
	args := []string{"-test.v", "-test.run=^(TestClang|TestArithmetic|TestBranches|TestFarJumps|TestMemory|TestAtomics|TestLocalCalls|" +
		"TestHelperCalls|TestPrograms|TestKeysOfOneTag|TestRandomPrograms|TestSoakRandomPrograms|FuzzCompile)$"}
	if testing.Short() {
		args = append(args, "-test.short")
	}
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), narrowVariable+"=1")
	out, err := cmd.CombinedOutput()
	if n := bytes.Count(out, []byte("\n--- PASS")); err != nil || n != 13 {
		t.Errorf("%v, %d passed:\n%s", err, n, out)
	}
}
