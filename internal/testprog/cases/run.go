package cases

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"kprobe/internal/proc"
	"kprobe/internal/testprog"
)

// Runner runs cases.
type Runner struct {
	Bpftrace string // the program
	Dir      string // where it is run: paths of cases are from here on
	Machine  string // its name in uname
}

// Result is what became of a case.
type Result struct {
	Case   *Case
	OK     bool
	Absent bool   // what it needs is not here
	Why    string // where it did not pass: in a few words, the same ones for the same reason
	Output string
}

// attached begins the line that is told once the probes are there.
const attached = "Attached "

// Run runs one case.
func (r *Runner) Run(c *Case) Result {
	res := Result{Case: c}
	if len(c.Arch) > 0 && !slices.Contains(c.Arch, r.Machine) {
		res.Absent, res.Why = true, "for other machines"
		return res
	}
	for _, need := range c.Requires {
		if r.start(need, nil, nil).wait(usual) != 0 {
			res.Absent, res.Why = true, "needs: "+need
			return res
		}
	}
	if c.Cleanup != "" {
		defer func() { r.start(c.Cleanup, nil, nil).wait(usual) }()
	}
	pid := 0
	for _, program := range c.Before {
		b := r.start(program, nil, nil)
		defer b.end()
		if pid = b.find(program); pid == 0 {
			res.Absent, res.Why = true, "does not run: "+program
			return res
		}
	}
	out := &output{ready: make(chan struct{})}
	main := r.start(r.command(c, pid), c.Env, out)
	defer main.end()
	if c.After != "" {
		if main.until(c.Timeout, func() bool { return over(out.ready) || over(main.over) }) && over(out.ready) {
			after := r.start(c.After, nil, nil)
			defer after.end()
		}
	}
	status := main.wait(c.Timeout)
	late := status < 0
	if late { // it may have printed what it must, and wait for somebody to end it
		main.signal(syscall.SIGTERM)
		status = main.wait(2 * time.Second)
	}
	res.Output = out.String()
	res.OK, res.Why = r.judge(c, res.Output, status, late)
	return res
}

// command is the shell's command of a case.
func (r *Runner) command(c *Case, pid int) string {
	if c.Prog != "" {
		return r.Bpftrace + " -e '" + c.Prog + "'"
	}
	return strings.NewReplacer("{{BPFTRACE}}", r.Bpftrace, "{{BEFORE_PID}}", strconv.Itoa(pid)).Replace(c.Run)
}

// judge holds the output against what is expected.
func (r *Runner) judge(c *Case, out string, status int, late bool) (ok bool, why string) {
	for _, e := range c.Expect {
		if r.has(e, out) == e.Not {
			return false, reason(out, late)
		}
	}
	switch {
	case late && c.Status < 0:
		return true, ""
	case c.Status >= 0 && status != c.Status, c.Status < 0 && !c.WillFail && status != 0:
		return false, reason(out, late)
	}
	return true, ""
}

func (r *Runner) has(e Expect, out string) bool {
	switch e.Kind {
	case Part:
		return strings.Contains(out, e.Text)
	case Regex:
		re, err := regexp.Compile("(?m)" + e.Text)
		return err == nil && re.MatchString(out)
	}
	text, err := os.ReadFile(filepath.Join(r.Dir, e.Text))
	if err != nil {
		return false
	}
	if e.Kind == File {
		return strings.Contains(out, strings.TrimSpace(string(text)))
	}
	want, got := values(string(text)), values(out)
	return len(want) > 0 && reflect.DeepEqual(want, got)
}

// values are those of JSON that lines begin; other lines are passed over.
func values(text string) (all []any) {
	d := json.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if d.Decode(&v) != nil {
			return all
		}
		if m, ok := v.(map[string]any); !ok || m["type"] != "attached_probes" {
			all = append(all, v)
		}
	}
}

var (
	fault   = regexp.MustCompile(`(?m)^(?:[^\s:]+:\d+:\d+(?:-\d+)?: )?ERROR: (.*)$`)
	details = regexp.MustCompile(`'[^']*'|"[^"]*"|\S*[/@$:]\S+|\b(?:0x)?\d+\b`)
)

// reason is why a case fails, by what was printed: the first error, without names and numbers.
func reason(out string, late bool) string {
	if m := fault.FindStringSubmatch(out); m != nil {
		return cut(details.ReplaceAllString(m[1], "_"))
	}
	if late {
		return "comes to no end in time"
	}
	return "prints something else"
}

// cut is a text in a line's width.
func cut(s string) string {
	const width = 72
	if r := []rune(s); len(r) > width {
		return string(r[:width-1]) + "…"
	}
	return s
}

// output is what a command prints on both its streams.
type output struct {
	mu    sync.Mutex
	b     bytes.Buffer
	ready chan struct{} // closed once the probes are there
	told  bool
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p)
	if !o.told && bytes.Contains(o.b.Bytes(), []byte(attached)) {
		o.told = true
		close(o.ready)
	}
	return len(p), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// job is a shell's command and all that it has started.
type job struct {
	cmd    *exec.Cmd
	over   chan struct{}
	status int
}

func (r *Runner) start(command string, env []string, out *output) *job {
	j := &job{cmd: exec.Command("bash", "-c", command), over: make(chan struct{})}
	j.cmd.Dir, j.cmd.Env = r.Dir, append(os.Environ(), env...)
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	j.cmd.WaitDelay = time.Second // what it has left running may hold its output
	if out != nil {
		j.cmd.Stdout, j.cmd.Stderr = out, out
	}
	if err := j.cmd.Start(); err != nil {
		j.cmd, j.status = nil, 127
		close(j.over)
		return j
	}
	go func() {
		_ = j.cmd.Wait() // the state says how it went
		j.status = j.cmd.ProcessState.ExitCode()
		if j.status < 0 {
			j.status = 128 + int(j.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
		}
		close(j.over)
	}()
	return j
}

// wait is the status of a command that ends in time; -1: it does not.
func (j *job) wait(long time.Duration) int {
	if !j.until(long, func() bool { return over(j.over) }) {
		return -1
	}
	return j.status
}

// until waits for a condition, so long by what the command and all that it has started do.
func (j *job) until(long time.Duration, cond func() bool) bool {
	if j.cmd == nil {
		return cond()
	}
	return testprog.AwaitFor(long, j.cmd.Process.Pid, func() error {
		if cond() {
			return nil
		}
		return errors.New("not yet")
	}) == nil
}

// over tells whether a channel is closed.
func over(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

func (j *job) signal(s syscall.Signal) {
	if j.cmd != nil {
		_ = syscall.Kill(-j.cmd.Process.Pid, s) // it may be over
	}
}

// end ends all of it.
func (j *job) end() {
	j.signal(syscall.SIGKILL)
	<-j.over
}

// find waits for the program that a command runs, and tells its number; 0: it does not come.
func (j *job) find(command string) int {
	words := strings.Fields(command)
	name := filepath.Base(words[len(words)-1])
	name = name[:min(len(name), 15)] // as the kernel has it
	found := 0
	j.until(usual, func() bool {
		pids, _ := proc.All()
		for _, pid := range pids {
			if comm, err := proc.Process(pid).Name(); err != nil || comm != name || j.cmd == nil {
				continue
			}
			if stat := proc.Thread(pid).Stat(); len(stat) > 2 && stat[0] != "Z" && stat[2] == strconv.Itoa(j.cmd.Process.Pid) {
				found = pid
			}
		}
		return found > 0 || over(j.over)
	})
	return found
}
