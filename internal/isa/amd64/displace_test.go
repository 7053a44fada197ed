package amd64

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// displaced runs instructions in their place, with traps behind them, and as Displace makes them,
// and describes the first difference.
func (w *world) displaced(t *testing.T, n *native, code []byte, s *state) error {
	t.Helper()
	v, err := w.machine().Displace(code, w.instrAt, w.near)
	if err != nil || v.Kind == isa.Refuse {
		return errors.Join(err, errors.New(v.Reason))
	}
	want := n.run(t, s, piece{w.instrAt, code})
	from := s.clone()
	from.regs[arch.IP] = uint64(w.near)
	got := n.run(t, from, piece{w.near, v.Code}, piece{w.instrAt, bytes.Repeat([]byte{0xf4}, len(code))})
	if err := translate(s, got, w.near, &v, w.machine().Arch().PtrSize); err != nil {
		return fmt.Errorf("% x: %w", v.Code, err)
	}
	if d := want.differs(got); d != "" {
		return fmt.Errorf("% x: %s", v.Code, d)
	}
	return nil
}

// Runs of instructions from a real library, in their place and displaced.
func TestDisplaceAgainstCPU(t *testing.T) {
	trials := 4000 * *effort
	if testing.Short() {
		trials = 500
	}
	f, err := elf.Open("/lib/x86_64-linux-gnu/libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text, err := f.Section(".text").Data()
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(11, 12))
	w := highWorld
	n := w.open(t)
	ran, branches := 0, 0
	for range trials {
		code, branch := w.pick(text, rng)
		if code == nil {
			continue
		}
		ran++
		if branch {
			branches++
		}
		s := w.random(n, rng)
		if err := w.displaced(t, n, code, s); err != nil {
			t.Errorf("% x: %v", code, err)
		}
	}
	if ran < trials/4 || branches < trials/50 {
		t.Errorf("only %d of %d runs, %d with a branch before their end", ran, trials, branches)
	}
}

// pick takes two to five instructions that may be displaced together. It leaves out instructions
// that a second run would do otherwise, or that would lead back into the run. branch tells that not
// only the last may leave.
func (w *world) pick(text []byte, rng *rand.Rand) (code []byte, branch bool) {
	at := rng.IntN(len(text) - 100)
	want := 2 + rng.IntN(4)
	for k := range want {
		in, err := Decode(text[at:], 64)
		pc := w.instrAt + arch.Addr(len(code))
		if err != nil || in.Flow == isa.Break || in.PCRel && in.Prefix&PrefixLock != 0 || unrepeatable(&in, text[at:], pc) {
			return nil, false
		}
		raw := bytes.Clone(text[at : at+int(in.Len)])
		switch {
		case in.relOperand():
			binary.LittleEndian.PutUint32(raw[in.PCRelOff:], uint32(int64(w.data+1024+arch.Addr(rng.IntN(32)*64)-pc-arch.Addr(in.Len))))
		case in.PCRel && in.PCRelSize == 1:
			raw[in.PCRelOff] = 0x60 // behind the run
		case in.PCRel:
			binary.LittleEndian.PutUint32(raw[in.PCRelOff:], 0x200)
		}
		code = append(code, raw...)
		at += int(in.Len)
		switch {
		case k+1 < want && leaves(in.Flow), in.Flow == isa.IndirectCall && in.ModRM < 0xc0:
			return nil, false // see world.underPush for the second
		case k+1 < want && in.Flow == isa.CondJump:
			branch = true
		}
	}
	return code, branch
}

// Branches that have no long form, in the middle.
func TestDisplaceShortBranches(t *testing.T) {
	w := highWorld
	n := w.open(t)
	states := 40
	if testing.Short() {
		states = 10
	}
	for _, lines := range []string{
		"jrcxz .+0x30\nadd rax, rbx\nloop .+0x30\nmov rdx, 5",
		"loopne .+0x40\njecxz .+0x20\npush rcx",
		"je .+0x30\njmp rax",
		"sub rsp, 8\nsete al\nja .+0x22\ncall rdx",
	} {
		_, parts := assemble(t, "--64", lines)
		code := bytes.Join(parts, nil)
		rng := rand.New(rand.NewPCG(13, uint64(len(code))))
		for range states {
			if err := w.displaced(t, n, code, w.random(n, rng)); err != nil {
				t.Fatalf("%q: %v", lines, err)
			}
		}
	}
}

func TestDisplaceRefuses(t *testing.T) {
	for _, tt := range []struct{ lines, want string }{
		{"call rax\nnop", "leaves, and others follow"},
		{"ret\nnop", "leaves, and others follow"},
		{"nop\njmp .+0x10\nnop", "leaves, and others follow"},
		{"nop\nint3", "breakpoint"},
		{"push rax\ncall rsp", "only emulation"},
	} {
		_, parts := assemble(t, "--64", tt.lines)
		v, err := ISA.Displace(bytes.Join(parts, nil), 0x1000, 0x9000)
		if err != nil || v.Kind != isa.Refuse || !strings.Contains(v.Reason, tt.want) {
			t.Errorf("%q: %v %q %v, want a refusal: %s", tt.lines, v.Kind, v.Reason, err, tt.want)
		}
	}
	if _, err := ISA.Displace([]byte{0x90, 0x48}, 0x1000, 0x9000); !errors.Is(err, isa.ErrUnknown) {
		t.Errorf("half an instruction: %v", err)
	}
}

// Every guard traps whatever bytes follow it, where it stands, and changes nothing.
func TestGuardsTrap(t *testing.T) {
	const sigill, sigsegv = 4, 11
	for _, w := range here(t, lowWorld, highWorld, world32) {
		n := w.open(t)
		rng := rand.New(rand.NewPCG(15, 16))
		for _, g := range w.machine().JumpForm().Guards {
			for range 30 {
				code := make([]byte, 15)
				for i := range code {
					code[i] = byte(rng.Uint32())
				}
				code[0] = g.Byte
				s := w.random(n, rng)
				got := n.run(t, s, piece{w.instrAt, code})
				want := s.clone()
				want.signal, want.sigCode, want.sigAddr = got.signal, got.sigCode, got.sigAddr
				want.vector = got.vector // the bits that are not set in it come back as the CPU likes
				signal := sigill
				switch g.Fault {
				case isa.Breakpoint:
					signal = sigTrap
					want.regs[arch.IP]++
				case isa.Protected:
					signal = sigsegv
				}
				want.regs[arch.FLAGS] &^= n.unseen
				if d := want.differs(got); d != "" || got.signal != signal {
					t.Fatalf("%s % x: signal %d, want %d; %s", w.name, code, got.signal, signal, d)
				}
			}
		}
	}
}

// The jump with and without its prefix leads to the same place.
func TestJumpFormAgainstCPU(t *testing.T) {
	for _, w := range here(t, lowWorld, world32) {
		n := w.open(t)
		form := w.machine().JumpForm()
		for lead := range 4 {
			code := append(bytes.Repeat([]byte{form.Prefix}, lead), form.Opcode)
			to := w.landings + 100
			code = binary.LittleEndian.AppendUint32(code, uint32(to-w.instrAt-arch.Addr(lead+form.Len())))
			got := n.run(t, w.random(n, rand.New(rand.NewPCG(17, 18))), piece{w.instrAt, code})
			if got.regs[arch.IP] != uint64(to) {
				t.Errorf("%s % x leads to %#x, want %v", w.name, code, got.regs[arch.IP], to)
			}
		}
	}
}
