package harness

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe"
	"kprobe/internal/lifeline"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
)

// Handled are functions as a controller that is to be killed is told of them.
var Handled = []string{"ret_fib", "post!ret_ackermann", "ret_deep", "ret_nested", "ret_two", "ret_even"}

// Controller starts one and waits until its probes are in place.
func Controller(t testing.TB, pid int, functions ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf(controllerVariable+"=%d", pid),
		"KPROBE_TEST_FUNCTIONS="+strings.Join(functions, " "))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if line != "armed\n" {
		t.Fatalf("the controller said %q (%v)", line, err)
	}
	return cmd
}

// GuardianOf finds the guardian of a controller, its child.
func GuardianOf(t testing.TB, controller int) int {
	t.Helper()
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", controller))
	for _, list := range lists {
		b, _ := os.ReadFile(list)
		for _, f := range bytes.Fields(b) {
			line, _ := os.ReadFile("/proc/" + string(f) + "/cmdline")
			if bytes.HasPrefix(line, []byte("kprobe-guardian\x00")) {
				pid, _ := strconv.Atoi(string(f))
				return pid
			}
		}
	}
	t.Fatalf("controller %d has no guardian", controller)
	return 0
}

// Restored waits until the guardian has put the text back and has gone.
func Restored(t testing.TB, pid int) {
	t.Helper()
	testprog.Restored(t, pid, lifeline.Journals)
}

// KilledControllers kills controllers of a program while a round is under way, one after the other: the answers are
// right, and the program is restored each time.
func KilledControllers(t *testing.T, p *testprog.Proc, times int, functions ...string) {
	t.Helper()
	start := time.Now()
	want := strings.Join(p.Round("20"), "\n")
	round := time.Since(start)
	own := OwnText(t, p.Pid)
	for i := range times {
		c := Controller(t, p.Pid, functions...)
		p.Send("20")
		time.Sleep(round * time.Duration(i) / 4)
		c.Process.Kill()
		c.Wait()
		var got []string
		for line := p.Line(); line != "done"; line = p.Line() {
			got = append(got, line)
		}
		if g := strings.Join(got, "\n"); g != want {
			t.Fatalf("round %d: results differ:\n%s\nwithout probes:\n%s", i, g, want)
		}
		Restored(t, p.Pid)
		if now := OwnText(t, p.Pid); now > own {
			t.Errorf("round %d: %d KiB of its text are its own, and before the probes %d", i, now, own)
		}
	}
}

// playController puts entry and return probes on functions of a process, says
// so, and waits to be killed.
func playController(pid string) error {
	n, err := strconv.Atoi(pid)
	if err != nil {
		return err
	}
	p, err := ptrace.Attach(n)
	if err != nil {
		return err
	}
	s, err := kprobe.Open(p, nil)
	if err != nil {
		return err
	}
	for _, name := range strings.Fields(os.Getenv("KPROBE_TEST_FUNCTIONS")) {
		if data, ok := strings.CutPrefix(name, "watch!"); ok {
			w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: data}, Len: 8}
			if err := s.RegisterWatchpoint(w); err != nil {
				return err
			}
			continue
		}
		if data, ok := strings.CutPrefix(name, "churn!"); ok {
			fmt.Println("armed")
			return churn(s, data)
		}
		if counted, ok := strings.CutPrefix(name, "count!"); ok {
			kp := &kprobe.Kprobe{SymbolName: counted, Program: kprobe.CountOnly}
			if err := s.RegisterKprobe(kp); err != nil {
				return err
			}
			if s.WaitOptimized(); Optimized(s) == 0 {
				return fmt.Errorf("%s has no jump", counted)
			}
			continue
		}
		if left, ok := strings.CutPrefix(name, "exits!"); ok {
			rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: left}, Engine: kprobe.EngineExits, Program: kprobe.CountOnly}
			if err := s.RegisterKretprobe(rp); err != nil {
				return err
			}
			s.WaitOptimized()
			if probed, jumps := rp.Exits(); jumps == 0 {
				return fmt.Errorf("%s has no jump at %d exits", left, probed)
			}
			continue
		}
		kp := &kprobe.Kprobe{SymbolName: name, PreHandler: func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }}
		if strings.HasPrefix(name, "post!") {
			kp.SymbolName = name[5:]
			kp.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}
		}
		if err := s.RegisterKprobe(kp); err != nil {
			return err
		}
		rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: kp.SymbolName}}
		if err := s.RegisterKretprobe(rp); err != nil {
			return err
		}
	}
	fmt.Println("armed")
	select {}
}

// churn has a controller place and remove watchpoints until it is killed.
func churn(s *kprobe.Session, data string) error {
	for {
		w := &kprobe.Watchpoint{Kp: kprobe.Kprobe{SymbolName: data}, Len: 8}
		kp := &kprobe.Kprobe{SymbolName: "writer1"}
		if err := errors.Join(s.Register(w, kp), s.Unregister(kp, w)); err != nil {
			return err
		}
	}
}
