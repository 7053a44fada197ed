package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/script"
	"kprobe/script/syntax"
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
	stages  string // -d
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
	r.scriptFlags(c)
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
	f.BoolVarP(&r.list, "list", "l", false, "list the places that a pattern matches: -l 'uprobe:libc:mall*'")
	f.BoolVarP(&r.quiet, "quiet", "q", false, "say nothing of probes that were attached")
	f.StringVarP(&r.stages, "debug", "d", "", "print a `STAGE`: ast, code")
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

// listing prints what the patterns match.
func (r *scriptRequest) listing(w io.Writer, patterns []string) error {
	if len(patterns) == 0 {
		return errors.New("-l: no pattern given, such as 'uprobe:libc:mall*'")
	}
	for _, p := range patterns {
		places, err := script.List(p)
		if err != nil {
			return err
		}
		for _, place := range places {
			if _, err := fmt.Fprintln(w, place); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *scriptRequest) run(args []string) (err error) {
	if r.list {
		return r.listing(os.Stdout, args)
	}
	name, text, params, err := r.source(args)
	if err != nil {
		return err
	}
	if r.fmt {
		formatted, err := script.Format(name, text)
		if err == nil {
			_, err = fmt.Print(formatted)
		}
		return told(err)
	}
	switch {
	case r.format != "text" && r.format != "json":
		return fmt.Errorf("invalid output format %q: valid formats are text and json", r.format)
	case len(r.pids) > 1:
		return errors.New("a script runs on one process")
	case r.command != "" && (len(r.pids) > 0 || r.kernel.at != ""), len(r.pids) > 0 && r.kernel.at != "":
		return errors.New("either -p, -c or -k")
	}
	dst := os.Stdout
	if r.output != "" {
		if dst, err = os.Create(r.output); err != nil {
			return err
		}
		defer dst.Close()
	}
	out := &flushed{bufio.NewWriter(dst)}
	o := script.Options{Name: name, Params: params, Unsafe: r.unsafe, Kernel: r.kernel.at != "", JSON: r.format == "json", Quiet: r.quiet,
		Output: out, Errors: os.Stderr, Settings: settings()}
	signals := catchSignals()
	session, program, err := r.target()
	if err != nil {
		return err
	}
	if session != nil {
		defer func() { err = errors.Join(err, session.Close()) }()
	}
	if program != nil {
		o.CPID = program.Pid
	}
	s, err := script.Compile(text, o)
	if err != nil {
		r.kill(program)
		return told(err)
	}
	if strings.Contains(r.stages, "code") {
		fmt.Print(s.Code())
	}
	code, err := r.work(s, session, program, signals)
	if err = errors.Join(err, out.Flush()); err == nil && code != 0 {
		return exitStatus(code)
	}
	return err
}

// work runs the script to its end.
func (r *scriptRequest) work(s *script.Script, session *kprobe.Session, program *os.Process, signals <-chan os.Signal) (code int, err error) {
	run, err := s.Start(session)
	if err != nil {
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
	go func() {
		<-signals
		cancel()
	}()
	if session != nil {
		session.Continue()
	}
	err = run.Wait(ctx)
	code, closing := run.Close()
	if program != nil && ctx.Err() == nil {
		// The script has said exit: its command ends with it.
		if _, over := session.Exited(); !over {
			_ = program.Signal(syscall.SIGTERM) // it may have ended just now
		}
	}
	return code, errors.Join(err, closing)
}

// kill ends a command that never ran.
func (r *scriptRequest) kill(program *os.Process) {
	if program != nil {
		_ = program.Kill() // it may be over
	}
}

// target attaches to the process, starts the command, or connects to the kernel; nil
// where the script is to have none.
func (r *scriptRequest) target() (*kprobe.Session, *os.Process, error) {
	o := &kprobe.Options{Report: report}
	var p *ptrace.Process
	var err error
	switch {
	case r.kernel.at != "":
		s, err := r.kernel.open(o)
		return s, nil, err
	case r.command != "":
		argv := words(r.command)
		if len(argv) == 0 {
			return nil, nil, errors.New("-c: no command")
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
	}
	s, err := kprobe.Open(p, o)
	if err != nil {
		r.kill(program)
		return nil, nil, errors.Join(err, ignoreClosed(p.Close()))
	}
	return s, program, nil
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

// flushed is an output whose every line is seen at once.
type flushed struct{ *bufio.Writer }

func (f *flushed) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	if err == nil {
		err = f.Flush()
	}
	return n, err
}

func (f *flushed) WriteString(s string) (int, error) { return f.Write([]byte(s)) }

// asBpftrace tells whether the binary was called by that name.
func asBpftrace() bool {
	return len(os.Args) > 0 && strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe") == "bpftrace"
}

// bpftraceCommand takes bpftrace's own command line.
func bpftraceCommand() *cobra.Command {
	c := scriptCommand()
	c.Use = "bpftrace [FLAGS] {FILE | -e TEXT} [PARAMETER...]"
	c.SilenceErrors, c.SilenceUsage = true, true
	f := c.Flags()
	f.StringP("buffer", "B", "line", "how output is buffered; each line is written at once")
	f.StringP("include-dir", "I", "", "not used: types come without headers")
	f.String("include", "", "not used: types come without headers")
	f.Bool("no-warnings", false, "not used")
	f.BoolP("verbose", "v", false, "not used")
	f.Bool("no-feature", false, "not used")
	f.BoolP("version", "V", false, "print the version")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if v, _ := f.GetBool("version"); v {
			fmt.Println("bpftrace v0.26.0 (kprobe)")
			return nil
		}
		return run(c, args)
	}
	return c
}
