package kprobe

import "kprobe/symbol"

// Symbols are the files and names of the target, as of the last registration or
// Refresh.
func (s *Session) Symbols() *symbol.Space { return s.e.On.Image.Space }

// Refresh looks at what the target has mapped now. Not from a handler (EDEADLK).
// Errors: ESRCH.
func (s *Session) Refresh() (err error) { return s.e.Refresh() }

// Lookup finds the function that a Kprobe with this SymbolName would be on; where no function has that name,
// the variable that a Watchpoint would be on: its Func.Kind is symbol.Data, and its Size 0 where that is not known.
// Not from a handler (EDEADLK), which has Symbols. Errors: ENOENT, EADDRNOTAVAIL;
// EINVAL where it is bound to the kernel's code; ESRCH.
func (s *Session) Lookup(symbolName string) (loc symbol.Loc, err error) {
	if err := s.e.Turns.BeginUse(); err != nil {
		return loc, err
	}
	defer s.e.Turns.End(&err)
	return s.e.On.Image.Symbol(symbolName)
}
