package target

// Start says how far a program is that was just started: its only thread waits and is owed a
// Resume, before the first instruction of its program unless that has begun.
type Start struct {
	Thread    Thread
	Begun, OK bool // OK: it was just started

	Withheld error // as a Stop's
}

// StartOf asks a target for it, before the target is served: serving lets go threads that are not
// held.
func StartOf(t Target) (s Start) {
	if f, ok := t.(Starter); ok {
		s.Thread, s.Begun, s.OK = f.Fresh()
	}
	if w, ok := t.(Withholder); ok {
		s.Withheld = w.Withheld()
	}
	return s
}
