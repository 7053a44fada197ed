package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kprobe/internal/lifeline"
	"kprobe/internal/proc"
	"kprobe/target/kernel"
	"kprobe/target/ptrace"
)

func recoverCommand() *cobra.Command {
	list := false
	c := &cobra.Command{
		Use:   "recover [PID]...",
		Short: "Restore what was left by a kprobe that was killed together with its guardian",
		Long: `A kprobe that is killed leaves a guardian behind, which restores the process, or the
machine, at once. Where that was killed too, the process works on with the probes in place,
and the machine stands at the next hit; this puts them back as they were. Without a
PID, it is first said what is being probed and what was left; all that was left is restored, and
what a living kprobe works on is let alone.`,
		RunE: func(c *cobra.Command, args []string) error {
			var pids pidList
			for _, a := range args {
				if err := pids.Set(a); err != nil {
					return fmt.Errorf("%q: %w", a, err)
				}
			}
			w := c.OutOrStdout()
			if len(pids) == 0 {
				return recoverAll(w, list)
			}
			if list {
				return errors.New("--list is of all that there is, without a PID")
			}
			var errs []error
			for _, pid := range pids {
				errs = append(errs, recoverProcesses(w, pid))
			}
			return errors.Join(errs...)
		},
	}
	c.Flags().BoolVar(&list, "list", false, "say what is being probed and what was left, and do nothing")
	return c
}

// recoverAll lists what there is, and restores what was left.
func recoverAll(w io.Writer, listOnly bool) error {
	listProcesses(w) // what is wrong with a journal is told by who would restore by it
	machines, err := kernel.Machines()
	for _, m := range machines {
		who := whose(m.Controller, m.Abandoned)
		if m.Stands {
			who = "may stand: a kprobe that was refused there could not let it go"
		}
		fmt.Fprintf(w, "machine %s: %s\n", m.Address, who)
	}
	if listOnly {
		return err
	}
	errs := []error{err, recoverProcesses(w, 0)}
	for _, m := range machines {
		if m.Abandoned {
			errs = append(errs, recoverMachine(w, m))
		}
	}
	return errors.Join(errs...)
}

// listProcesses prints a line for each process that a kprobe works on, or has left.
func listProcesses(w io.Writer) {
	paths, _ := lifeline.Journals(0)
	for _, path := range paths {
		if j, err := lifeline.Load(path); err == nil {
			name := "has ended"
			if comm, err := proc.Process(j.PID).Name(); err == nil && j.Current() {
				name = comm
			}
			fmt.Fprintf(w, "process %d (%s): %s\n", j.PID, name, whose(j.Controller, j.Abandoned()))
		}
	}
}

// whose says who probes something, or has.
func whose(controller int, abandoned bool) string {
	switch {
	case controller == 0 && abandoned:
		return "was left by a kprobe that could not put all back"
	case abandoned:
		return fmt.Sprintf("was left by kprobe %d, which is dead", controller)
	}
	return fmt.Sprintf("is probed by kprobe %d, or in the care of its guardian", controller)
}

// recoverMachine restores a machine and prints a line.
func recoverMachine(w io.Writer, m kernel.Machine) error {
	err := m.Recover()
	switch {
	case err == nil:
		fmt.Fprintf(w, "machine %s: restored\n", m.Address)
	case kernel.Gone(err):
		fmt.Fprintf(w, "machine %s: %v: it is gone\n", m.Address, ptrace.ErrNothing)
	default:
		return fmt.Errorf("machine %s: %w", m.Address, err)
	}
	return nil
}

// recoverProcesses prints a line for each process that it finds: pid, or any
// for 0.
func recoverProcesses(w io.Writer, pid int) error {
	done, err := ptrace.Recover(pid)
	errs := []error{err}
	for _, r := range done {
		switch {
		case r.Err == nil && r.Stays != "":
			fmt.Fprintf(w, "process %d: restored; %s\n", r.PID, r.Stays)
		case r.Err == nil:
			fmt.Fprintf(w, "process %d: restored\n", r.PID)
		case errors.Is(r.Err, ptrace.ErrNothing):
			fmt.Fprintf(w, "process %d: %v\n", r.PID, r.Err)
		default:
			errs = append(errs, fmt.Errorf("process %d: %w", r.PID, r.Err))
		}
	}
	if pid != 0 && err == nil && len(done) == 0 {
		fmt.Fprintf(w, "process %d: %v\n", pid, ptrace.ErrNothing)
	}
	return errors.Join(errs...)
}
