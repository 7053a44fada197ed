package trace

import (
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"kprobe"
	"kprobe/arch"
	"kprobe/event"
	"kprobe/source/bind"
	"kprobe/symbol"
)

// entered finds parameters in the middle of functions, as these were entered with them. Their callers say what they have passed;
// it may be what they were passed themselves.
type entered struct {
	mu    sync.Mutex
	known map[passed]*way
}

// passed is a register of the function in which a stack ends. The stack is in the form of a string.
type passed struct {
	a     *arch.Arch
	reg   arch.Reg
	stack string
}

// way finds the register's value.
type way struct {
	capture *event.Capture // nil: it is not known ...
	deeper  bool           // ... unless more of the stack is
	called  []arch.Addr    // see bind.Entered
	modules []*symbol.Module
}

// maxCallers bounds the callers that are asked.
const maxCallers = 8

// at finds, at a hit, what registers had when the function was entered.
func (e *entered) at(s *kprobe.Session, regs *kprobe.Regs, ctx *event.Context) func(arch.Reg) (uint64, bool) {
	var stack []uint64
	return func(reg arch.Reg) (uint64, bool) {
		if stack == nil {
			stack, _, _ = regs.Stack(maxCallers + 1)
		}
		for n := 2; n <= len(stack); n++ {
			if w := e.way(s.Symbols(), s.Arch(), stack[:n], reg); !w.deeper {
				return w.value(ctx)
			}
		}
		return 0, false
	}
}

// value follows the way at a hit.
func (w *way) value(ctx *event.Context) (uint64, bool) {
	if w.capture == nil {
		return 0, false
	}
	inner := event.Context{Regs: ctx.Regs, Mem: ctx.Mem}
	values := w.capture.Run(&inner)
	for i, v := range values {
		if v.Fault || i > 0 && arch.Addr(v.Bits) != w.called[i-1] {
			return 0, false
		}
	}
	return values[0].Bits, true
}

// way returns the way to a register of the function in which a stack ends. It is looked for once.
func (e *entered) way(space *symbol.Space, a *arch.Arch, stack []uint64, reg arch.Reg) *way {
	modules := make([]*symbol.Module, len(stack))
	var pcs []byte
	for i, pc := range stack {
		pcs = binary.NativeEndian.AppendUint64(pcs, pc)
		modules[i] = space.ModuleAt(arch.Addr(pc))
	}
	key := passed{a: a, reg: reg, stack: string(pcs)}
	e.mu.Lock()
	defer e.mu.Unlock()
	if w := e.known[key]; w != nil && slices.Equal(w.modules, modules) {
		return w
	}
	w := &way{modules: modules}
	switch with, err := bind.EnteredWith(space, a, stack, reg); {
	case errors.Is(err, bind.ErrDeeper):
		w.deeper = true
	case err == nil:
		w.called = with.Called
		w.capture, _ = event.Compile(with.Args, a, nil)
	}
	if e.known == nil || len(e.known) >= maxNamed {
		e.known = map[passed]*way{}
	}
	e.known[key] = w
	return w
}
