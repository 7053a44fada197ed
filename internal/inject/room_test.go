package inject_test

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/inject"
	arm64code "kprobe/internal/inject/arm64"
	x86code "kprobe/internal/inject/x86"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/testprog/qemurun"
)

// TestDepthOfRoutines goes every way through the routines that detours call, and looks how much of the program's own stack they take.
func TestDepthOfRoutines(t *testing.T) {
	for m, decoder := range map[*inject.Machine]isa.ISA{x86code.AMD64: amd64.ISA, x86code.I386: amd64.New(arch.I386), arm64code.ARM64: arm64.ISA} {
		w := &depths{TB: t, m: m, isa: decoder, been: make(map[[2]int]bool)}
		for name, at := range w.m.Routines {
			// From trap_exit on they are the programs'; those of kernels' calls find them by their slots.
			if at >= w.m.Routines["trap_exit"] && w.m.Routines["trap_exit"] > 0 || strings.HasSuffix(name, "_slot") {
				continue
			}
			depth := 0
			if m.RetAddrOnStack {
				depth = m.PtrSize
			}
			w.walk(at, depth)
		}
		if w.deepest != w.m.Depth {
			t.Errorf("%s: routines take %d bytes of the program's stack; detours make sure of %d", m.Name, w.deepest, w.m.Depth)
		}
	}
}

// depths is a way through routines.
type depths struct {
	testing.TB
	m       *inject.Machine
	isa     isa.ISA
	been    map[[2]int]bool // where, and how deep
	deepest int
}

// walk goes on from an instruction, so many bytes deep.
func (w *depths) walk(at, depth int) {
	for !w.been[[2]int{at, depth}] {
		w.been[[2]int{at, depth}] = true
		w.deepest = max(w.deepest, depth)
		code := w.m.Runtime[at:]
		in, err := w.isa.Decode(code[:min(len(code), w.m.MaxInsn)], arch.Addr(at))
		if err != nil {
			w.Fatalf("%s: at %#x: %v", w.m.Name, at, err)
		}
		grows, elsewhere := w.grows(code[:in.Len])
		if elsewhere {
			return // it goes on on the private stack
		}
		depth += grows
		next := at + in.Len
		switch in.Flow {
		case isa.Return, isa.Break:
			return
		case isa.Jump:
			next = int(in.Target)
		case isa.CondJump:
			w.walk(int(in.Target), depth)
		case isa.Call:
			word := 0
			if w.m.RetAddrOnStack {
				word = w.m.PtrSize
			}
			if int(in.Target) == next { // which asks where it is, and pops that
				depth += word
				break
			}
			w.walk(int(in.Target), depth+word)
		case isa.IndirectCall, isa.IndirectJump:
			if code[0]&0xf != 0 || w.m != arm64code.ARM64 { // ret by a register, of arm64
				w.Fatalf("%s: at %#x: where to?", w.m.Name, at)
			}
			return
		}
		at = next
	}
}

// grows is what an instruction adds to a stack; elsewhere tells that it takes another one.
func (w *depths) grows(insn []byte) (n int, elsewhere bool) {
	if w.m == arm64code.ARM64 {
		const sp = 31
		v := binary.LittleEndian.Uint32(insn)
		pair := int(int32(v<<10)>>25) * 8
		switch {
		case v>>5&0x1f != sp:
		case v&0xffc00000 == arm64code.A64SaveTwo&0xffc00000: // stp, [sp, #n]!
			n = -pair
		case v&0xffc00000 == arm64code.A64BackTwo&0xffc00000: // ldp, [sp], #n
			n = -pair
		case v&0x1f == sp && v&0xff000000 == arm64code.A64SubImm&0xff000000, v&0x3b200000 == 0x38000000 && v>>10&1 != 0: // what else would move it
			w.Fatalf("%s: %#x moves the stack pointer", w.m.Name, v)
		}
		return n, false
	}
	word, rex := w.m.PtrSize, byte(0)
	for word == 8 && insn[0]&0xf0 == 0x40 || slices.Contains([]byte{0x66, 0xf0, 0xf2, 0xf3, 0x64, 0x65}, insn[0]) {
		if insn[0]&0xf0 == 0x40 {
			rex = insn[0]
		}
		insn = insn[1:]
	}
	op, modrm := insn[0], byte(0)
	if len(insn) > 1 {
		modrm = insn[1]
	}
	const sp = 4
	toSP := modrm>>3&7 == sp && rex&4 == 0
	switch {
	case op&0xf8 == 0x50, op == 0xff && modrm>>3&7 == 6, op == 0x68, op == 0x6a:
		return word, false
	case op&0xf8 == 0x58, op == 0x8f:
		return -word, false
	case (op == 0x8d || op == 0x8b) && toSP:
		return 0, true
	case (op == 0x81 || op == 0x83) && modrm == 0xec: // sub
		return int(int8(insn[2])), false
	}
	return 0, false
}

// atTheEnd calls a function at the end of a stack, with fewer and more bytes left. The thread either finds no room at an
// instruction of the detour's own before anything has happened, and passes it by; or the call is as ever.
func (s *stepper) atTheEnd(f string, d *inject.Detour, prepare func(), end arch.Addr) (least int) {
	s.Helper()
	const most = 1024
	original, from := make([]byte, 8), s.addr[f]
	s.do(s.peek(from, original))
	defer s.poke(from, original)
	jump, err := hostISA.Jump(from, d.At)
	s.do(err)
	// call is one with n bytes left: what it comes to, what it counts, and how often it found no room.
	call := func(n int) (o outcome, counted []uint64, passed int) {
		r, stack := s.entry(f, rand.New(rand.NewPCG(uint64(n), 1)))
		r[arch.SP] = uint64(end) + uint64(n)
		s.poke(end+arch.Addr(n), stack[stackSizeOfTests/2:])
		before := s.counted(nil)
		s.setRegs(&r)
		for {
			s.do(unix.PtraceCont(s.pid, 0))
			sig := s.wait()
			at := s.regs()
			if sig == unix.SIGTRAP && at[arch.IP] == uint64(s.trap())+1 {
				o.regs = at
				o.stack = make([]byte, stackSizeOfTests/2)
				s.do(s.peek(at.Addr(arch.SP), o.stack[:stackSizeOfTests/4]))
				return o, s.counted(before), passed
			}
			st, err := d.NoRoom(&at, s.peek)
			s.do(err)
			if sig != unix.SIGSEGV || st == nil {
				s.Fatalf("%s, %d bytes left: %v at +%#x", s.what, n, sig, at[arch.IP]-uint64(d.At))
			}
			if st.Busy != 0 || passed > 0 {
				s.Fatalf("%s, %d bytes left: something has happened before +%#x", s.what, n, at[arch.IP]-uint64(d.At))
			}
			st.Regs[arch.IP] = uint64(st.Resume)
			s.setRegs(&st.Regs)
			passed++
		}
	}
	begin := func() {
		prepare()
		s.poke(from, jump)
	}
	begin()
	_, hit, passed := call(most)
	if passed > 0 {
		s.Fatalf("%s: no room with %d bytes left", s.what, most)
	}
	least = -1
	for n := 0; n < most/2; n += hostMachine.PtrSize {
		s.poke(from, original)
		want, _, _ := call(n)
		begin()
		got, counted, passed := call(n)
		ignoreDead(d, &got.regs, &want.regs)
		switch {
		case passed == 0:
			if least < 0 {
				least = n
			}
			if !slices.Equal(counted, hit) {
				s.Fatalf("%s, %d bytes left: counted %d, not %d", s.what, n, counted, hit)
			}
			if s.value != 0 {
				continue
			}
		case passed > 1 || least >= 0 || slices.ContainsFunc(counted, func(n uint64) bool { return n != 0 }):
			s.Fatalf("%s, %d bytes left: passed by %d times, counted %d; %d bytes were enough", s.what, n, passed, counted, least)
		}
		if diff := want.differs(&got); diff != "" {
			s.Fatalf("%s, %d bytes left, passed by %d times: %s", s.what, n, passed, diff)
		}
	}
	return least
}

// TestARM64NoRoom calls a function with detours at both of its instructions at the end of a stack, whose thread is known or
// has yet to be.
func TestARM64NoRoom(t *testing.T) {
	for _, careful := range []bool{false, true} {
		c := newA64Caller(t, 8, inject.Enter{Max: 4}, true)
		c.seg.SetCareful(careful)
		c.put(c.area.Addr, c.area.Image())
		read := func(at arch.Addr, p []byte) error { copy(p, c.m.Read(uint64(at), len(p))); return nil }
		want := c.before
		want.X[0] += want.X[3]
		want.PC = a64Back
		rooms := 0
		for n := uint64(0); n <= 512; n += 16 {
			c.reset()
			s := c.before
			s.SP, want.SP = a64Stack+n, a64Stack+n
			passed := 0
			for c.m.Run(&s).Signal == qemurun.SIGSEGV {
				r := a64Regs(&s)
				var at *inject.Standing
				for _, d := range []*inject.Detour{c.enter, c.exit} {
					if st, err := d.NoRoom(&r, read); err != nil {
						t.Fatal(err)
					} else if st != nil {
						at = st
					}
				}
				if at == nil {
					t.Fatalf("%d bytes left: a fault at %#x", n, s.PC)
				}
				copy(s.X[:], at.Regs[:len(s.X)])
				s.SP, s.PC = at.Regs[arch.ARM64.SP], uint64(at.Resume)
				passed++
			}
			if s != want {
				t.Fatalf("%d bytes left: after a call\n%x; want\n%x", n, s, want)
			}
			c.fetch()
			hits, _ := c.seg.Counter(a64Hits)
			ended, _ := c.seg.Counter(a64Ended)
			if passed == 0 {
				rooms++
			}
			if passed == 0 && (hits != 2 || ended != 1) || passed > 0 && (passed != 2 || hits+ended != 0) || passed > 0 && rooms > 0 {
				t.Fatalf("%d bytes left: %d hits, %d ended, passed by %d times", n, hits, ended, passed)
			}
		}
		if rooms == 0 || rooms > 30 {
			t.Errorf("room for %d calls of 33", rooms)
		}
	}
}
