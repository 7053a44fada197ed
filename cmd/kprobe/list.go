package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"kprobe"
	"kprobe/internal/lifeline"
)

func listCommand() *cobra.Command {
	var r request
	c := &cobra.Command{
		Use:   "list (-p PID | -k PLACE)",
		Short: "List the probes on a process or kernel, as the kernel's file kprobes/list does",
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.onlyProcesses(args); err != nil {
				return err
			}
			return r.each(c.OutOrStdout(), list)
		},
	}
	r.pidFlag(c)
	r.kernelFlag(c)
	return c
}

func list(on subject) (string, error) {
	var sessions []kprobe.SessionState
	var err error
	if on.pid == 0 {
		sessions, err = on.kernel.sessions()
	} else if sessions, err = kprobe.Sessions(on.pid); lifeline.StartTime(on.pid) == 0 {
		return "", fmt.Errorf("no process %d", on.pid)
	}
	var b strings.Builder
	for _, s := range sessions {
		b.WriteString(s.List)
	}
	return b.String(), err
}

func blacklistCommand() *cobra.Command {
	var r request
	c := &cobra.Command{
		Use:   "blacklist (-p PID | -k PLACE)",
		Short: "List where probes are refused, as the kernel's file blacklist does, and why",
		RunE: func(c *cobra.Command, args []string) error {
			if err := r.onlyProcesses(args); err != nil {
				return err
			}
			return r.each(c.OutOrStdout(), blacklist)
		},
	}
	r.pidFlag(c)
	r.kernelFlag(c)
	r.stubFlag(c)
	return c
}

func blacklist(on subject) (string, error) {
	s, err := on.look()
	if err != nil {
		return "", err
	}
	defer s.Close()
	es, err := s.BlackList()
	var b strings.Builder
	for _, e := range es {
		fmt.Fprintf(&b, "%v\t%s\n", e, e.Reason)
	}
	return b.String(), err
}
