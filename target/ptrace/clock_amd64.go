//go:build linux

package ptrace

// Counter is the time-stamp counter now, for code that may not read it (PR_SET_TSC).
func (p *Process) Counter() uint64 { return timeStamp() }
