package main

import (
	"fmt"
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
		Use:   "plan {(-p PID | -k PLACE) DEFINITION... | --jumps FILE...}",
		Short: "Tell what definitions would do, and why; nothing is touched",
		Long: `Tell for every place that the definitions name: its address, the bytes of the
instruction, whether that is copied to a slot, emulated or refused, by which
means the probe works, and why so. The process, or kernel, is only read. The exit status
is 1 where a trace with these definitions would be refused.

With --jumps it tells of ELF files, for the entries of their functions and for all
of their instructions, how many can be probed by a jump, and by which tactic:

  whole    the instruction is long enough for a jump
  guarded  others move with it; where they were, the jump's bytes trap
  pun      the jump's last bytes are the following instructions, unchanged
  trap     none of these: the probe is a trap, with the reasons below`,
		Example: `  kprobe plan -p 1234 'p libc.so.6:malloc' 'r libc.so.6:malloc $retval'
  kprobe plan --jumps /usr/bin/git`,
		RunE: func(c *cobra.Command, args []string) error {
			if survey {
				return surveyAll(c.OutOrStdout(), args)
			}
			rest, err := r.processes(args)
			if err != nil {
				return err
			}
			defs, err := r.definitions(rest)
			if err != nil {
				return err
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

func plan(on subject, defs []string) (string, error) {
	s, err := on.look()
	if err != nil {
		return "", err
	}
	defer s.Close()
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
			if e.Verdict == "refuse" {
				refused++
			}
		}
	}
	if refused > 0 {
		err = fmt.Errorf("%v: %d of %d places cannot be probed", on, refused, places)
	}
	return b.String(), err
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
