package returns

import (
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/symbol"
)

// NativeStack is the stack that a thread was born with: of the first one, what grows down under that
// name; of others, the mapping that has their descriptor at its upper end, as C libraries do it.
// Nothing where that cannot be told.
func NativeStack(maps []symbol.Mapping, first bool, tcb uint64) (r arch.Range) {
	floor := arch.Addr(0)
	for _, m := range maps {
		switch {
		case first && m.Path == "[stack]":
			r = arch.Range{Start: floor, End: m.End}
		case !first && arch.Addr(tcb) >= m.Start && arch.Addr(tcb) < m.End:
			r = m.Range()
		}
		floor = m.End
	}
	return r
}

// Stacks are those that threads were born with: of them it is known that what lies below the
// stack pointer is over. The zero value is ready to use.
type Stacks struct{ of map[int]arch.Range }

// Of names the stack that a thread stands on by its end; 0 for one that it was not born with.
func (s *Stacks) Of(thread, pid int, sp arch.Addr, tcb uint64, maps func() ([]symbol.Mapping, error)) uint64 {
	r, seen := s.of[thread]
	if !seen {
		if s.of == nil {
			s.of = make(map[int]arch.Range)
		}
		all, _ := maps()
		r = NativeStack(all, thread == pid, tcb)
		s.of[thread] = r
	}
	if sp < r.Start || sp >= r.End {
		return 0
	}
	return uint64(r.End)
}

// Forget names the stack of a thread that has ended. No other has the name 1.
func (s *Stacks) Forget(thread int) uint64 {
	r := s.of[thread]
	delete(s.of, thread)
	return max(uint64(r.End), 1)
}

// Popped finds, among calls by the stack slots of their return addresses, the one that has returned
// with this stack pointer: its slot is the word just popped, or further up where the return popped
// arguments too. The zero value where there is none.
func Popped[C any](at map[arch.Addr]C, sp arch.Addr, a *arch.Arch) (slot arch.Addr, c C) {
	slot = sp - arch.Addr(a.PtrSize)
	if c, ok := at[slot]; ok {
		return slot, c
	}
	const mostPopped = 1 << 16
	var best arch.Addr
	for k := range at {
		if k < slot && slot-k < mostPopped && k > best {
			best = k
		}
	}
	return best, at[best]
}

// Walkers are the functions that walk the stack and return, Unwinders those that
// end the frames they walk over.
var (
	Walkers   = []string{"backtrace", "_Unwind_Backtrace"}
	Unwinders = []string{"_Unwind_RaiseException", "_Unwind_Resume_or_Rethrow", "_Unwind_ForcedUnwind"}
)

// GoProgram names the program if it is a Go program.
func GoProgram(space *symbol.Space) string {
	for _, m := range space.Modules() {
		if m.File != nil && m.File.IsGo() {
			return m.Name
		}
	}
	return ""
}

// Everywhere names functions in every module that has them, and in the library that
// is loaded when one is first needed: that is waited for, as any probe's is.
func Everywhere(space *symbol.Space, functions []string) (names []string) {
	for _, f := range functions {
		if strings.HasPrefix(f, "_Unwind") {
			names = append(names, "libgcc_s.so.1:"+f)
		}
		for _, m := range space.Defining(f) {
			if name := m.Name + ":" + f; !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	return names
}
