package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/trace"
)

// request is what a verb is asked to do, and to which processes or kernel.
type request struct {
	pids    pidList
	kernel  guest
	stub    stub
	program []string // to start, with its arguments, instead
	files   []string // of definitions
	strict  bool     // all of their places, or none
	ownOnly bool     // no inlined copies
	depth   int      // of stacks
}

// subject is a process, or the kernel or stub that is meant.
type subject struct {
	pid    int
	kernel guest
	stub   stub
}

func (s subject) String() string {
	switch {
	case s.stub != "":
		return "stub " + string(s.stub)
	case s.pid == 0:
		return strings.TrimSpace("kernel " + s.kernel.at)
	}
	return fmt.Sprintf("process %d", s.pid)
}

// look opens a session that only reads.
func (s subject) look() (*kprobe.Session, error) {
	switch {
	case s.stub != "":
		return s.stub.look()
	case s.pid == 0:
		return s.kernel.look()
	}
	return look(s.pid)
}

// pidFlag lets the verb have processes.
func (r *request) pidFlag(c *cobra.Command) {
	c.Flags().VarP(&r.pids, "pid", "p", "process; several as 1,2 or as further numbers: -p $(pidof nginx)")
	if err := c.RegisterFlagCompletionFunc("pid", completePIDs); err != nil {
		panic(err) // the flag is there
	}
}

// definitionFlags lets it have definitions from files.
func (r *request) definitionFlags(c *cobra.Command) {
	c.Flags().StringArrayVarP(&r.files, "expr-file", "e", nil, "read definitions from `FILE`, one a line (- is standard input)")
	c.ValidArgsFunction = r.completePlaces
}

// strictFlag lets it refuse definitions that would go without some of their places.
func (r *request) strictFlag(c *cobra.Command) {
	c.Flags().BoolVar(&r.strict, "strict", false, "refuse definitions of which some places cannot be probed")
}

// depthFlag lets its stacks have other depths.
func (r *request) depthFlag(c *cobra.Command) {
	c.Flags().Var((*stackDepth)(&r.depth), "stack-depth", fmt.Sprintf("a stack has up to `N` frames (%d)", trace.MaxStack))
}

// stackDepth limits the frames of a stack; 0 where no option says so.
type stackDepth int

func (d *stackDepth) String() string { return "" }
func (d *stackDepth) Type() string   { return "N" }

func (d *stackDepth) Set(text string) error {
	const most = 1 << 16
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return fmt.Errorf("a number from 1 to %d is wanted", most)
	}
	*d = stackDepth(n)
	return nil
}

// copiesFlag lets it leave inlined copies alone.
func (r *request) copiesFlag(c *cobra.Command) {
	c.Flags().BoolVar(&r.ownOnly, "out-of-line", false, "leave out the inlined copies of functions")
}

// warnLeftOut says on standard error which places of definitions have no probe.
func warnLeftOut(out []trace.LeftOut) error {
	if len(out) == 0 {
		return nil
	}
	if _, err := io.WriteString(os.Stderr, "kprobe: "); err != nil {
		return err
	}
	return trace.WriteLeftOut(os.Stderr, out)
}

// remote tells that it is about something other than processes of this host.
func (r *request) remote() bool { return r.kernel.at != "" || r.stub != "" }

// processes takes the further process ids out of a verb's arguments, and
// demands that there is at least one process, or a kernel. rest is what else
// there is.
func (r *request) processes(args []string) (rest []string, err error) {
	if r.remote() {
		if r.kernel.at != "" && r.stub != "" || len(r.pids) > 0 {
			return nil, errors.New("either -p or -k or --stub")
		}
		return args, nil
	}
	if r.kernel.ram != "" || r.kernel.window != "" || r.kernel.symbols != "" {
		return nil, errors.New("--ram, --window and --symbols are for -k")
	}
	for _, a := range args {
		if _, err := strconv.ParseUint(a, 10, 64); err != nil {
			rest = append(rest, a)
			continue
		}
		if len(r.pids) == 0 {
			return nil, fmt.Errorf("what is %s? A process id goes with -p", a)
		}
		if err := r.pids.Set(a); err != nil {
			return nil, err
		}
	}
	if len(r.pids) == 0 {
		return nil, errors.New("no process given: -p PID")
	}
	return rest, nil
}

// targets sorts the arguments of a verb that can start a program for it, behind --: what it is about, and the definitions.
func (r *request) targets(c *cobra.Command, args []string) (defs []string, err error) {
	dash := c.ArgsLenAtDash()
	if dash < 0 {
		if len(r.pids) == 0 && !r.remote() {
			return nil, errors.New("no process given: -p PID, or a program after --")
		}
		rest, err := r.processes(args)
		if err != nil {
			return nil, err
		}
		return r.definitions(rest)
	}
	args, r.program = args[:dash], args[dash:]
	switch {
	case len(r.program) == 0:
		return nil, errors.New("no program given after --")
	case len(r.pids) > 0 || r.remote():
		return nil, errors.New("either -p, -k, --stub or a program after --")
	}
	return r.definitions(args)
}

// onlyProcesses is processes for a verb that takes nothing else.
func (r *request) onlyProcesses(args []string) error {
	rest, err := r.processes(args)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%q is no process id", rest[0])
	}
	return err
}

// definitions are those of the command line, then those of the files.
func (r *request) definitions(args []string) ([]string, error) {
	defs := slices.Clone(args)
	for _, name := range r.files {
		text, err := readDefinitions(name)
		if err != nil {
			return nil, err
		}
		defs = append(defs, strings.Split(text, "\n")...)
	}
	defs = slices.DeleteFunc(defs, func(d string) bool {
		d = strings.TrimSpace(d)
		return d == "" || d[0] == '#'
	})
	if len(defs) == 0 {
		return nil, errors.New("no definition given, such as 'p libc.so.6:malloc size=%di:u64'")
	}
	return defs, nil
}

func readDefinitions(name string) (string, error) {
	if name == "-" {
		text, err := io.ReadAll(os.Stdin)
		return string(text), err
	}
	text, err := os.ReadFile(name)
	return string(text), err
}

// pidList is the value of -p.
type pidList []int

// Set adds process ids: one, or several behind commas or blanks.
func (l *pidList) Set(text string) error {
	words := strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' || r == '\n' })
	if len(words) == 0 {
		return errors.New("it is no process id: does the program run?")
	}
	for _, w := range words {
		pid, err := strconv.ParseInt(w, 10, 32)
		if err != nil || pid <= 0 {
			// What pidof answers may be nothing, and then the next word is ours.
			return errors.New("it is no process id: does the program run?")
		}
		if !slices.Contains(*l, int(pid)) {
			*l = append(*l, int(pid))
		}
	}
	return nil
}

func (l *pidList) String() string { return "" } // no default

// Type is the value's name in help texts.
func (l *pidList) Type() string { return "PID" }

// subjects are what the verb is about.
func (r *request) subjects() []subject {
	if r.remote() {
		return []subject{{kernel: r.kernel, stub: r.stub}}
	}
	var all []subject
	for _, pid := range r.pids {
		all = append(all, subject{pid: pid})
	}
	return all
}

// each calls f for each subject, with a heading where there are several, and
// writes what f gives. All are done, and the errors come together.
func (r *request) each(w io.Writer, f func(subject) (string, error)) error {
	var errs []error
	for _, s := range r.subjects() {
		text, err := f(s)
		if len(r.pids) > 1 {
			text = fmt.Sprintf("# %v\n%s", s, text)
		}
		if _, failed := io.WriteString(w, text); failed != nil {
			return failed
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
