package kprobe

import (
	"errors"

	"kprobe/arch"
	"kprobe/internal/returns"
	"kprobe/target"
)

// A program that dies of a signal may leave a core file to whoever wants to know why. He
// shall find the program there: its text, its return addresses, and its threads where they
// stand in its own code.

// deliver lets a thread go on, with a signal unless that is 0.
func (s *Session) deliver(th target.Thread, signal int) {
	if signal == trapSignal && s.text.Lifeline.Ignored(th) {
		signal = 0
	}
	if d, ok := s.t.(target.Dumper); ok && signal != 0 && d.Dumps(th, signal) {
		s.reportAlive(s.freeze(s.unseen))
	}
	s.t.Resume(th, signal)
}

// unseen makes the frozen target look as if it had never been probed. It has not long to
// live, so what we know of it stays as it is: like a child's, its memory is nothing that we
// will come back to.
func (s *Session) unseen() (err error) {
	err = s.restoreIn(s.t)
	s.frames.mu.Lock()
	defer s.frames.mu.Unlock()
	trapped := make(map[target.Thread]bool)
	for i, st := range s.stops {
		if st.Back { // of a trap that is not there any more
			trapped[st.Thread] = true
			s.stops[i].Kind = target.StopWoken
			s.t.Resume(st.Thread, 0)
		}
	}
	for _, th := range s.t.Threads() {
		var r arch.Regs
		if s.t.Regs(th, &r) != nil {
			continue
		}
		pc := arch.Addr(r[s.arch.PC])
		ref, slot := s.room.At(pc)
		switch {
		case slot && trapped[th] && ref.AtBreak(pc):
			r[s.arch.PC] = uint64(ref.Slot.Next)
		case slot:
			ref.Leave(s.arch, &r)
		case s.frames.isTrampoline(pc):
			if _, fr := returns.Popped(s.frames.at, arch.Addr(r[s.arch.SP]), s.arch); fr != nil {
				r[s.arch.PC] = uint64(fr.real)
			}
		case s.inside != nil:
			_, e := s.inside.LeaveIn(&r, s.t)
			err = errors.Join(err, e)
		}
		if arch.Addr(r[s.arch.PC]) != pc {
			err = errors.Join(err, s.t.SetRegs(th, &r))
		}
	}
	return err
}
