package inside

import (
	"errors"

	"kprobe/arch"
)

// errUnknown is for a thread in code of ours that does not show for which detour it is there.
var errUnknown = errors.New("no word on a thread's stack is an address in a detour")

// callers returns the detours that may have called the code in which a stopped thread is Busy: the one whose program
// it runs; else all into which a word on its stack points. Errors: errUnknown; the memory's.
func (in *Inside) callers(r *arch.Regs, mem arch.Memory) ([]*Detour, error) {
	if pc := r.Addr(in.arch.PC); in.Running(pc) || in.Area(pc).Exits(pc) {
		return in.runner(r, mem)
	}
	sp := r.Addr(in.arch.SP)
	ds := in.detoursAt(sp, mem)
	if before, ok := in.Seg.Before(sp); ok { // the routine has left the program's stack
		ds = append(ds, in.detoursAt(before, mem)...)
	}
	if lr := in.arch.LR; lr != arch.NoReg {
		if d := in.Find(r.Addr(lr)); d != nil {
			ds = append(ds, d)
		}
	}
	if len(ds) == 0 {
		return nil, errUnknown
	}
	return ds, nil
}

// runner returns the detour whose program a thread runs, or has just left by the trap at its end.
func (in *Inside) runner(r *arch.Regs, mem arch.Memory) ([]*Detour, error) {
	word, err := in.word(mem, in.Seg.ReturnTo(r))
	if a := in.Area(word); err == nil && a != nil && word == a.TrapExit() {
		word, err = in.word(mem, in.Seg.BackAt(r))
	}
	if err != nil {
		return nil, err
	}
	d := in.Find(word)
	if d == nil {
		return nil, errUnknown
	}
	return []*Detour{d}, nil
}

// detoursAt returns the detours that words on a stack point into, from sp up as far as a routine may have come down.
func (in *Inside) detoursAt(sp arch.Addr, mem arch.Memory) (ds []*Detour) {
	b := make([]byte, in.cfg.Machine.Detours.Depth)
	for len(b) > 0 && mem.ReadAt(sp, b) != nil {
		b = b[:len(b)-in.arch.PtrSize] // the stack ends before that
	}
	for ; len(b) > 0; b = b[in.arch.PtrSize:] {
		if d := in.Find(arch.Addr(in.arch.Word(b))); d != nil {
			ds = append(ds, d)
		}
	}
	return ds
}
