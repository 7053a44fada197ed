// Package targettest is one suite that every kind of target passes: the promises of target.Target
// and its abilities, asked of a live one.
package targettest

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"

	"kprobe/arch"
	"kprobe/target"
)

// Subject is a live target, and the facts about it that the suite needs.
type Subject struct {
	Target target.Target
	Code   arch.Addr // an instruction that Poke runs once, and nothing else
	Data   arch.Addr // 64 bytes that are not looked at, writable
	Bad    arch.Addr // where nothing is mapped

	// Poke has the target run Code, and returns when it has gone on behind it.
	// It is called while the target is served.
	Poke func() error

	// Kill ends the target. It is called for the second subject only.
	Kill func()
}

// Run runs the suite. open makes a new subject, and leaves it running.
func Run(t *testing.T, open func(t *testing.T) Subject) {
	s := &suite{Subject: open(t)}
	if b, ok := s.Target.(target.Breaker); ok {
		s.breaker = b
	}
	for _, test := range []struct {
		name string
		f    func() error
	}{
		{"wake", s.wake}, {"memory", s.memory}, {"registers", s.registers}, {"freeze", s.freeze},
		{"breakpoint", s.breakpoint}, {"step", s.step}, {"readers", s.readers}, {"owner", s.owner},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := s.inside(test.f); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("close", s.close)
	t.Run("gone", func(t *testing.T) { gone(t, open(t)) })
}

type suite struct {
	Subject
	breaker  target.Breaker // nil: breakpoints are written
	original []byte         // the bytes that a breakpoint is written over
}

// inside calls f on the target's own thread.
func (s *suite) inside(f func() error) (err error) {
	err = errors.New("the function that Run was given did not return")
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Target.Run(func() { err = f() })
	}()
	<-done
	return err
}

// frozen calls f while all threads stand.
func (s *suite) frozen(f func() error) error {
	stops, err := s.Target.Freeze()
	if err != nil {
		return fmt.Errorf("freeze: %w", err)
	}
	for _, st := range stops {
		if err := s.Target.Resume(st.Thread, st.Signal); err != nil {
			return fmt.Errorf("resume of %v: %w", st, err)
		}
	}
	err = f()
	if e := s.Target.Thaw(); err == nil && e != nil {
		err = fmt.Errorf("thaw: %w", e)
	}
	return err
}

// serve has the target poked meanwhile, and hands its traps to hit. Other reports are the target's
// own affair.
func (s *suite) serve(hit func(target.Stop) error) error {
	done := make(chan error, 1)
	go func() {
		err := errors.New("the poke has failed")
		defer func() {
			done <- err
			s.Target.Wake()
		}()
		err = s.Poke()
	}()
	for {
		st, err := s.Target.Wait()
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		switch st.Kind {
		case target.StopWoken:
			select {
			case err := <-done:
				return err
			default:
			}
		case target.StopTrap:
			if err = hit(st); err != nil {
				s.Target.Resume(st.Thread, 0)
				return err
			}
		case target.StopExit, target.StopThreadExit, target.StopSpawn:
			return fmt.Errorf("stop %+v", st)
		default:
			err = s.Target.Resume(st.Thread, st.Signal)
		}
		if err != nil {
			return err
		}
	}
}

// woken wakes the owner, which is us: Wait returns at once.
func (s *suite) woken() error {
	s.Target.Wake()
	st, err := s.Target.Wait()
	if err != nil || st.Kind != target.StopWoken {
		return fmt.Errorf("wait after wake: %+v, %v", st, err)
	}
	return nil
}

func (s *suite) wake() error {
	for range 3 {
		if err := s.woken(); err != nil {
			return err
		}
	}
	return s.serve(func(st target.Stop) error { return fmt.Errorf("a trap that nobody set: %+v", st) })
}

func (s *suite) memory() error {
	return s.frozen(func() error {
		t := s.Target
		was := make([]byte, 64)
		if err := t.ReadAt(s.Data, was); err != nil {
			return err
		}
		pattern := []byte("$#}*\x00\x03\xff bytes that a protocol has to look after")
		if err := t.WriteAt(s.Data, pattern); err != nil {
			return err
		}
		got := make([]byte, len(pattern))
		err := t.ReadAt(s.Data, got)
		if e := t.WriteAt(s.Data, was); err == nil {
			err = e
		}
		if err != nil || !bytes.Equal(got, pattern) {
			return fmt.Errorf("%q was written, %q read (%v)", pattern, got, err)
		}
		// Text is written like data, and in the end it is as before.
		code := make([]byte, 1)
		if err := t.ReadAt(s.Code, code); err != nil {
			return err
		}
		if err := t.ReadAt(s.Bad, got); err == nil {
			return fmt.Errorf("read at %v, where nothing is", s.Bad)
		}
		if err := t.WriteAt(s.Bad, got); err == nil {
			return fmt.Errorf("written at %v, where nothing is", s.Bad)
		}
		return t.ReadAt(s.Bad, nil)
	})
}

func (s *suite) registers() error {
	return s.frozen(func() error {
		t := s.Target
		threads := t.Threads()
		if len(threads) == 0 {
			return errors.New("no threads stand")
		}
		for _, th := range threads {
			var was, r arch.Regs
			if err := t.Regs(th, &was); err != nil {
				return err
			}
			// There need not be memory at its PC: a machine's page may be yet to come.
			changed := was
			changed[t.Arch().Args[0]] ^= 0x0123_4567
			changed[t.Arch().Ret] ^= 0x0fed_cba9
			err := t.SetRegs(th, &changed)
			if err == nil {
				err = t.Regs(th, &r)
			}
			if e := t.SetRegs(th, &was); err == nil {
				err = e
			}
			if err != nil || r != changed {
				return fmt.Errorf("thread %d: %x was set, %x is there (%v)", th, changed, r, err)
			}
			if err := t.Regs(th, &r); err != nil || r != was {
				return fmt.Errorf("thread %d: %x was put back, %x is there (%v)", th, was, r, err)
			}
		}
		if t.Regs(1<<30, new(arch.Regs)) == nil {
			return errors.New("a thread that is not there has registers")
		}
		return nil
	})
}

// freeze: again and again, and the target goes on each time.
func (s *suite) freeze() error {
	for range 5 {
		if err := s.frozen(func() error { return nil }); err != nil {
			return err
		}
		if err := s.serve(func(st target.Stop) error { return fmt.Errorf("a trap that nobody set: %+v", st) }); err != nil {
			return err
		}
	}
	return nil
}

// arm puts a breakpoint at Code, by the means that the target has; disarm takes
// it out, with the thread that stands there.
func (s *suite) arm() error {
	return s.frozen(func() error {
		if s.breaker != nil {
			return s.breaker.SetBreak(s.Code)
		}
		brk := s.Target.Arch().Break
		s.original = make([]byte, len(brk))
		if err := s.Target.ReadAt(s.Code, s.original); err != nil {
			return err
		}
		return s.Target.WriteAt(s.Code, brk)
	})
}

func (s *suite) disarm() error {
	if s.breaker != nil {
		return s.breaker.ClearBreak(s.Code)
	}
	return s.Target.WriteAt(s.Code, s.original)
}

// at reads the registers of a thread that came to the breakpoint, which must be so.
func (s *suite) at(st target.Stop, r *arch.Regs) error {
	if err := s.Target.Regs(st.Thread, r); err != nil {
		return err
	}
	a := s.Target.Arch()
	if !st.Back {
		r[a.PC] -= uint64(a.BreakPC)
	}
	if pc := r.Addr(a.PC); pc != s.Code {
		return fmt.Errorf("the breakpoint is at %v, the thread at %v (%+v)", s.Code, pc, st)
	}
	return nil
}

// breakpoint: each pass is reported once, and nothing of it remains.
func (s *suite) breakpoint() error {
	for i := range 3 {
		if err := s.arm(); err != nil {
			return fmt.Errorf("arm: %w", err)
		}
		hits := 0
		err := s.serve(func(st target.Stop) error {
			hits++
			var r arch.Regs
			err := s.at(st, &r)
			if err == nil {
				err = s.disarm()
			}
			if err == nil {
				err = s.Target.SetRegs(st.Thread, &r)
			}
			if err == nil {
				err = s.Target.Resume(st.Thread, 0)
			}
			return err
		})
		if err != nil || hits != 1 {
			return fmt.Errorf("round %d: %d hits of 1 (%w)", i, hits, err)
		}
	}
	return s.serve(func(st target.Stop) error { return fmt.Errorf("a trap that was taken out: %+v", st) })
}

// step, where there is such a thing: one instruction, with the breakpoint in place.
func (s *suite) step() error {
	stepper, ok := s.Target.(target.Stepper)
	if !ok || s.breaker == nil {
		return nil
	}
	if err := s.arm(); err != nil {
		return err
	}
	for i := range 3 {
		hits := 0
		err := s.serve(func(st target.Stop) error {
			hits++
			var r arch.Regs
			if err := s.at(st, &r); err != nil {
				return err
			}
			if err := stepper.Step(st.Thread); err != nil {
				return err
			}
			if err := s.Target.Regs(st.Thread, &r); err != nil {
				return err
			}
			a := s.Target.Arch()
			if pc := r.Addr(a.PC); pc <= s.Code || pc > s.Code+arch.Addr(a.MaxInsn) {
				return fmt.Errorf("a step from %v to %v", s.Code, pc)
			}
			return s.Target.Resume(st.Thread, 0)
		})
		if err != nil || hits != 1 {
			return fmt.Errorf("round %d: %d hits of 1 (%w)", i, hits, err)
		}
	}
	return s.frozen(s.disarm)
}

// readers: any goroutine may read, at any state of the target.
func (s *suite) readers() error {
	want := make([]byte, 16)
	if err := s.Target.ReadAt(s.Code, want); err != nil {
		return err
	}
	stop := make(chan struct{})
	errs := make(chan error, 2)
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			b := make([]byte, len(want))
			for {
				if err := s.Target.ReadAt(s.Code, b); err != nil || !bytes.Equal(b, want) {
					errs <- fmt.Errorf("% x was read, not % x (%v)", b, want, err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	var err error
	for range 2 {
		if err = s.serve(func(st target.Stop) error { return fmt.Errorf("a trap that nobody set: %+v", st) }); err != nil {
			break
		}
	}
	close(stop)
	readers.Wait()
	select {
	case e := <-errs:
		return e
	default:
		return err
	}
}

func (s *suite) owner() error {
	if !s.Target.OnOwner() {
		return errors.New("inside Run, and not the owner")
	}
	other := make(chan bool)
	go func() { other <- s.Target.OnOwner() }()
	if <-other {
		return errors.New("another goroutine is the owner too")
	}
	return nil
}

// close: all that is still set goes with it, and the target goes on.
func (s *suite) close(t *testing.T) {
	if s.breaker != nil {
		if err := s.inside(s.arm); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Target.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Target.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the second Close: %v", err)
	}
	if err := s.Poke(); err != nil {
		t.Error("after Close: ", err)
	}
}

// gone: the end of a target is reported, and then everything says so.
func gone(t *testing.T, subject Subject) {
	s := &suite{Subject: subject}
	err := s.inside(func() error {
		s.Kill()
		for {
			st, err := s.Target.Wait()
			switch {
			case errors.Is(err, target.ErrGone), err == nil && st.Kind == target.StopExit:
			case err != nil:
				return fmt.Errorf("wait: %w", err)
			default:
				continue
			}
			break
		}
		if err := s.Target.ReadAt(s.Code, make([]byte, 1)); err == nil {
			return errors.New("it is gone, and its memory is read")
		}
		if err := s.Target.Regs(1, new(arch.Regs)); err == nil {
			return errors.New("it is gone, and has registers")
		}
		if _, err := s.Target.Freeze(); err == nil {
			return errors.New("it is gone, and can be frozen")
		}
		return nil
	})
	if err = errors.Join(err, s.Target.Close()); err != nil {
		t.Error(err)
	}
}
