package ptrace

import (
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/target"
)

// deepOnce has been everywhere on its stack, so that none of it is zeros.
const deepOnce = `
#include <alloca.h>
#include <stdio.h>
#include <string.h>
static int dirty(int n) { volatile char b[1024]; memset((void *)b, 0x5a, sizeof b); return n ? dirty(n - 1) + b[n % 1024] : b[0]; }
int main(int argc, char **argv) { volatile char *b = alloca(16 * argc); b[0] = dirty(400); puts("ready"); fflush(stdout); getchar(); return b[0] == 7; }
`

// Where no memory is dead, the frame of a call goes to its thread's own stack, and leaves the
// call's arguments there alone: the action that was set is the one that is read back. (They met at
// one of four alignments: the frame ended in the mark of its vector registers, which became the
// lower half of the trap handler's address.)
func TestActionBesideFrame(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "deep.c"), []byte(deepOnce), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-O0", "-o", filepath.Join(dir, "deep"), filepath.Join(dir, "deep.c")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for arguments := range 4 { // the stack pointer is at any multiple of 16 when it waits
		actionIsKept(t, testprog.Start(t, filepath.Join(dir, "deep"), make([]string, arguments)...))
	}
}

func actionIsKept(t *testing.T, prog *testprog.Proc) {
	p := attached(t, prog.Pid)
	p.Run(func() {
		if _, err := p.Freeze(); err != nil {
			t.Error(err)
			return
		}
		if at := p.deadMemory(); at != 0 {
			t.Errorf("there is dead memory at %v: nothing is tried", at)
		}
		old, err := p.TrapAction()
		if err != nil {
			t.Error(err)
		}
		var want target.Action
		binary.LittleEndian.PutUint64(want[0:], 0x123456789abc)
		binary.LittleEndian.PutUint64(want[8:], 0x44000004) // SA_SIGINFO, SA_RESTORER, SA_NODEFER
		binary.LittleEndian.PutUint64(want[16:], 0x123456789def)
		binary.LittleEndian.PutUint64(want[24:], 1<<9)
		if err := p.SetTrapAction(want); err != nil {
			t.Error(err)
		}
		if have, err := p.TrapAction(); err != nil || have != want {
			t.Errorf("the action is %x (%v), and was set to %x", have, err, want)
		}
		if err := p.SetTrapAction(old); err != nil {
			t.Error(err)
		}
	})
}

// A thread may stand where its stack has no room for a call's arguments. Then another thread's
// stack has it, whichever thread makes the call.
func TestScratchAtTheEndOfAStack(t *testing.T) {
	prog := testprog.Start(t, testprog.Build(t, "cramped", "-O2"))
	prog.Round("start")
	p := attached(t, prog.Pid)
	for range 100 {
		p.Run(func() {
			if _, err := p.Freeze(); err != nil {
				t.Error(err)
			} else if _, err := p.TrapAction(); err != nil {
				t.Error(err)
			}
			if err := p.Thaw(); err != nil {
				t.Error(err)
			}
		})
	}
	if got := prog.Round("join")[0]; got != "0 wrong" {
		t.Error(got)
	}
}
