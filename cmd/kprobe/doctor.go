package main

import (
	"fmt"
	"io"
	"strings"

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
	fmt.Fprint(w, checks(d))
	for _, m := range machine.All() {
		says, lacks := "targets of it can have all that there is", ""
		for _, p := range m.Parts() {
			if p.Err != nil {
				says = "targets of it can have probes, but for"
				lacks += fmt.Sprintf("%19s- %s: %v\n", "", p.Gives, p.Err)
			}
		}
		fmt.Fprintf(w, "    %-13s  %s\n%s", m.Arch.Name, says, lacks)
	}
	return nil
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
