package inject_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"kprobe/internal/testprog"
)

// Detours, routines and helpers once more, in a process of their own, in a 32-bit program.
// Programs there that are written by hand are 64-bit code: their tests are not among these.
func TestI386(t *testing.T) {
	if narrow() {
		t.Fatal("it runs itself")
	}
	testprog.Programs32.Need(t)
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^(TestCount|TestProgramKeepsRegisters|TestReturnMaxActive|TestReturnRoom|"+
		"TestReturnAbandoned|TestWhere|TestReads|TestStackID|TestReturnOnOwnStack|TestCoroutines|TestMaps|TestLock|TestRings|TestSmallHelpers|TestCPU|TestBackwards|TestStatesAreMadeWhenGivenOut)$")
	cmd.Env = append(os.Environ(), narrowVariable+"=1")
	out, err := cmd.CombinedOutput()
	if n := bytes.Count(out, []byte("\n--- PASS")); err != nil || n < 16 {
		t.Errorf("%v, %d passed:\n%s", err, n, out)
	}
}
