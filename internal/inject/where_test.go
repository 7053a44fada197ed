package inject_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	x86code "kprobe/internal/inject/x86"
	"kprobe/internal/segment"
)

// stepper is the host's main thread under ptrace: it is made to call functions
// from any registers, and stopped anywhere.
type stepper struct {
	*host
	mem   *os.File
	what  string   // is tested
	value uint64   // what override_return makes of the result, if not 0
	home  userRegs // what it does between commands
	stack arch.Addr
}

const stackSizeOfTests = 4096

// testStack is the stack that calls get there: a page in the second half of the area.
func (h *host) testStack() arch.Addr { return h.area.Addr + areaRoom/2 }

// step takes the host over for the rest of the test; the test's goroutine stays
// on its thread, as ptrace wants it.
func (h *host) step() *stepper {
	h.Helper()
	if foreign() {
		return nil
	}
	runtime.LockOSThread()
	s := &stepper{host: h, stack: h.testStack()}
	var err error
	if err = unix.PtraceAttach(h.pid); err != nil {
		h.Fatal(err)
	}
	s.wait()
	if err := transfer(getRegs, h.pid, &s.home); err != nil {
		h.Fatal(err)
	}
	if s.mem, err = os.OpenFile(fmt.Sprintf("/proc/%d/mem", h.pid), os.O_RDWR, 0); err != nil {
		h.Fatal(err)
	}
	h.Cleanup(func() {
		s.mem.Close()
		unix.PtraceDetach(h.pid)
		runtime.UnlockOSThread()
	})
	return s
}

// wait gives the signal that the thread has stopped with.
func (s *stepper) wait() unix.Signal {
	s.Helper()
	var ws unix.WaitStatus
	if _, err := unix.Wait4(s.pid, &ws, unix.WALL, nil); err != nil || !ws.Stopped() {
		s.Fatalf("%v, status %#x", err, ws)
	}
	return ws.StopSignal()
}

func (s *stepper) do(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *stepper) poke(at arch.Addr, b []byte) {
	s.Helper()
	_, err := s.mem.WriteAt(b, int64(at))
	s.do(err)
}

func (s *stepper) peek(at arch.Addr, b []byte) error {
	_, err := s.mem.ReadAt(b, int64(at))
	return err
}

// userRegs are the registers of x86-64 as ptrace has them (struct user_regs_struct,
// sys/user.h). Package unix has those of the machine that it is built for.
type userRegs struct {
	R15, R14, R13, R12, Rbp, Rbx, R11, R10, R9, R8, Rax, Rcx, Rdx, Rsi, Rdi, Orig_rax,
	Rip, Cs, Eflags, Rsp, Ss, Fs_base, Gs_base, Ds, Es, Fs, Gs uint64
}

// x86-64's ptrace requests (asm/ptrace-abi.h).
const (
	getRegs = 12
	setRegs = 13
)

// all is where each register is.
func (u *userRegs) all() map[arch.Reg]*uint64 {
	return map[arch.Reg]*uint64{
		arch.AX: &u.Rax, arch.BX: &u.Rbx, arch.CX: &u.Rcx, arch.DX: &u.Rdx, arch.SI: &u.Rsi, arch.DI: &u.Rdi,
		arch.BP: &u.Rbp, arch.SP: &u.Rsp, arch.R8: &u.R8, arch.R9: &u.R9, arch.R10: &u.R10, arch.R11: &u.R11,
		arch.R12: &u.R12, arch.R13: &u.R13, arch.R14: &u.R14, arch.R15: &u.R15, arch.IP: &u.Rip, arch.FLAGS: &u.Eflags,
	}
}

// transfer gets or sets registers. These requests have them in the order of x86-64 for
// 32-bit programs, too, unlike those of package unix.
func transfer(request, pid int, u *userRegs) error {
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, uintptr(request), uintptr(pid), 0, uintptr(unsafe.Pointer(u)), 0, 0); e != 0 {
		return e
	}
	return nil
}

func (s *stepper) regs() (r arch.Regs) {
	s.Helper()
	var u userRegs
	s.do(transfer(getRegs, s.pid, &u))
	for reg, p := range u.all() {
		r[reg] = *p
	}
	return r
}

func (s *stepper) setRegs(r *arch.Regs) {
	s.Helper()
	u := s.home
	u.Orig_rax = ^uint64(0)
	for reg, p := range u.all() {
		*p = r[reg]
	}
	s.do(transfer(setRegs, s.pid, &u))
}

// outcome is everything that a call leaves behind.
type outcome struct {
	regs  arch.Regs
	stack []byte // without what is below the stack pointer: nobody's
}

// entry is a state at a function's entry. The return address is that of a trap.
func (s *stepper) entry(f string, rnd *rand.Rand) (arch.Regs, []byte) {
	var r arch.Regs
	for i := arch.AX; i <= arch.R15; i++ {
		r[i] = rnd.Uint64()
	}
	r[arch.DI] = rnd.Uint64N(3)
	r[arch.FLAGS] = 0x202 | rnd.Uint64()&0xcd5 // the direction flag, too
	r[arch.SP] = uint64(s.stack) + stackSizeOfTests/2
	r[arch.IP] = uint64(s.addr[f])
	stack := make([]byte, stackSizeOfTests)
	for i := range stack {
		stack[i] = byte(rnd.Uint32())
	}
	hostMachine.PutWord(stack[stackSizeOfTests/2:], uint64(s.trap()))
	if narrow() { // the argument is on the stack
		binary.LittleEndian.PutUint32(stack[stackSizeOfTests/2+4:], uint32(r[arch.DI]))
		for i := range r {
			r[i] = uint64(uint32(r[i]))
		}
		clear(r[arch.R8 : arch.R15+1])
	}
	return r, stack
}

// trap is an address that holds int3.
func (s *stepper) trap() arch.Addr { return s.stack + 2*stackSizeOfTests }

// behind has some bytes stand in front of the trap: a call, if it is to be one's return address.
func (s *stepper) behind(code ...byte) { s.poke(s.trap()-arch.Addr(len(code)), code) }

// run lets the thread go on until it traps.
func (s *stepper) run() outcome {
	s.Helper()
	s.do(unix.PtraceCont(s.pid, 0))
	if sig := s.wait(); sig != unix.SIGTRAP {
		s.Fatalf("%s: %v at %#x", s.what, sig, s.regs()[arch.IP])
	}
	o := outcome{regs: s.regs(), stack: make([]byte, stackSizeOfTests)}
	if o.regs[arch.IP] != uint64(s.trap())+1 {
		s.Fatalf("%s: trapped at %#x", s.what, o.regs[arch.IP])
	}
	s.do(s.peek(s.stack, o.stack))
	clear(o.stack[:o.regs[arch.SP]-uint64(s.stack)])
	return o
}

func (o *outcome) differs(p *outcome) string {
	for r := arch.AX; r <= arch.FLAGS; r++ {
		if o.regs[r] != p.regs[r] {
			return fmt.Sprintf("%s is %#x, not %#x", arch.AMD64.RegName(r), p.regs[r], o.regs[r])
		}
	}
	if !bytes.Equal(o.stack, p.stack) {
		return "the stack differs"
	}
	return ""
}

// counted is what all counters have come to since a time when they were at start.
func (s *stepper) counted(start []uint64) []uint64 {
	n := make([]uint64, s.seg.Counters)
	for i := range n {
		sum, lost := s.seg.Counter(i)
		if n[i] = sum + lost; start != nil {
			n[i] -= start[i]
		}
	}
	return n
}

// unfinishedID is the probe of a call that does not return any more. Its losses are counted there.
const unfinishedID = 9

// inDetour tells whether the PC is in the detour's own code.
func inDetour(d *inject.Detour, code []byte, pc uint64) bool {
	return pc >= uint64(d.At) && pc < uint64(d.At)+uint64(len(code))
}

// everywhere stops a call at each instruction of its detour, puts the thread back to
// where the program would be, and looks whether the call comes out as without a
// probe. It gives how often it stopped in each phase.
func (s *stepper) everywhere(f string, d *inject.Detour, prepare func(), seed uint64) (phases [inject.Returned + 1]int) {
	s.Helper()
	original, from := make([]byte, 8), s.addr[f] // the site, or what the jump is ahead of
	s.do(s.peek(from, original))
	defer s.poke(from, original)
	code, err := d.Code()
	s.do(err)
	jump, err := hostISA.Jump(from, d.At)
	s.do(err)
	// reach is the state in front of the probed instruction, of a program without a probe.
	reach := func(start arch.Regs, stack []byte) arch.Regs {
		if d.Site == from {
			return start
		}
		var own [1]byte
		s.do(s.peek(d.Site, own[:]))
		s.poke(d.Site, []byte{0xcc})
		s.poke(s.stack, stack)
		s.setRegs(&start)
		s.do(unix.PtraceCont(s.pid, 0))
		if sig := s.wait(); sig != unix.SIGTRAP {
			s.Fatalf("%v", sig)
		}
		s.poke(d.Site, own[:])
		at := s.regs()
		at[arch.IP]--
		return at
	}
	begin := func() (there arch.Regs, plain outcome) {
		start, stack := s.entry(f, rand.New(rand.NewPCG(seed, 0)))
		s.poke(from, original)
		there = reach(start, stack)
		s.poke(s.stack, stack)
		s.setRegs(&start)
		plain = s.run()
		prepare()
		s.poke(from, jump)
		s.poke(s.stack, stack)
		s.setRegs(&start)
		return there, plain
	}
	var way []uint64 // through the detour
	begin()
	before := s.counted(nil)
	for pc := uint64(0); pc != uint64(s.trap()); {
		s.do(unix.PtraceSingleStep(s.pid))
		if sig := s.wait(); sig != unix.SIGTRAP {
			s.Fatalf("%s: %v at %#x", s.what, sig, s.regs()[arch.IP])
		}
		regs := s.regs()
		if pc = regs[arch.IP]; inDetour(d, code, pc) {
			way = append(way, pc)
		}
	}
	hit := s.counted(before) // counts once
	for _, pc := range way { // each once: there are no loops
		start, plain := begin()
		want, before := plain, s.counted(nil)
		if s.value != 0 {
			want.regs[arch.AX] = s.value
			if narrow() { // the upper half of what is returned
				want.regs[arch.DX] = start[arch.DX]
			}
		}
		s.poke(arch.Addr(pc), []byte{0xcc})
		s.do(unix.PtraceCont(s.pid, 0))
		if sig := s.wait(); sig != unix.SIGTRAP {
			s.Fatalf("%s: %v on the way to %#x", s.what, sig, pc)
		}
		s.poke(arch.Addr(pc), code[pc-uint64(d.At):][:1])
		r := s.regs()
		if r[arch.IP]--; r[arch.IP] != pc {
			s.Fatalf("%s: trapped at %#x on the way to %#x", s.what, r[arch.IP], pc)
		}
		at := r.Addr(arch.IP)
		st, err := d.Where(&r, s.peek)
		s.do(err)
		phases[st.Phase]++
		to := st.Regs
		switch st.Phase {
		case inject.Before: // as if there were no probe
			s.poke(from, original)
			want = plain
		}
		if st.Resume == 0 { // nothing to be put back
			s.setRegs(&r)
			got := s.run()
			ignoreDead(d, &got.regs, &want.regs)
			if diff := want.differs(&got); diff != "" {
				s.Fatalf("%s: left alone at %#x: %s", s.what, pc, diff)
			}
			if n := s.counted(before); !slices.Equal(n, hit) {
				s.Fatalf("%s: left alone at +%#x: counted %d, not %d", s.what, uint64(at-d.At), n, hit)
			}
			continue
		}
		if st.Busy != 0 {
			s.poke(st.Busy, []byte{0})
		}
		to[arch.IP] = uint64(st.Resume)
		s.setRegs(&to)
		got := s.run()
		ignoreDead(d, &got.regs, &want.regs)
		if diff := want.differs(&got); diff != "" {
			s.Fatalf("%s: stopped at +%#x of %v (%v): %s\n%s", s.what, uint64(at-d.At), d.At, st.Phase, diff, disassemble(s, d.At, code))
		}
		n, counts := s.counted(before), hit
		if st.Phase == inject.Before { // nothing, but that another call is over
			counts = make([]uint64, len(hit))
			counts[unfinishedID] = n[unfinishedID]
		}
		if !slices.Equal(n, counts) {
			s.Fatalf("%s: stopped at +%#x of %v (%v): counted %d, not %d\n%s",
				s.what, uint64(at-d.At), d.At, st.Phase, n, counts, disassemble(s, d.At, code))
		}
		if st.Phase == inject.Before || st.Phase == inject.After {
			if ignoreDead(d, &st.Regs, &start); st.Regs != start {
				s.Fatalf("%s: stopped at +%#x (%v): registers %x instead of %x", s.what, uint64(at-d.At), st.Phase, st.Regs, start)
			}
		}
	}
	return phases
}

// ignoreDead makes equal what is nobody's business: dead registers and flags.
func ignoreDead(d *inject.Detour, got, want *arch.Regs) {
	for reg := arch.AX; reg <= arch.R15; reg++ {
		if d.Dead.Has(reg) {
			got[reg] = want[reg]
		}
	}
	if d.DeadFlags {
		got[arch.FLAGS] = want[arch.FLAGS]
	}
}

// clobber is a program that changes whatever it may, and counts.
func clobber(a *x86code.Asm) {
	a.Inc(hostState, segment.Counter(5))
	for r := arch.AX; r <= arch.R15 && (r <= arch.SP || !narrow()); r++ {
		if r != arch.SP && r != hostState {
			a.MovConst(r, 0)
		}
	}
}

// TestWhere stops everywhere in detours of all kinds, on the ways that are seldom
// gone too.
func TestWhere(t *testing.T) {
	h := startHost(t, testLayout)
	key := h.key(0)
	at := func(off int) int { return h.seg.State(h.seg.Find(key)) + off }
	p := h.program(clobber)
	few := p
	few.Context = 1 << x86code.WordOf[arch.DI]
	one := h.program(func(a *x86code.Asm) { a.Put(0x31, 0xc0, 0x31, 0xd2, 0xff, 0xc0) }) // 1
	// junk leaves an instance on top of the call's, as a coroutine might.
	junk := h.program(func(a *x86code.Asm) {
		a.Load(arch.AX, hostState, segment.StateCalls)
		a.StoreConst(arch.AX, segment.CallSlot, 1)
		a.Lea(arch.AX, arch.AX, segment.CallSize)
		a.Store(hostState, segment.StateCalls, arch.AX)
	})
	spare := arch.R9 // f_lea has no use for it
	if narrow() {
		spare = arch.SI
	}
	const overriding = 1000
	override := h.program(func(a *x86code.Asm) {
		a.SetByte(hostState, segment.StateOverride, 1)
		a.StoreConst(hostState, segment.StateValue, overriding)
	})
	override.Override = true
	begun := func(slot, back uint64) {
		h.seg.Put(at(segment.StateCallsAt+segment.CallSize+segment.CallSlot), slot)
		h.seg.Put(at(segment.StateCallsAt+segment.CallSize+segment.CallBack), back)
		h.seg.Put(at(segment.StateCallsAt+segment.CallSize+segment.CallProbe), unfinishedID)
		h.seg.Put(at(segment.StateCalls), uint64(h.seg.StateAddr(h.seg.Find(key)))+segment.StateCallsAt+2*segment.CallSize)
	}
	// An unfinished call at a slot that is used again, or 8 bytes above it.
	unfinished := func(above int) func() {
		return func() { begun(uint64(h.testStack())+stackSizeOfTests/2+uint64(above), 0) }
	}
	// One further down, whose slot holds what was put there.
	further := func() {
		slot := h.addr["f_push"]
		begun(uint64(slot), hostMachine.Word(h.text(slot, hostMachine.PtrSize)))
	}
	// The stack is not known to be the thread's own.
	elsewhere := func() { h.seg.Assign(segment.Thread{Key: key, TID: h.pid}) }
	ret := func(r inject.Return) *inject.Return {
		r.Missed, r.Hits = 7, 8
		if r.Max == 0 {
			r.Max = 5
		}
		return &r
	}
	var s *stepper
	behind := func(code ...byte) func() { return func() { s.behind(code...) } }
	tests := []struct {
		name    string
		detour  inject.Detour
		prepare func()
		never   []inject.Phase // that it is not stopped in
	}{
		{"count", inject.Detour{Missed: inject.NoCounter}, nil, nil},
		{"dead flags", inject.Detour{Missed: inject.NoCounter, DeadFlags: true}, nil, nil},
		{"dead registers", inject.Detour{Missed: inject.NoCounter, DeadFlags: true, Dead: arch.SetOf(arch.AX) | arch.SetOf(spare)}, nil, []inject.Phase{inject.After}},
		{"a new thread", inject.Detour{Missed: inject.NoCounter}, func() { h.seg.Release(key) }, nil},
		{"a new thread, dead registers", inject.Detour{Missed: inject.NoCounter, DeadFlags: true, Dead: arch.SetOf(arch.AX) | arch.SetOf(spare)}, func() { h.seg.Release(key) }, []inject.Phase{inject.After}},
		{"programs", inject.Detour{Programs: []inject.Program{p, p}}, nil, nil},
		{"programs, dead flags", inject.Detour{Programs: []inject.Program{few}, DeadFlags: true}, nil, nil},
		{"return, dead flags", inject.Detour{DeadFlags: true, Return: ret(inject.Return{Entry: []inject.Program{few}, Programs: []inject.Program{p}})}, nil, nil},
		{"programs of a new thread", inject.Detour{Programs: []inject.Program{p}}, func() { h.seg.Release(key) }, nil},
		{"programs, dead controller", inject.Detour{Programs: []inject.Program{p}}, func() { h.seg.Mem[segment.HeadDead] = 0x40 }, []inject.Phase{inject.Running}},
		{"programs, closed", inject.Detour{Programs: []inject.Program{p}}, func() { h.seg.Close(h.seg.Find(key)) }, []inject.Phase{inject.Running}},
		{"override", inject.Detour{Programs: []inject.Program{override}}, nil, []inject.Phase{inject.After, inject.Displaced}},
		{"return", inject.Detour{Return: ret(inject.Return{})}, nil, nil},
		{"return, programs", inject.Detour{Programs: []inject.Program{p}, Return: ret(inject.Return{Entry: []inject.Program{p}, Programs: []inject.Program{p}})}, nil, nil},
		{"return, none watched", inject.Detour{Programs: []inject.Program{p}, Return: ret(inject.Return{Max: -1, Entry: []inject.Program{p}})}, nil, nil},
		{"return, full", inject.Detour{Return: ret(inject.Return{ID: unfinishedID, Max: 1})}, unfinished(8), nil},
		{"return, not full", inject.Detour{Return: ret(inject.Return{Max: 1})}, unfinished(8), nil},
		{"return, abandoned", inject.Detour{Return: ret(inject.Return{})}, unfinished(0), nil},
		{"return, another further down", inject.Detour{Return: ret(inject.Return{})}, further, nil},
		{"return, away", inject.Detour{Return: ret(inject.Return{})}, elsewhere, nil},
		{"return, away, programs", inject.Detour{Programs: []inject.Program{p}, Return: ret(inject.Return{Entry: []inject.Program{p}, Programs: []inject.Program{p}})}, elsewhere, nil},
		{"return, away, none watched", inject.Detour{Return: ret(inject.Return{Max: -1})}, elsewhere, nil},
		{"return, away, veto", inject.Detour{Return: ret(inject.Return{Entry: []inject.Program{one}, Veto: true})}, elsewhere, nil},
		{"return, away, override", inject.Detour{Programs: []inject.Program{override}, Return: ret(inject.Return{})}, elsewhere, []inject.Phase{inject.After, inject.Displaced}},
		{"return, away, data", inject.Detour{Return: ret(inject.Return{ID: probe, Data: 16, Entry: []inject.Program{p}, Programs: []inject.Program{p}})}, elsewhere, nil},
		{"return, away, data, veto", inject.Detour{Return: ret(inject.Return{ID: probe, Data: 8, Entry: []inject.Program{one}, Veto: true})}, elsewhere, nil},
		{"return, dead controller", inject.Detour{Return: ret(inject.Return{})}, func() { h.seg.Mem[segment.HeadDead] = 0x40 }, nil},
		{"return, veto", inject.Detour{Return: ret(inject.Return{Entry: []inject.Program{one}, Veto: true})}, nil, nil},
		{"return, behind an indirect call", inject.Detour{Return: ret(inject.Return{})}, behind(0x41, 0xff, 0xd3, 0x90, 0xff, 0x90, 0, 1, 0, 0), nil},
		{"return, behind no call", inject.Detour{Programs: []inject.Program{p}, Return: ret(inject.Return{Entry: []inject.Program{p}})}, behind(bytes.Repeat([]byte{0x90}, 12)...), []inject.Phase{inject.Returning, inject.Returned}},
		{"return, override, none watched", inject.Detour{Programs: []inject.Program{override}, Return: ret(inject.Return{Max: -1})}, nil, []inject.Phase{inject.After, inject.Displaced}},
		{"return, override", inject.Detour{Programs: []inject.Program{override}, Return: ret(inject.Return{})}, nil, []inject.Phase{inject.After, inject.Displaced}},
		{"return, others above", inject.Detour{Return: ret(inject.Return{Entry: []inject.Program{junk}, Programs: []inject.Program{p}})}, nil, nil},
		{"enter", inject.Detour{Enters: []inject.Enter{{ID: probe, Max: 5, Missed: 7, Data: 16}}}, nil, nil},
		{"enter, none watched", inject.Detour{Programs: []inject.Program{p}, Enters: []inject.Enter{{ID: probe, Missed: 7}}}, nil, nil},
		{"enter, programs", inject.Detour{Programs: []inject.Program{p}, Enters: []inject.Enter{
			{ID: probe, Max: 5, Missed: 7, Programs: []inject.Program{p, one}, Veto: true}, {ID: other, Max: 5, Missed: 7, Programs: []inject.Program{few}}}}, nil, nil},
		{"enter, dead controller", inject.Detour{Enters: []inject.Enter{{ID: probe, Max: 5, Missed: 7}}}, func() { h.seg.Mem[segment.HeadDead] = 0x40 }, nil},
		{"exit, not watched", inject.Detour{Exits: []inject.Exit{{ID: probe, Programs: []inject.Program{p}, Hits: 8}}}, nil, nil},
		{"enter and exit", inject.Detour{Programs: []inject.Program{p}, Enters: []inject.Enter{{ID: probe, Max: 5, Missed: 7}},
			Exits: []inject.Exit{{ID: probe, Programs: []inject.Program{p}, Hits: 8}, {ID: other, Hits: 9}}}, nil, nil},
		{"exit, if carry", inject.Detour{Cond: 0x72, Exits: []inject.Exit{{ID: probe, Programs: []inject.Program{p}, Hits: 8}}}, nil, nil},
		{"begin anew", inject.Detour{Enters: []inject.Enter{{ID: probe, Max: 5, Missed: 7, Programs: []inject.Program{p}}}, Exits: []inject.Exit{{ID: probe, Again: true, Hits: 8}}}, nil, nil},
		{"return, data", inject.Detour{Return: ret(inject.Return{ID: probe, Data: 16, Entry: []inject.Program{p}, Programs: []inject.Program{p}})}, nil, nil},
		{"return, data, veto", inject.Detour{Return: ret(inject.Return{ID: probe, Data: 8, Entry: []inject.Program{one}, Veto: true})}, nil, nil},
	}
	there := len(tests)
	for i, tt := range tests[:there:there] { // and all kinds that are no function's entry with the jump ahead
		if testing.Short() && i%3 != 0 {
			continue // the jump ahead is the same in each
		}
		if tt.detour.Return == nil && !slices.ContainsFunc(tt.detour.Programs, func(p inject.Program) bool { return p.Override }) {
			tt.name += ", ahead"
			tests = append(tests, tt)
		}
	}
	var detours []*inject.Detour
	for i, tt := range tests {
		d := tt.detour
		d.Hits = 3
		if d.Missed == 0 {
			d.Missed = 4
		}
		at := h.detour
		if i >= there {
			at = h.ahead
		}
		detours = append(detours, at("f_lea", d))
		code, err := detours[len(detours)-1].Code()
		if err != nil {
			t.Fatal(err)
		}
		h.put(detours[len(detours)-1].At, code)
	}
	end := h.area.Addr - areaRoom // of a stack: nothing is mapped below
	h.say("code %x %x", uint64(end), stackSizeOfTests)
	s = h.step()
	seeds := uint64(2)
	if testing.Short() {
		seeds = 1
	}
	for i, tt := range tests {
		s.what, s.value = tt.name, 0
		if len(tt.detour.Programs) > 0 && tt.detour.Programs[0].Override {
			s.value = overriding
		}
		prepare := func() {
			// Anew: a trial may have ended in the middle of anything.
			clear(h.seg.Mem[h.seg.AwayKey(0):h.seg.AwayCall(h.seg.AwayEntries())])
			h.seg.Assign(segment.Thread{Key: key, TID: h.pid, StackHigh: hostMachine.UserEnd})
			h.seg.Mem[segment.HeadDead] = 0
			s.behind(x86.AppendCall(nil, 0)...)
			if tt.prepare != nil {
				tt.prepare()
			}
		}
		least := s.atTheEnd("f_lea", detours[i], prepare, end)
		t.Logf("%s: %d bytes of stack are enough", tt.name, least)
		for seed := range seeds {
			phases := s.everywhere("f_lea", detours[i], prepare, seed)
			for p := inject.Before; p <= inject.Displaced; p++ {
				if p == inject.Running && (narrow() || len(tt.detour.Programs) == 0) { // there between the halves of a counter
					continue
				}
				if never := slices.Contains(tt.never, p); (phases[p] == 0) != never {
					t.Errorf("%s: stopped %v times in the phases", tt.name, phases)
				}
			}
			for _, p := range tt.never {
				if p > inject.Displaced && phases[p] != 0 {
					t.Errorf("%s: stopped %v times in the phases", tt.name, phases)
				}
			}
		}
	}
}
