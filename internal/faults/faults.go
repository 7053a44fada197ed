// Package faults is the seam at which tests make the controller's own system
// calls fail, one by one: what cannot be provoked from outside (a ptrace request
// that is refused half way through a batch, a file that cannot be opened just
// then) is refused here. Every function that makes such a call asks At first.
// In production nothing is ever injected, and asking costs one comparison.
package faults

// Call names a system call that is about to be made.
type Call struct {
	Name    string // as its manual page has it
	Request int    // ptrace's request, else 0
}

// Inject answers the error that a call is to fail with instead of being made,
// or nil. It is set by a test before anything that could ask runs, and it is
// called from several threads at once.
var Inject func(Call) error

// At is the error that the call about to be made fails with: nil, but in tests.
func At(name string, request int) error {
	if Inject == nil {
		return nil
	}
	return Inject(Call{name, request})
}
