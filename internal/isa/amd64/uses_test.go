package amd64

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
)

func TestUses(t *testing.T) {
	const (
		ax, cx, dx, bx = 1 << arch.AX, 1 << arch.CX, 1 << arch.DX, 1 << arch.BX
		si, di, sp, bp = 1 << arch.SI, 1 << arch.DI, 1 << arch.SP, 1 << arch.BP
		r8, r9         = 1 << arch.R8, 1 << arch.R9
		all            = FlagsStatus
	)
	for _, c := range []struct {
		code          string
		reads, writes arch.RegSet
		flags, sets   FlagSet
	}{
		{"\x48\x89\xd8", bx, ax, 0, 0},                        // mov rax, rbx
		{"\x88\xd8", ax | bx, ax, 0, 0},                       // mov al, bl
		{"\x88\xe0", ax, ax, 0, 0},                            // mov al, ah
		{"\x40\x88\xe0", ax | sp, ax, 0, 0},                   // mov al, spl
		{"\x66\x89\xd8", ax | bx, ax, 0, 0},                   // mov ax, bx
		{"\x31\xc0", 0, ax, 0, all},                           // xor eax, eax
		{"\x4d\x31\xc8", r8 | r9, r8, 0, all},                 // xor r8, r9
		{"\x4c\x31\xc0", ax | r8, ax, 0, all},                 // xor rax, r8
		{"\x48\x8d\x44\x8b\x08", bx | cx, ax, 0, 0},           // lea rax, [rbx+rcx*4+8]
		{"\x8b\x04\x25\x00\x00\x00\x00", 0, ax, 0, 0},         // mov eax, [0]
		{"\x8b\x05\x00\x00\x00\x00", 0, ax, 0, 0},             // mov eax, [rip]
		{"\x55", bp | sp, sp, 0, 0},                           // push rbp
		{"\xc9", bp, sp | bp, 0, 0},                           // leave
		{"\x0f\x44\xc3", ax | bx, ax, FlagZF, 0},              // cmove eax, ebx
		{"\x0f\x9f\xc0", ax, ax, FlagZF | FlagSF | FlagOF, 0}, // setg al
		{"\xd3\xe0", ax | cx, ax, all, all},                   // shl eax, cl
		{"\xc1\xe0\x03", ax, ax, 0, all},                      // shl eax, 3
		{"\xc1\xe0\x20", ax, ax, all, all},                    // shl eax, 32: nothing
		{"\xf7\xe3", ax | bx, ax | dx, 0, all},                // mul ebx
		{"\xf3\xa4", cx | si | di, cx | si | di, FlagDF, 0},   // rep movsb
		{"\xaa", ax | di, di, FlagDF, 0},                      // stosb
		{"\x90", 0, 0, 0, 0},                                  // nop
		{"\x49\x90", ax | r8, ax | r8, 0, 0},                  // xchg r8, rax
		{"\x48\x63\xc3", bx, ax, 0, 0},                        // movsxd rax, ebx
		{"\xf3\x0f\x1e\xfa", 0, 0, 0, 0},                      // endbr64
		{"\x0f\x28\xc1", RegVector | RegX87, RegVector | RegX87, 0, 0},
		{"\xc4\xe2\xe3\xf6\xc1", cx | dx, ax | bx, 0, 0}, // mulx rax, rbx, rcx
		{"\x66\x0f\x7e\xc0", RegVector | RegX87, RegVector | RegX87 | ax, 0, 0},
	} {
		i, err := Decode([]byte(c.code), 64)
		if err != nil {
			t.Fatalf("% x: %v", c.code, err)
		}
		want := Uses{c.reads, c.writes, c.flags, c.sets, true}
		if got := i.Uses([]byte(c.code)); got != want {
			t.Errorf("% x: got %+v, want %+v", c.code, got, want)
		}
	}
	i, err := Decode([]byte{0x0f, 0x05}, 64)
	if err != nil {
		t.Fatal(err)
	}
	if u := i.Uses([]byte{0x0f, 0x05}); u.Exact || u.Reads != regAll || u.FlagsWritten != flagsAll {
		t.Errorf("syscall: %+v", u)
	}
}

// TestUsesAgainstCPU runs instructions of all opcodes that the table has on the processor, twice
// each. The second time everything is changed that the table says they do not read. Things that
// they are said not to write must stay, and the results that they do write must be the same.
func TestUsesAgainstCPU(t *testing.T) {
	w := lowWorld
	n := w.open(t)
	rng := rand.New(rand.NewPCG(1, 2))
	ran, faulted, opcodes := 0, 0, map[effectKey]bool{}
	for _, o := range allOpcodes() {
		for range 6 {
			code, ok := o.encode(rng)
			if !ok {
				continue
			}
			i, err := Decode(code, 64)
			if err != nil {
				t.Fatalf("% x: %v", code, err)
			}
			u := i.Uses(code)
			// Into itself, or memory that is the code behind it.
			loops := i.PCRel && (i.Rel < 0 && i.Rel >= -int64(i.Len) || i.DispSize == 4)
			if !u.Exact || i.Flow == isa.Privileged || varies(&i) || loops {
				continue
			}
			s := w.random(n, rng)
			if i.HasModRM && i.ModRM < 0xc0 && i.ModRM&7 != numSP && rng.IntN(4) != 0 {
				s.regs[extended(i.ModRM&7, i.Rex&rexB)] = uint64(w.data) + 2048 // memory that is there
			}
			if msg, ok := checkUses(t, w, n, &i, code, u, s, rng); !ok {
				faulted++
			} else if ran++; msg != "" {
				t.Errorf("% x (%s): %s: %+v", code, i.Name(), msg, u)
			} else {
				opcodes[effectKey{i.Enc, i.Map, i.PP, i.Opcode, 0}] = true
			}
		}
	}
	t.Logf("%d instructions of %d opcodes ran, %d faulted", ran, len(opcodes), faulted)
	if len(opcodes) < 500 {
		t.Errorf("only %d opcodes ran", len(opcodes))
	}
}

// varies tells whether an instruction's result is a matter of the moment.
func varies(i *Inst) bool {
	if i.Map != Map0F || i.Enc != Legacy {
		return false
	}
	return i.Opcode == 0x31 || i.Opcode == 0x01 || i.Opcode == 0xc7 || i.Opcode == 0xa2 || i.Opcode == 0x1e
}

// checkUses is false where the instruction did not run through from s.
func checkUses(t *testing.T, w *world, n *native, i *Inst, code []byte, u Uses, s *state, rng *rand.Rand) (string, bool) {
	at := piece{w.instrAt, code}
	first := n.run(t, s, at)
	if first.signal != sigTrap || first.sigCode != trapInt3 {
		return "", false
	}
	other := s.clone()
	for r := arch.AX; r <= arch.R15; r++ {
		if !u.Reads.Has(r) {
			other.regs[r] ^= rng.Uint64()
		}
	}
	if !n.anyStack {
		other.regs[arch.SP] = s.regs[arch.SP]
	}
	flip := uint64(FlagsStatus|FlagDF) &^ uint64(u.FlagsRead)
	other.regs[arch.FLAGS] ^= flip
	second := n.run(t, other, at)
	if second.signal != first.signal || second.regs[arch.IP] != first.regs[arch.IP] {
		return fmt.Sprintf("depends on what it does not read: signal %d at %#x, then %d at %#x",
			first.signal, first.regs[arch.IP], second.signal, second.regs[arch.IP]), true
	}
	for r := arch.AX; r <= arch.R15; r++ {
		name := arch.AMD64.RegName(r)
		if !u.Writes.Has(r) {
			if first.regs[r] != s.regs[r] {
				return "writes " + name, true
			}
			continue
		}
		if first.regs[r] != second.regs[r] {
			return name + " depends on what it does not read", true
		}
	}
	if changed := FlagSet(first.regs[arch.FLAGS]^s.regs[arch.FLAGS]) &^ u.FlagsWritten; changed != 0 {
		return fmt.Sprintf("writes flags %#x", changed), true
	}
	defined := u.FlagsWritten &^ effectOf(i).flagsUndefined
	if differ := FlagSet(first.regs[arch.FLAGS]^second.regs[arch.FLAGS]) & defined; differ != 0 {
		return fmt.Sprintf("flags %#x depend on what it does not read", differ), true
	}
	if !bytes.Equal(first.data, second.data) {
		return "memory depends on what it does not read", true
	}
	if u.Writes&RegX87 == 0 && changedBetween(s, first, 0, 6) || changedBetween(s, first, vecST, vecXMM) && u.Writes&RegX87 == 0 {
		return "writes x87 registers", true
	}
	if u.Writes&RegVector == 0 && (changedBetween(s, first, 24, 28) || changedBetween(s, first, vecXMM, vecXMM+256)) {
		return "writes vector registers", true
	}
	return "", true
}

func changedBetween(a, b *state, from, to int) bool {
	return !bytes.Equal(a.vector[from:to], b.vector[from:to])
}

// anOpcode is one that exists.
type anOpcode struct {
	enc Enc
	m   Map
	pp  uint8
	op  byte
	a   attr
}

func allOpcodes() (all []anOpcode) {
	add := func(enc Enc, m Map, pp int, c *column) {
		for op, a := range c {
			if a != 0 && a&attrI64 == 0 {
				all = append(all, anOpcode{enc, m, uint8(pp), byte(op), a})
			}
		}
	}
	add(Legacy, MapOneByte, 0, &oneByte)
	add(XOP, MapXOP9, 0, &xop[1])
	for pp := range 4 {
		for m := 1; m <= 3; m++ {
			add(Legacy, Map(m), pp, &legacy[m][pp])
			add(VEX, Map(m), pp, &vex[m][pp])
			add(EVEX, Map(m), pp, &evex[m][pp])
		}
	}
	return all
}

// encode makes an instruction of the opcode, with registers and immediates as
// they come, if it finds one.
func (o anOpcode) encode(rng *rand.Rand) ([]byte, bool) {
	for range 20 {
		var code []byte
		random := func() byte { return byte(rng.Uint32()) }
		switch o.enc {
		case Legacy:
			if p := []byte{0, 0x66, 0xf3, 0xf2}[o.pp]; p != 0 {
				code = append(code, p)
			} else if o.m == MapOneByte && rng.IntN(4) == 0 {
				code = append(code, []byte{0x66, 0xf3}[rng.IntN(2)])
			}
			if rng.IntN(2) == 0 {
				code = append(code, 0x40|random()&15)
			}
			code = append(code, map[Map][]byte{MapOneByte: nil, Map0F: {0x0f}, Map0F38: {0x0f, 0x38}, Map0F3A: {0x0f, 0x3a}}[o.m]...)
		case VEX:
			code = []byte{0xc4, random()&0xe0 | byte(o.m), random()&0xfc | o.pp}
			if o.a&attrVvvv == 0 {
				code[2] |= 0x78
			}
		case EVEX:
			code = []byte{0x62, random()&0xf0 | byte(o.m), random()&0xf8 | 4 | o.pp, random() & 0x6f}
			if o.a&attrVvvv == 0 {
				code[2] |= 0x78
				code[3] |= 8
			}
		case XOP:
			code = []byte{0x8f, random()&0xe0 | byte(o.m-MapXOP8+8), random() & 0xfc}
		}
		modrm := random()
		if rng.IntN(3) == 0 && modrm < 0xc0 {
			modrm &= 0x3f // no displacement
		}
		code = append(code, o.op, modrm)
		code = binary.LittleEndian.AppendUint64(code, uint64(rng.IntN(64)))
		if i, err := Decode(code, 64); err == nil && i.Opcode == o.op && i.Map == o.m && i.Enc == o.enc {
			return code[:i.Len], true
		}
	}
	return nil, false
}
