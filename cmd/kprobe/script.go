package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/script"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/symbol"
	"kprobe/target/kernel"
	"kprobe/target/ptrace"
)

// scriptRequest is what the verb script is asked to do.
type scriptRequest struct {
	request
	text    string // -e
	command string // -c
	format  string // -f
	output  string // -o
	unsafe  bool
	dry     bool
	fmt     bool
	quiet   bool
	list    bool
	silent  bool // --no-warnings
	told    bool // --warnings
	verbose bool // -v
	test    bool
	bench   bool
	check   bool     // --mode codegen: compile, and nothing else
	filter  string   // --probe-filter
	buffer  string   // -B
	stages  []string // -d
	include []string // --include
	folders []string // --include-dir
}

func scriptCommand() *cobra.Command {
	var r scriptRequest
	c := &cobra.Command{
		Use:   "script {FILE | -e TEXT} [-p PID | -c COMMAND | -k PLACE] [PARAMETER...]",
		Short: "Run a script in bpftrace's language",
		Long: `Run a script in bpftrace's language (docs/SCRIPTS.md says what differs). Probes on
functions run inside the process; begin, end and intervals in kprobe. A script that
probes no function needs no process.`,
		Example: `  kprobe script -e 'uprobe:libc.so.6:malloc { @[comm] = hist(arg0) }' -c 'date'
  kprobe script -e 'uretprobe:bash:readline { printf("%s\n", str(retval)) }' -p $(pidof bash)
  kprobe script tool.bt -p 1234 parameter`,
		RunE: func(c *cobra.Command, args []string) error { return r.run(args) },
	}
	r.pidFlag(c)
	r.kernelFlag(c)
	r.overrideFlag(c)
	r.scriptFlags(c)
	c.Flags().BoolVar(&r.silent, "no-warnings", false, "tell of no warnings")
	c.Flags().BoolVar(&r.told, "warnings", false, "tell of reads that fail, and of keys that are not there")
	c.Flags().BoolVarP(&r.verbose, "verbose", "v", false, "tell of each probe that is attached")
	return c
}

// scriptFlags are bpftrace's own.
func (r *scriptRequest) scriptFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringVarP(&r.text, "execute", "e", "", "run the script `TEXT`")
	f.StringVarP(&r.command, "cmd", "c", "", "run `COMMAND`, and end with it")
	f.StringVarP(&r.format, "format", "f", "text", "print `text` or json")
	f.StringVarP(&r.output, "output", "o", "", "print to `FILE`")
	f.BoolVar(&r.unsafe, "unsafe", false, "allow functions that change the system or the target")
	f.BoolVar(&r.dry, "dry-run", false, "attach, and end at once")
	f.BoolVar(&r.fmt, "fmt", false, "print the script in its one form")
	f.StringArrayVar(&symbol.MoreDebug, "debuginfo", nil, "look for debug data in `PLACE`, too: a file, or a folder like /usr/lib/debug")
	f.StringArrayVarP(&r.folders, "include-dir", "I", nil, "look for headers of C in `FOLDER`, too: for constants, types come without them")
	f.StringArrayVar(&r.include, "include", nil, "the constants of the header `FILE`, as #include has them")
	f.BoolVarP(&r.list, "list", "l", false, "list the places that a pattern matches: -l 'uprobe:libc:mall*'")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "say nothing of probes that were attached")
	f.BoolVar(&r.test, "test", false, "run the script's test probes, and nothing else")
	f.BoolVar(&r.bench, "bench", false, "run the script's bench probes, and nothing else")
	f.StringVar(&r.filter, "probe-filter", "", "attach to those probes, of tests and benches run those, that the regular expression `REGEX` matches")
	f.StringSliceVarP(&r.stages, "debug", "d", nil, "print a `STAGE`: ast, types, codegen, verifier, or all")
	f.SetInterspersed(true)
}

// source is the script's name and text, and the parameters.
func (r *scriptRequest) source(args []string) (name, text string, params []string, err error) {
	if r.text != "" {
		return "stdin", r.text, args, nil
	}
	if len(args) == 0 {
		return "", "", nil, errors.New("no script given: a FILE, or -e TEXT")
	}
	if args[0] == "-" {
		b, err := io.ReadAll(os.Stdin)
		return "stdin", string(b), args[1:], err
	}
	b, err := os.ReadFile(args[0])
	if err != nil {
		err = fmt.Errorf("failed to open file '%s': %s", args[0], script.Errno(err))
	}
	return args[0], string(b), args[1:], err
}

// words splits a command as bpftrace does: at blanks, quotes kept together.
func words(command string) (all []string) {
	var b strings.Builder
	quote, in := rune(0), false
	for _, c := range command {
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			} else {
				b.WriteRune(c)
			}
		case c == '\'' || c == '"':
			quote, in = c, true
		case c == ' ' || c == '\t' || c == '\n':
			if in {
				all = append(all, b.String())
				b.Reset()
			}
			in = false
		default:
			b.WriteRune(c)
			in = true
		}
	}
	if in {
		all = append(all, b.String())
	}
	return all
}

// settings are those of the environment: BPFTRACE_MAX_STRLEN and the like.
func settings() map[string]string {
	all := map[string]string{}
	for _, e := range os.Environ() {
		if name, value, _ := strings.Cut(e, "="); strings.HasPrefix(name, "BPFTRACE_") {
			all[strings.ToLower(strings.TrimPrefix(name, "BPFTRACE_"))] = value
		}
	}
	return all
}

// listing prints what the patterns match; several may stand in one, with commas between them.
func (r *scriptRequest) listing(w io.Writer, patterns []string) error {
	if len(patterns) == 0 {
		patterns = []string{"*"}
	}
	pid := 0
	if len(r.pids) == 1 {
		pid = r.pids[0]
	}
	list := func(pattern string) ([]string, error) { return script.List(pattern, r.verbose, pid) }
	if pid == 0 && r.kernel.at == "" && slices.ContainsFunc(patterns, func(p string) bool { return script.WantsKernel("pattern", p+" { }") }) {
		r.kernel.at = os.Getenv(kernelPlace)
	}
	if r.kernel.at != "" {
		s, err := r.kernel.look()
		if err != nil {
			return err
		}
		defer s.Close()
		k := listedKernel(s)
		list = func(pattern string) ([]string, error) { return k.List(pattern, r.verbose) }
	}
	for _, some := range patterns {
		for _, p := range strings.Split(some, ",") {
			places, err := list(strings.TrimSpace(p))
			if err != nil {
				return err
			}
			for _, place := range places {
				if _, err := fmt.Fprintln(w, place); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// collectAt is by how many percent memory may grow before it is collected: a script is compiled and proved at its
// start, what that leaves behind is little, and from then on next to nothing is allocated.
const collectAt = 400

func (r *scriptRequest) run(args []string) (err error) {
	debug.SetGCPercent(collectAt)
	if r.list && r.text == "" && (len(args) == 0 || !isFile(args[0])) {
		if len(args) > 0 && strings.HasSuffix(args[0], ".bt") {
			fmt.Fprintf(os.Stderr, "WARNING: It appears that '%[1]s' is a filename but the file does not exist. Treating '%[1]s' as a search pattern.\n", args[0])
		}
		return r.listing(os.Stdout, args)
	}
	name, text, params, err := r.source(args)
	switch {
	case err != nil:
		return err
	case r.list:
		patterns, err := script.Patterns(name, text)
		if err != nil {
			return told(err)
		}
		return r.listing(os.Stdout, patterns)
	case r.fmt:
		return r.formatted(name, text)
	}
	if err := r.fits(); err != nil {
		return err
	}
	if r.noTarget() && script.WantsKernel(name, text) {
		r.kernel.at = os.Getenv(kernelPlace)
	}
	dst, end, err := create(r.output)
	if err != nil {
		return err
	}
	defer end(&err)
	out := &buffered{bufio.NewWriter(dst), r.buffer}
	o := r.options(name, params, out)
	if r.check {
		s, err := script.Compile(text, o)
		if err != nil {
			return told(err)
		}
		return errors.Join(r.debug(s), s.Verify())
	}
	code, err := r.attach(text, o)
	if err = errors.Join(err, out.Flush()); err == nil && code != 0 {
		return exitStatus(code)
	}
	return err
}

// fits holds that the flags go together.
func (r *scriptRequest) fits() error {
	switch {
	case r.test && r.bench:
		return asBpftraceSays("USAGE: --bench conflicts with existing --mode")
	case r.told && r.silent:
		return asBpftraceSays("USAGE: -k, --warnings conflicts with --no-warnings")
	case r.format != "text" && r.format != "json":
		return asBpftraceSays("Invalid output format %q: valid formats are text and json", r.format)
	case r.command != "" && len(r.pids) > 0:
		return asBpftraceSays("USAGE: Cannot use both -c and -p.")
	case r.command != "" && r.kernel.at != "", len(r.pids) > 0 && r.kernel.at != "":
		return errors.New("either -p, -c or -k")
	}
	return nil
}

// noTarget tells whether neither a process, a command nor a kernel was named.
func (r *scriptRequest) noTarget() bool {
	return len(r.pids) == 0 && r.command == "" && r.kernel.at == ""
}

// options are the script's, as far as no target decides them.
func (r *scriptRequest) options(name string, params []string, out io.Writer) script.Options {
	o := script.Options{Include: r.include, IncludeFolders: r.folders, Suite: r.suite(), Filter: r.filter, Told: r.told, Verbose: r.verbose, Dry: r.dry,
		Name: name, Params: params, Unsafe: r.unsafe, Kernel: r.kernel.at != "", JSON: r.format == "json", Quiet: r.quiet, NoWarnings: r.silent,
		Output: out, Errors: os.Stderr, Settings: settings()}
	if os.Getenv(notify) != "" {
		o.Ready = func() { fmt.Fprintln(os.Stderr, notify) }
	}
	return o
}

// attach has the script see its target: the processes that map its files where none is named.
func (r *scriptRequest) attach(text string, o script.Options) (code int, err error) {
	var users *script.Users
	if r.noTarget() && !r.dry && o.Suite == script.NoSuite {
		if users = script.UsersOf(o.Name, text); users != nil {
			defer users.Close()
		}
	}
	o.Several, o.Newcomers = users != nil || len(r.pids) > 1, users != nil
	signals := catchSignals()
	several := &joining{request: r, users: users}
	pl := placingUntil(signals)
	defer pl.done(nil)
	session, program, err := r.target(several, pl)
	if err != nil {
		return 0, pl.done(err)
	}
	if session != nil {
		defer func() { err = errors.Join(err, ignoreClosed(session.Close())) }()
		o.Machine = session.Target().Arch()
		if k, ok := session.Target().(*kernel.Target); ok {
			ofKernel(&o, k)
		}
	}
	if program != nil {
		o.CPID, o.PID = program.Pid, program.Pid
	} else if len(r.pids) == 1 {
		o.PID = r.pids[0]
	}
	s, runs, err := r.compiled(text, o, session != nil)
	if !runs {
		r.kill(program)
		return 0, err
	}
	return r.work(s, session, program, several, signals, pl)
}

// ofKernel are the options that a kernel decides.
func ofKernel(o *script.Options, k *kernel.Target) {
	if known, err := k.Kernel().Types(); err == nil {
		o.KernelTypes = known.Spec()
	}
	o.Events = func() (*point.TraceEvents, error) { return eventsOf(k) }
	o.CPUs = func() (int, error) {
		cpus, err := k.CPUs()
		return len(cpus.Numbers), err
	}
	o.KernelSymbol = func(name string) (uint64, error) {
		for _, s := range k.Kernel().Lookup(name) {
			return uint64(s.Addr), nil
		}
		if !k.Kernel().HasData() {
			return 0, errors.New(": no such symbol: the kernel's symbols are of functions only (CONFIG_KALLSYMS_ALL is off)")
		}
		return 0, errors.New(": no such symbol")
	}
}

// compiled is a script that runs; one whose help was asked for does not, nor does one that has nothing to attach to.
func (r *scriptRequest) compiled(text string, o script.Options, attached bool) (s *script.Script, runs bool, err error) {
	if s, err = script.Compile(text, o); err != nil {
		return nil, false, told(err)
	}
	if help, asked := s.Help(); asked {
		_, err := fmt.Print(help)
		return nil, false, err
	}
	if names := s.Unasked(); len(names) > 0 {
		return nil, false, asBpftraceSays("Unexpected command line options: %s", strings.Join(names, ", "))
	}
	if err := r.debug(s); err != nil {
		return nil, false, err
	}
	if _, inside := s.Points(); r.dry && !attached && inside > 0 {
		return nil, false, s.Verify()
	}
	return s, true, nil
}

// work runs the script to its end.
func (r *scriptRequest) work(s *script.Script, session *kprobe.Session, program *os.Process, several *joining, signals <-chan os.Signal, pl *placing) (code int, err error) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR1)
	defer signal.Stop(asked)
	run, err := s.Start(session)
	if err = pl.done(err); err != nil {
		r.kill(program)
		if run != nil {
			_, _ = run.Close() // what it says is of no use behind that
		}
		return 0, err
	}
	if r.dry {
		r.kill(program)
		return 0, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var interrupted atomic.Bool
	go func() {
		<-signals
		interrupted.Store(true)
		cancel()
	}()
	go func() {
		for {
			select {
			case <-asked:
				run.Trigger()
			case <-ctx.Done():
				return
			}
		}
	}()
	several.run.Store(run)
	if session != nil {
		session.Continue()
	}
	ended := several.begin(ctx)
	if err = several.failed; err == nil {
		err = run.Wait(ctx)
	}
	if err == nil && session != nil {
		err = lasted(session)
	}
	cancel()
	<-ended
	code, closing := run.Close()
	if program != nil && !interrupted.Load() {
		// The script has said exit: its command ends with it.
		if _, over := session.Exited(); !over {
			_ = program.Signal(syscall.SIGTERM) // it may have ended just now
		}
	}
	return code, errors.Join(err, closing)
}

// kernelPlace is a variable of the environment: -k of scripts that have probes on a kernel, and name no target.
const kernelPlace = "KPROBE_KERNEL"

// notify is a variable of the environment, and the line that bpftrace prints where it is set once the probes are there: what
// starts bpftrace and then the program that it is to see waits for that.
const notify = "__BPFTRACE_NOTIFY_PROBES_ATTACHED"

// kill ends a command that never ran.
func (r *scriptRequest) kill(program *os.Process) {
	if program != nil {
		_ = program.Kill() // it may be over
	}
}

// target attaches to the process, starts the command, or connects to the kernel; nil
// where the script is to have none.
func (r *scriptRequest) target(several *joining, pl *placing) (*kprobe.Session, *os.Process, error) {
	o := &kprobe.Options{Report: report, Mapped: several.mapped}
	var p *ptrace.Process
	var err error
	switch {
	case r.kernel.at != "":
		s, err := r.kernel.open(pl, o)
		return s, nil, err
	case r.command != "":
		argv := words(r.command)
		if len(argv) == 0 {
			return nil, nil, errors.New("-c: no command")
		}
		if _, errPath := exec.LookPath(argv[0]); errPath != nil {
			return nil, nil, asBpftraceSays("path '%s' does not exist or is not executable", argv[0])
		}
		p, err = ptrace.Start(argv, nil)
	case len(r.pids) == 1:
		p, err = ptrace.Attach(r.pids[0])
	default:
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var program *os.Process
	if r.command != "" {
		if program, err = os.FindProcess(p.PID()); err != nil {
			return nil, nil, err
		}
		pl.started(program)
	}
	s, err := pl.open(p, o)
	if err != nil {
		r.kill(program)
		return nil, nil, errors.Join(err, ignoreClosed(p.Close()))
	}
	return s, program, nil
}

// listedKernel is a kernel whose attach points are listed.
func listedKernel(s *kprobe.Session) (k script.Listed) {
	k.Session = s
	if t, ok := s.Target().(*kernel.Target); ok {
		if known, err := t.Kernel().Types(); err == nil {
			k.Types = known.Spec()
		}
		if events, err := eventsOf(t); err == nil {
			k.Events = events
		}
	}
	return k
}

// eventsOf are a kernel's trace events as scripts know them.
func eventsOf(k *kernel.Target) (*point.TraceEvents, error) {
	all, at, err := k.Kernel().Events()
	if err != nil {
		return nil, err
	}
	events := &point.TraceEvents{File: at.File, Entry: at.Entry}
	for _, e := range all {
		events.All = append(events.All, point.Event{System: e.System, Name: e.Name, Record: e.Record, File: uint64(e.File), On: e.On})
	}
	return events, nil
}

// told prints errors of scripts as bpftrace does, and leaves the status.
func told(err error) error {
	var all syntax.Errors
	if !errors.As(err, &all) {
		return err
	}
	fmt.Fprintln(os.Stderr, all)
	return exitStatus(1)
}

// buffered is an output that is written as -B says: line by line, at once, or when there is much.
type buffered struct {
	*bufio.Writer
	mode string
}

func (f *buffered) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil && (f.mode == "none" || f.mode != "full" && bytes.IndexByte(b, '\n') >= 0) {
		err = f.Flush()
	}
	return n, err
}

func (f *buffered) WriteString(s string) (int, error) { return f.Write([]byte(s)) }

// suite is which of the script's own probes -test and -bench ask for.
func (r *scriptRequest) suite() script.Suite {
	switch {
	case r.test:
		return script.Tests
	case r.bench:
		return script.Benches
	}
	return script.NoSuite
}

// formatted prints the script in its one form, to the file of -o if there is one.
func (r *scriptRequest) formatted(name, text string) error {
	text, err := script.Format(name, text)
	switch {
	case err != nil:
		return told(err)
	case r.output != "":
		return os.WriteFile(r.output, []byte(text), 0o666)
	}
	_, err = fmt.Print(text)
	return err
}

// debug prints the stages that -d names.
func (r *scriptRequest) debug(s *script.Script) error {
	for _, name := range r.stages {
		for _, stage := range strings.Split(name, ",") {
			text, err := s.Stage(stage)
			if err != nil {
				return asBpftraceSays("USAGE: invalid option for -d: %s", stage)
			}
			if _, err := fmt.Print(text); err != nil {
				return err
			}
		}
	}
	return nil
}
