package roles

import (
	"kprobe/arch"
	"kprobe/symbol"
)

// caller has the fields by which a caller is told, for a probe that has no caller.
type caller struct {
	addr  arch.Addr
	loc   symbol.Loc
	flags uint32
}

func (c *caller) asked() Asked { return Asked{Addr: &c.addr, Loc: &c.loc, Flags: &c.flags} }

// Hidden is a probe of the session's own on a function.
func Hidden(h *Home, name string, handlers Handlers) *Probe {
	p := &Probe{Hidden: true}
	asked := new(caller).asked()
	asked.Name, asked.Handlers = name, handlers
	p.Prepare(h, asked)
	return p
}

// HiddenReturn is a return probe of the session's own, for all calls of a function; nil where there can be none.
func HiddenReturn(h *Home, name string, handlers ReturnHandlers) *Probe {
	p := &Probe{Hidden: true}
	asked := new(caller).asked()
	asked.Name = name
	if new(Return).Prepare(h, p, asked, AskedReturn{MaxActive: 1 << 16, Handlers: handlers}) != nil {
		return nil
	}
	return p
}
