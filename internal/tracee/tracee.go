// Package tracee is a stopped task as ptrace(2) and its machine have it: requests, reports, registers, siginfo, the calls and
// signal frames of its programs, and the loop in which a child waits for its tracer. It knows a task by its number and
// nothing of processes, sessions or probes: package ptrace makes a target of tasks.
//
//	what                                      its file
//	requests, and what they answer            request.go, reports.go
//	registers                                 regs_MACHINE.go; regs_*.go what some machines share
//	siginfo                                   siginfo.go
//	how programs and the kernel speak         abi.go, abi_MACHINE.go: a record for each kind of program
//	what seccomp's filters are asked          inputs.go
//	a signal's frame                          sigframe_MACHINE.go, restart_fixed.go
//	the loop of a child                       loop.go
package tracee
