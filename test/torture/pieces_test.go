package torture

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// piecesVariable has the order of a controller that stands between two pieces of a large batch.
const piecesVariable = "KPROBE_TEST_PIECES"

// between is a process whose controller stands for ever when so many stops have written its text.
type between struct {
	*ptrace.Process
	text  arch.Range
	wrote bool
	left  int
}

func (b *between) WriteAt(at arch.Addr, p []byte) error {
	b.wrote = b.wrote || b.text.Contains(at)
	return b.Process.WriteAt(at, p)
}

func (b *between) Thaw() error {
	err := b.Process.Thaw()
	if b.wrote {
		b.left--
	}
	if b.wrote = false; b.left == 0 {
		fmt.Println("between")
		select {}
	}
	return err
}

// playPieces probes all functions of manyfns, by handlers or inside, and takes the probes off.
func playPieces(order string) error {
	pid, left, inside := 0, 0, false
	if _, err := fmt.Sscan(order, &pid, &left, &inside); err != nil {
		return err
	}
	p, err := ptrace.Attach(pid)
	if err != nil {
		return err
	}
	b := &between{Process: p, left: left}
	s, err := kprobe.Open(b, nil)
	if err != nil {
		return err
	}
	var ps []*kprobe.Kprobe
	for _, l := range s.Symbols().Match("manyfns", "many_[0-9]*") {
		kp := &kprobe.Kprobe{Addr: l.Addr, Program: kprobe.CountOnly}
		if !inside {
			kp.Program, kp.PreHandler = nil, func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }
		}
		ps = append(ps, kp)
		b.text.Start, b.text.End = min(b.text.Start-1, kp.Addr-1)+1, max(b.text.End, kp.Addr+1) // of 0, too
	}
	if err := s.RegisterKprobes(ps); err != nil {
		return err
	}
	if err := s.UnregisterKprobes(ps); err != nil {
		return err
	}
	return errors.New("there were too few pieces")
}

// A controller may be killed between two pieces of a large batch, come or go: the program works on,
// whether a guardian is left or not, and is as it was then.
func TestKilledBetweenPieces(t *testing.T) {
	for _, c := range []struct {
		pieces        int // 3 come, and 3 go
		inside, alone bool
	}{{1, true, false}, {2, false, false}, {2, true, true}, {4, false, true}, {5, true, false}} {
		if testing.Short() && c.pieces == 2 {
			continue
		}
		t.Run(fmt.Sprintf("%+v", c), func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "manyfns", "-O2"))
			want := strings.Join(p.Round("1"), "\n")
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d %d %v", piecesVariable, p.Pid, c.pieces, c.inside))
			cmd.Stderr = os.Stderr
			out, err := cmd.StdoutPipe()
			harness.OK(t, err)
			harness.OK(t, cmd.Start())
			t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "between\n" {
				t.Fatalf("the controller said %q (%v)", line, err)
			}
			if diffs, err := testprog.TextDiff(p.Pid); err != nil || len(diffs) == 0 {
				t.Errorf("no piece is there: %v", err)
			}
			if c.alone {
				harness.OK(t, syscall.Kill(harness.GuardianOf(t, cmd.Process.Pid), syscall.SIGKILL))
			}
			cmd.Process.Kill()
			cmd.Wait()
			if c.alone {
				if got := strings.Join(p.Round("1"), "\n"); got != want {
					t.Errorf("alone it says %s, not %s", got, want)
				}
				_, err := ptrace.Recover(p.Pid)
				harness.OK(t, err)
			} else {
				testprog.Restored(t, p.Pid, lifeline.Journals)
			}
			if got := strings.Join(p.Round("1"), "\n"); got != want {
				t.Errorf("then it says %s, not %s", got, want)
			}
			if diffs, err := testprog.TextDiff(p.Pid); err != nil || len(diffs) > 0 {
				t.Errorf("its text: %v, %v", err, diffs)
			}
		})
	}
}
