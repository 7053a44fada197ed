package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/target/ptrace"
	"kprobe/trace"
)

func planCommand() *cobra.Command {
	var r request
	var survey bool
	c := &cobra.Command{
		Use:   "plan {(-p PID | -k PLACE) DEFINITION... | DEFINITION... -- PROGRAM [ARGUMENT...] | --jumps FILE...}",
		Short: "Tell what definitions would do, and why; nothing is touched",
		Long: `Tell for every place that the definitions name: its address, the bytes of the
instruction, whether that is copied to a slot, emulated or refused, by which
means the probe works, and why so. The process, or kernel, is only read. Of a program, what would be
is told of when it has loaded its libraries; it runs no further. The exit status
is 1 where a trace with these definitions would be refused.

With --jumps it tells of ELF files, for the entries of their functions and for all
of their instructions, how many can be probed by a jump, and by which tactic:

  whole    the instruction is long enough for a jump
  behind   a landing pad stays, and the instruction behind it has the jump
  guarded  others move with it; where they were, the jump's bytes trap
  pun      the jump's last bytes are the following instructions, unchanged
  trap     none of these: the probe is a trap, with the reasons below`,
		Example: `  kprobe plan -p 1234 'p libc.so.6:malloc' 'r libc.so.6:malloc $retval'
  kprobe plan --jumps /usr/bin/git`,
		RunE: func(c *cobra.Command, args []string) error {
			if survey {
				return surveyAll(c.OutOrStdout(), args)
			}
			defs, err := r.targets(c, args)
			if err != nil {
				return err
			}
			if r.program != nil {
				return r.planProgram(c.OutOrStdout(), defs)
			}
			return r.each(c.OutOrStdout(), func(on subject) (string, error) { return plan(on, defs) })
		},
	}
	r.pidFlag(c)
	r.kernelFlag(c)
	r.stubFlag(c)
	r.definitionFlags(c)
	c.Flags().BoolVar(&survey, "jumps", false, "how much of ELF files can be probed by jumps")
	return c
}

// planProgram tells it of a program, which is started for it and ends before its first instruction.
func (r *request) planProgram(w io.Writer, defs []string) error {
	t := tracing{placing: placingUntil(catchSignals())} // a signal ends the program
	t.placing.until = "the plan was whole"
	err := t.start(r.program, &kprobe.Options{Report: report})
	var text string
	if err == nil {
		text, err = planOn(t.sessions[0], r.program[0], defs)
	}
	t.abort()
	err = t.placing.done(err)
	var interrupted *interruptedError
	if errors.As(err, &interrupted) {
		return err // the plan of a program that was ended is wrong
	}
	if _, failed := io.WriteString(w, text); failed != nil {
		return failed
	}
	return err
}

func plan(on subject, defs []string) (string, error) {
	s, err := on.look()
	if err != nil {
		return "", err
	}
	defer s.Close()
	return planOn(s, on.String(), defs)
}

func planOn(s *kprobe.Session, on string, defs []string) (string, error) {
	var b strings.Builder
	places, refused := 0, 0
	for _, def := range defs {
		es, err := trace.Plan(s, def)
		if err != nil {
			return b.String(), err
		}
		for _, e := range es {
			fmt.Fprintln(&b, e)
			places++
			if e.Verdict == kprobe.VerdictRefuse {
				refused++
			}
		}
	}
	if refused > 0 {
		return b.String(), fmt.Errorf("%s: %d of %d places cannot be probed", on, refused, places)
	}
	return b.String(), nil
}

// look opens a session that only reads.
func look(pid int) (*kprobe.Session, error) {
	p, err := ptrace.Look(pid)
	if err != nil {
		return nil, err
	}
	s, err := kprobe.Look(p, nil)
	if err != nil {
		p.Close()
	}
	return s, err
}
