package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"kprobe/internal/machine"
	"kprobe/internal/vm"
	"kprobe/target/ptrace"
)

func doctorCommand() *cobra.Command {
	var r request
	c := &cobra.Command{
		Use:   "doctor [-p PID]",
		Short: "Tell whether a process can be probed, and if not, what would help",
		Long: `Tell whether a process can be probed, and if not, what would help. Without a process,
tell what can be probed on this system at all, and what is known of each machine.`,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && len(r.pids) == 0 {
				return diagnoseHost(c.OutOrStdout())
			}
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
	text := checks(d)
	if !d.OK() {
		return text, fmt.Errorf("%v cannot be probed: %s", on, d.Obstacle())
	}
	return text, nil
}

func checks(d ptrace.Diagnosis) string {
	var b strings.Builder
	for _, check := range d {
		verdict := "ok"
		if !check.OK {
			verdict = "NO"
		}
		fmt.Fprintf(&b, "%s  %-13s  %s\n", verdict, check.Name, check.Says)
	}
	return b.String()
}

// diagnoseHost tells of processes, of kernels, and of the parts that each machine has.
func diagnoseHost(w io.Writer) error {
	d := ptrace.DiagnoseHost()
	for _, name := range vm.Machines() {
		d = append(d, emulator(name))
	}
	fmt.Fprintf(w, "%s\n", checks(d))
	return printMachines(w)
}

// printMachines prints what targets of each machine can have. Whoever asks for what one lacks is told the reason.
func printMachines(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "targets can have")
	for _, m := range machine.All() {
		fmt.Fprintf(t, "\t%s", m.Arch.Name)
	}
	fmt.Fprint(t, "\nprobes with handlers, at stops")
	for range machine.All() {
		fmt.Fprint(t, "\tyes") // a machine without them has no record
	}
	for i, part := range machine.All()[0].Parts() {
		fmt.Fprintf(t, "\n%s", part.Gives)
		for _, m := range machine.All() {
			cell := "yes"
			if m.Parts()[i].Err != nil {
				cell = "-"
			}
			fmt.Fprintf(t, "\t%s", cell)
		}
	}
	fmt.Fprintln(t)
	return t.Flush()
}

// emulator tells whether kprobe vm can boot a machine here. It is no obstacle: a stub may
// be anywhere.
func emulator(name string) ptrace.Check {
	c := ptrace.Check{Name: "vm " + name, OK: true, Says: "kprobe vm boots its kernels"}
	if err := vm.Emulator(name); err != nil {
		c.Says = "kprobe vm does not boot its kernels: " + err.Error()
	}
	return c
}
