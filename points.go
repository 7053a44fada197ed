package kprobe

import (
	"kprobe/arch"
	"kprobe/internal/inside"
	"kprobe/internal/probed"
	"kprobe/target"
)

// The points of a session.
type (
	point     = probed.Point
	pointList = probed.List
)

// rules answer the engine's questions about the session.
type rules struct{ s *Session }

func (r rules) Taken(jumps pointList) { r.s.threads.TakenOff(jumps) }
func (r rules) Renewed(pt *point)     { r.s.threads.Renew(pt) }

func (r rules) Forbidden(a arch.Addr) bool { _, bad := r.s.on.Image.Forbidden(a); return bad }
func (r rules) OnCPUs() bool               { return r.s.on.Kind.OnCPUs() }
func (r rules) Gateless() string           { return r.s.optimizer.Gateless() }

func (r rules) Comm(th target.Thread) string { return r.s.Comm(int(th)) }
func (r rules) Doubted()                     { r.s.optimizer.Now() }

func (hs handlers) Cramped(ds []*inside.Detour) {
	hs.s.turns.Changing(func() { hs.s.turns.Report(hs.s.links.LeaveCramped(ds)); hs.s.listChanged() })
}

// ReadMem reads the target's memory as the program wrote it: where probes have
// put breakpoints, the original bytes are seen. Errors: EFAULT.
func (s *Session) ReadMem(addr arch.Addr, p []byte) error { return s.on.Read(addr, p) }
