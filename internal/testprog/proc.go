package testprog

import (
	"bufio"
	"bytes"
	"debug/buildinfo"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"kprobe/internal/patience"
	"kprobe/internal/proc"
)

// Nobody is the unprivileged user that AsUser means.
const Nobody = 65534

// Proc is a running program. The test is not its parent (see testdata/runner.c),
// so a tracer in the test binary sees what it would see of anybody's process.
//
// Output is read all the time: a target never blocks on a full pipe.
type Proc struct {
	Pid int

	// Patience bounds each wait, as the constant does those of Until: a program that
	// says nothing for that long fails the test. Change it before waiting.
	Patience time.Duration

	// For is the program whose work a wait is for, such as the guest that this one probes; nil: this one. A guest may have no CPU
	// while this one waits for its answer, and has nothing to do.
	For *Proc

	t     testing.TB
	cmd   *exec.Cmd      // the runner
	stdin io.WriteCloser // the program's
	life  *os.File       // the runner kills the program when this is closed
	gone  chan struct{}  // closed when the runner ended
	pulse chan struct{}  // something below changed

	mu      sync.Mutex
	lines   []string // stdout
	read    int      // how many of them were taken
	stderr  bytes.Buffer
	streams int                 // of the two, how many are open
	status  *syscall.WaitStatus // once it ended
}

// Result is what a program left.
type Result struct {
	Lines  []string // stdout, all of it
	Stderr string
	Status syscall.WaitStatus
}

// OK says whether the program ended by itself with status 0.
func (r Result) OK() bool { return r.Status.Exited() && r.Status.ExitStatus() == 0 }

func (r Result) String() string {
	how := fmt.Sprintf("exit status %d", r.Status.ExitStatus())
	if r.Status.Signaled() {
		how = "killed by " + r.Status.Signal().String()
	}
	return fmt.Sprintf("%s\n%s%s", how, strings.Join(append(r.Lines, ""), "\n"), r.Stderr)
}

// Start runs one of testdata's programs and returns when it is ready for its
// first round. The test's cleanup kills it, it and nothing else.
func Start(t testing.TB, path string, args ...string) *Proc {
	t.Helper()
	p := StartCmd(t, exec.Command(path, args...))
	p.Expect("ready")
	return p
}

// StartCmd runs any program, with cmd's path, arguments, environment, folder
// and credentials (its standard streams are ours), and returns at once.
func StartCmd(t testing.TB, cmd *exec.Cmd) *Proc {
	t.Helper()
	needToRun(t, cmd.Path)
	runner := Build(t, "runner", "-O2")
	report, reporter, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	watched, life, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &Proc{t: t, Patience: Patience, life: life, streams: 2,
		gone: make(chan struct{}), pulse: make(chan struct{}, 1)}
	p.cmd = &exec.Cmd{
		Path: runner, Args: append([]string{runner, cmd.Path}, cmd.Args[1:]...),
		Env: cmd.Env, Dir: cmd.Dir, SysProcAttr: cmd.SysProcAttr,
		ExtraFiles: []*os.File{reporter, watched},
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("testprog: %s: %v", cmd, err)
	}
	t.Cleanup(p.end)
	reporter.Close()
	watched.Close()

	lines := bufio.NewReader(report)
	if p.Pid, err = number(lines); err != nil {
		t.Fatalf("testprog: %s did not start: %v", cmd, err)
	}
	go func() {
		defer report.Close()
		defer close(p.gone)
		if n, err := number(lines); err == nil {
			p.change(func() { p.status = new(syscall.WaitStatus(n)) })
		}
		lines.WriteTo(io.Discard) // until the runner ended
	}()
	go p.collect(stdout)
	go func() {
		io.Copy(errorWriter{p}, stderr)
		p.change(func() { p.streams-- })
	}()
	return p
}

// AsUser is exec.Command for a program that runs as an unprivileged user where
// the test is root, and as the user itself elsewhere.
func AsUser(t testing.TB, path string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(path, args...)
	if os.Getuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: Nobody, Gid: Nobody}}
		cmd.Dir = "/" // the test's own folder may be closed to it
	}
	return cmd
}

// Send writes a line to the program's stdin.
func (p *Proc) Send(format string, args ...any) {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.stdin, format+"\n", args...); err != nil {
		p.t.Fatalf("testprog: pid %d: %v\n%s", p.Pid, err, p.describe())
	}
}

// CloseStdin ends the program's input, which ends testdata's programs.
func (p *Proc) CloseStdin() { p.stdin.Close() }

// Line returns the next line of stdout. No more output fails the test.
func (p *Proc) Line() string {
	p.t.Helper()
	line, ok := p.next()
	if !ok {
		p.t.Fatalf("testprog: pid %d: no more output\n%s", p.Pid, p.describe())
	}
	return line
}

// Expect reads lines until one is want or starts with want and a space, and
// returns it.
func (p *Proc) Expect(want string) string {
	p.t.Helper()
	for {
		line, ok := p.next()
		if !ok {
			p.t.Fatalf("testprog: pid %d: no line %q\n%s", p.Pid, want, p.describe())
		}
		if line == want || strings.HasPrefix(line, want+" ") {
			return line
		}
	}
}

// Until is Expect for a program that may end instead: it answers false where no such line comes.
func (p *Proc) Until(want string) bool {
	for {
		line, ok := p.next()
		if !ok || line == want || strings.HasPrefix(line, want+" ") {
			return ok
		}
	}
}

// Round sends a line and returns what the program printed until "done".
func (p *Proc) Round(format string, args ...any) []string {
	p.t.Helper()
	p.Send(format, args...)
	var out []string
	for {
		line := p.Line()
		if line == "done" {
			return out
		}
		out = append(out, line)
	}
}

// Lines returns stdout so far.
func (p *Proc) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// Signal sends a signal to the program; one that has ended is an error.
func (p *Proc) Signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.status != nil {
		return os.ErrProcessDone // the pid may be somebody else's by now
	}
	return syscall.Kill(p.Pid, sig)
}

// Alive tells whether the program has not ended, as far as is known.
func (p *Proc) Alive() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.status == nil && p.streams > 0
}

// Wait waits for the end of the program, and of its output. It does not close stdin.
func (p *Proc) Wait() syscall.WaitStatus {
	p.t.Helper()
	if !p.until(func() bool { return p.status != nil && p.streams == 0 }) {
		p.t.Fatalf("testprog: pid %d does not end\n%s%s", p.Pid, p.describe(), p.goroutines())
	}
	return *p.status
}

// Result closes stdin, waits for the end and returns all that the program left.
func (p *Proc) Result() Result {
	p.t.Helper()
	p.stdin.Close()
	p.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return Result{Lines: p.lines, Stderr: p.stderr.String(), Status: *p.status}
}

// end is the cleanup. The runner kills its own child, and only while it has not
// waited for it: no other process can have that pid.
func (p *Proc) end() {
	p.life.Close()
	p.stdin.Close()
	gone := func() bool {
		select {
		case <-p.gone:
			return true
		default:
			return false
		}
	}
	if !p.until(gone) { // killed, and yet not gone: a tracer holds it
		p.t.Errorf("testprog: pid %d does not go away\n%s", p.Pid, p.describe())
		return
	}
	p.cmd.Wait()
}

func (p *Proc) next() (line string, ok bool) {
	p.until(func() bool {
		if ok = p.read < len(p.lines); ok {
			line = p.lines[p.read]
			p.read++
		}
		return ok || p.streams == 0
	})
	return line, ok
}

// until waits for cond, which is called with the lock held, and tells whether it came. The runner is the subject: the
// program is its child.
func (p *Proc) until(cond func() bool) bool {
	subject := p.cmd
	if p.For != nil {
		subject = p.For.cmd
	}
	patience := patience.Of(subject.Process.Pid, p.Patience)
	gone := p.gone
	for {
		p.mu.Lock()
		ok := cond()
		p.mu.Unlock()
		if ok || patience.Spent() {
			return ok
		}
		select {
		case <-p.pulse:
		case <-gone:
			gone = nil
		case <-time.After(200 * time.Millisecond): // for patience
		}
	}
}

func (p *Proc) change(f func()) {
	p.mu.Lock()
	f()
	p.mu.Unlock()
	select {
	case p.pulse <- struct{}{}:
	default:
	}
}

func (p *Proc) collect(stdout io.Reader) {
	s := bufio.NewScanner(stdout)
	s.Buffer(nil, 16<<20)
	for s.Scan() {
		p.change(func() { p.lines = append(p.lines, s.Text()) })
	}
	p.change(func() { p.streams-- })
}

// describe is what one wants to know about a program that hangs or ended too soon.
func (p *Proc) describe() string {
	p.until(func() bool { return p.streams > 0 || p.status != nil }) // without output it is about to end: how?
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	if p.status != nil {
		r := Result{Lines: p.lines, Stderr: p.stderr.String(), Status: *p.status}
		return r.String()
	}
	fmt.Fprintf(&b, "%s%s", strings.Join(append(p.lines, ""), "\n"), p.stderr.String())
	b.WriteString(States(p.Pid))
	if p.For != nil {
		b.WriteString(States(p.For.Pid))
	}
	return b.String()
}

// goroutines ends a program of Go's that hangs, and answers what it says of its goroutines; of any other nothing.
func (p *Proc) goroutines() string {
	if _, err := buildinfo.ReadFile(proc.Process(p.Pid).File("exe")); err != nil {
		return ""
	}
	p.mu.Lock()
	before := p.stderr.Len()
	p.mu.Unlock()
	p.Signal(syscall.SIGABRT) // SIGQUIT may be a request to end
	p.until(func() bool { return p.status != nil && p.streams == 0 })
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.String()[before:]
}

// errorWriter appends to a Proc's stderr.
type errorWriter struct{ p *Proc }

func (w errorWriter) Write(b []byte) (n int, err error) {
	w.p.change(func() { n, err = w.p.stderr.Write(b) })
	return n, err
}

func number(r *bufio.Reader) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line))
}
