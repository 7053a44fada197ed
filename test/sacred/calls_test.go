package sacred_test

import (
	"bytes"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

// uses are the command's, before the program that is started for it. A static program has its library in itself.
var uses = []struct {
	name string
	args []string
}{
	{"inside", []string{"stat", "p calls:*", "r calls:*"}},
	{"stops", []string{"trace", "--stops", "--no-summary", "--output", "/dev/null", "p calls:*", "r calls:*"}},
	{"libc", []string{"stat", "p libc.so.6:*"}},
	{"returns", []string{"stat", "r libc.so.6:*", "r calls:*"}},
	{"follow", []string{"trace", "--follow", "--no-summary", "--output", "/dev/null", "p calls:*", "p libc.so.6:[mps]*", "r libc.so.6:[f-s]*"}},
}

// made are the ways in which these programs are made.
var made = [][]string{{}, {"-static", "-DSTATIC"}, {"-m32"}}

// ended tells how a program has ended: what it said, and its exit status, or a shell's for a signal.
type ended struct {
	said   string
	status int
}

// endOf runs a program to its end.
func endOf(t *testing.T, words ...string) (e ended, complaint string) {
	t.Helper()
	c := exec.Command(words[0], words[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out, err bytes.Buffer
	c.Stdout, c.Stderr = &out, &err
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() { defer close(over); c.Wait() }()
	defer func() {
		if c.ProcessState == nil { // it hangs, and the test has failed
			syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
		}
	}()
	testprog.Receive(t, strings.Join(words, " ")+" ends", c.Process.Pid, over)
	e = ended{out.String(), c.ProcessState.ExitCode()}
	if w := c.ProcessState.Sys().(syscall.WaitStatus); w.Signaled() {
		e.status = 128 + int(w.Signal())
	}
	return e, err.String()
}

// Small programs that make the calls that few make, in odd situations and in company, say what they say without probes, and end
// as they end. There are some thousands of them, of which each run takes others: a soak goes on with them.
func TestCalls(t *testing.T) {
	command := testprog.Command(t, "kprobe/cmd/kprobe")
	rnd := testprog.Rand(t)
	least := 200
	if testing.Short() {
		least = len(uses)
	}
	paths, names := make([]string, len(made)), []string(nil)
	for i, flags := range made {
		if i == 2 && !testprog.Programs32.On(t) {
			paths[i] = paths[0]
			continue
		}
		paths[i] = testprog.Build(t, "calls", append([]string{"-O2", "-lm", "-lrt"}, flags...)...)
	}
	out, _ := endOf(t, paths[0], "names")
	names = slices.Collect(strings.Lines(out.said))
	if len(names) < 1000 {
		t.Fatalf("%d cases", len(names))
	}
	for round := range testprog.Rounds(t, 0, least) {
		use := uses[round%len(uses)]
		which := 0
		if round%3 == 2 { // most programs are dynamic
			which = 1 + round/3%2
		}
		name := strings.TrimSpace(names[rnd.IntN(len(names))])
		t.Run(use.name+strings.Join(made[which], "")+"/"+name, func(t *testing.T) {
			program := append([]string{paths[which]}, strings.Fields(name)...)
			want, _ := endOf(t, program...)
			line := append([]string{command}, use.args...)
			if which == 1 { // its functions are the library's, too
				line = slices.DeleteFunc(line, func(word string) bool { return strings.Contains(word, " libc.so.6:") })
				if use.name == "libc" {
					line = append(line, "p calls:*")
				}
			}
			if which == 2 { // it has room for so many counters
				for i := range line {
					line[i] = strings.NewReplacer("r libc.so.6:*", "r libc.so.6:[p-s]*", "r libc.so.6:[f-s]*", "r libc.so.6:[p-s]*").Replace(line[i])
				}
			}
			got, complaint := endOf(t, append(append(line, "--"), program...)...)
			if got != want {
				again, _ := endOf(t, program...)
				t.Errorf("probed it says\n%sand ends with %d, else it says\n%sand ends with %d, and once more\n%sand %d\n%s",
					got.said, got.status, want.said, want.status, again.said, again.status, complaint)
			}
		})
	}
}
