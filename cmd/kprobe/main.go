// Command kprobe puts probes on running processes: it reads definitions, asks
// the engine (package kprobe) and prints. One file a verb:
//
//	trace.go     the verb trace; process.go attaches or starts, output.go carries events out
//	graph.go     the verb graph: calls as they lie in each other
//	record.go    the same into a file; report.go prints that file
//	stat.go      counts and times; bystack.go, counts by who called
//	top.go       a live table of calls; top_screen.go, what it shows; top_callers.go, who calls the chosen one
//	script.go    scripts in bpftrace's language
//	placing.go   signals that come before the probes are in place
//	plan.go      what a definition would do; jumps.go, where jumps can be
//	list.go      the probes on a process, and where none may be
//	doctor.go    whether a process can be probed
//	recover.go   what a killed kprobe, and its guardian, left behind
//	kernel.go    a kernel instead of a process
//	stub.go      a program behind a GDB stub
//	vm.go        a kernel to try it on
//	insns.go     the instructions of a file, as the engine decodes them
//
// What the verbs have in common is how they are asked: request.go. Everything
// that is wrong gets one line on standard error and exit status 1.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"kprobe/internal/debuginfod"
	"kprobe/source/bind"
	"kprobe/spec"
)

func main() {
	fetchDebugData()
	if asBpftrace() {
		os.Exit(tellBpftrace(bpftraceCommand().Execute()))
	}
	os.Exit(status(root().Execute()))
}

// fetchDebugData lets debug data be fetched from the servers that the environment names.
func fetchDebugData() {
	c := debuginfod.FromEnvironment()
	if c == nil {
		return
	}
	c.Tell = func(what string) { report(errors.New(what)) }
	bind.Elsewhere = func(id []byte) (io.ReaderAt, error) {
		f, err := c.Open(id)
		if err != nil {
			return nil, err // and no reader that is a nil file
		}
		return f, nil
	}
}

// exitStatus ends kprobe with a status of somebody else's choice, and says
// nothing: the program that was traced has had its say.
type exitStatus int

func (e exitStatus) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// status tells a verb's error to the user and turns it into an exit status.
func status(err error) int {
	return statusOf(err, report)
}

// statusOf is status for those who tell errors in words of their own.
func statusOf(err error, tell func(error)) int {
	var exit exitStatus
	var interrupted *interruptedError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &interrupted):
		tell(err)
		return interrupted.status()
	case errors.As(err, &exit):
		return int(exit)
	}
	tell(err)
	return 1
}

// complain prints an error on one line. A definition that was refused follows,
// with a caret where it went wrong.
func complain(w io.Writer, err error) {
	fmt.Fprintf(w, "kprobe: %s\n", strings.Map(printable, strings.ReplaceAll(err.Error(), "\n", "; ")))
	var bad *spec.SyntaxError
	if errors.As(err, &bad) {
		// The caret's column counts characters, the offset bytes.
		at := min(bad.Offset, len(bad.Line))
		column := utf8.RuneCountInString(bad.Line[:at]) + bad.Offset - at
		fmt.Fprintf(w, "  %s\n  %*s\n", strings.Map(printable, bad.Line), column+1, "^")
	}
}

// printable keeps what others have put into names from moving the cursor.
func printable(r rune) rune {
	if unicode.IsPrint(r) {
		return r
	}
	return ' '
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "kprobe",
		Short: "Kprobes for running processes",
		// A usage text is for those who ask for it (--help).
		SilenceErrors: true,
		SilenceUsage:  true,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil // the help
			}
			if near := c.SuggestionsFor(args[0]); len(near) > 0 {
				return fmt.Errorf("no command %q: did you mean %s?", args[0], strings.Join(near, " or "))
			}
			return fmt.Errorf("no command %q: see kprobe --help", args[0])
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() }, // Args lets nothing else pass
	}
	c.AddCommand(traceCommand(), graphCommand(), recordCommand(), reportCommand(), statCommand(), topCommand(), runCommand(), scriptCommand(), planCommand(), listCommand(), blacklistCommand(),
		funcsCommand(), varsCommand(), linesCommand(), doctorCommand(), recoverCommand(), vmCommand(), insnsCommand(), versionCommand())
	c.SetHelpCommand(helpCommand(c))
	c.SuggestionsMinimumDistance = 2
	c.InitDefaultCompletionCmd()
	for _, sub := range c.Commands() {
		if sub.Name() == "completion" {
			sub.RunE = func(*cobra.Command, []string) error {
				return errors.New("completion for which shell? bash, zsh, fish or powershell")
			}
		}
	}
	return c
}

// helpCommand is cobra's, but for a word that is no command it does not print
// everything it knows.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Tell about a command",
		RunE: func(_ *cobra.Command, args []string) error {
			c, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return fmt.Errorf("no command %q: see kprobe --help", strings.Join(args, " "))
			}
			return c.Help()
		},
	}
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print what this program was built from",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			version := "unknown"
			b, ok := debug.ReadBuildInfo()
			if ok {
				version = b.Main.Version + " " + b.GoVersion
			}
			_, err := fmt.Fprintln(c.OutOrStdout(), "kprobe", version)
			return err
		},
	}
}
