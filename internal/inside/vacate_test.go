package inside

import (
	"testing"

	"kprobe/arch"
	"kprobe/internal/inject"
	"kprobe/internal/isa"
	"kprobe/internal/patch"
	"kprobe/target"
)

// standing is a target of threads that stand still.
type standing struct {
	target.Target
	stuck int
	at    map[target.Thread]arch.Addr
	gone  target.Thread
	call  target.Thread // is in a system call
}

func (s *standing) Arch() *arch.Arch { return arch.AMD64 }
func (s *standing) Stuck() int       { return s.stuck }

func (s *standing) Threads() (ths []target.Thread) {
	for th := range s.at {
		ths = append(ths, th)
	}
	return ths
}

func (s *standing) Regs(th target.Thread, r *arch.Regs) error {
	if th == s.gone {
		return target.ErrGone
	}
	r[arch.AMD64.PC] = uint64(s.at[th])
	if th != s.call {
		r[arch.AMD64.SyscallNo] = ^uint64(0)
	}
	return nil
}

func (s *standing) SetRegs(th target.Thread, r *arch.Regs) error {
	s.at[th] = arch.Addr(r[arch.AMD64.PC])
	return nil
}

// Who stands under a jump that comes is moved to the copy, and back where the jump does not come after all: the copy is
// gone then. Where no instruction begins, there is no copy. Who is in a system call is moved right behind its copy, to which
// the kernel steps back; who is not, behind what makes up for the call.
func TestVacateAndBack(t *testing.T) {
	at := func(site arch.Addr) *Detour {
		tail := &patch.Slot{Addr: site + 0x1000, Marks: []isa.Mark{{Off: 0, PC: site}, {Off: 2, PC: site + 2, HasLink: true, Link: arch.CX}, {Off: 7, PC: site + 2}}}
		return &Detour{in: &Inside{arch: arch.AMD64}, Span: arch.Range{Start: site, End: site + 5}, tail: tail}
	}
	first, second := at(0x100), at(0x200)
	first.Detour, second.Detour = sited(0x100), sited(0x200)
	before := map[target.Thread]arch.Addr{1: 0x102, 2: 0x100, 3: 0x203, 4: 0x300, 5: 0x102, 6: 0x102, 7: 0x102}
	s := &standing{at: map[target.Thread]arch.Addr{}, gone: 6, call: 7}
	for th, pc := range before {
		s.at[th] = pc
	}
	v, err := Vacate(s, nil, []*Detour{first, second}, map[target.Thread]bool{5: true})
	if err != nil {
		t.Fatal(err)
	}
	for th, want := range map[target.Thread]arch.Addr{1: 0x1107, 2: 0x100, 3: 0x203, 4: 0x300, 5: 0x102, 6: 0x102, 7: 0x1102} {
		if s.at[th] != want {
			t.Errorf("thread %d stands at %v, want %v", th, s.at[th], want)
		}
	}
	if v.Busy[first] || !v.Busy[second] {
		t.Errorf("busy: %v, %v; want false, true", v.Busy[first], v.Busy[second])
	}
	if err := v.Undo(s); err != nil {
		t.Error(err)
	}
	for th, want := range before {
		if s.at[th] != want {
			t.Errorf("thread %d is back at %v, want %v", th, s.at[th], want)
		}
	}
}

func sited(at arch.Addr) *inject.Detour { return &inject.Detour{Site: at} }
