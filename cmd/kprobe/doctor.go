package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kprobe/target/ptrace"
)

func doctorCommand() *cobra.Command {
	var r request
	c := &cobra.Command{
		Use:   "doctor -p PID",
		Short: "Tell whether a process can be probed, and if not, what would help",
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.onlyProcesses(args); err != nil {
				return err
			}
			return r.each(c.OutOrStdout(), diagnose)
		},
	}
	r.pidFlag(c)
	return c
}

func diagnose(on subject) (string, error) {
	d := ptrace.Diagnose(on.pid)
	var b strings.Builder
	for _, check := range d {
		verdict := "ok"
		if !check.OK {
			verdict = "NO"
		}
		fmt.Fprintf(&b, "%s  %-13s  %s\n", verdict, check.Name, check.Says)
	}
	if !d.OK() {
		return b.String(), fmt.Errorf("%v cannot be probed: %s", on, d.Obstacle())
	}
	return b.String(), nil
}
