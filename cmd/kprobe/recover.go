package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"kprobe/target/ptrace"
)

func recoverCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "recover [PID]...",
		Short: "Restore processes whose kprobe was killed together with its guardian",
		Long: `A kprobe that is killed leaves a guardian behind, which restores the process at
once. Where that was killed too, the process works on with the probes in place;
this puts it back as it was. Without a PID, all such processes are restored.`,
		RunE: func(c *cobra.Command, args []string) error {
			var pids pidList
			for _, a := range args {
				if err := pids.Set(a); err != nil {
					return fmt.Errorf("%q: %w", a, err)
				}
			}
			if len(pids) == 0 {
				return recoverProcesses(c.OutOrStdout(), 0)
			}
			var errs []error
			for _, pid := range pids {
				errs = append(errs, recoverProcesses(c.OutOrStdout(), pid))
			}
			return errors.Join(errs...)
		},
	}
}

// recoverProcesses prints a line for each process that it finds: pid, or any
// for 0.
func recoverProcesses(w io.Writer, pid int) error {
	done, err := ptrace.Recover(pid)
	errs := []error{err}
	for _, r := range done {
		switch {
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
