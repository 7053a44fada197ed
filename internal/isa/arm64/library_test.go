package arm64

import (
	"bufio"
	"encoding/binary"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/asm/a64"
	"kprobe/internal/isa"
)

// GNU's disassembler as the judge, over whole libraries: an instruction that it shows to refer to
// an address refers to the same one here, and no other instruction refers to any.

var libraries = []string{"libc.so.6", "libm.so.6", "ld-linux-aarch64.so.1"}

var line = regexp.MustCompile(`^ *([0-9a-f]+):\t([0-9a-f]{8}) \t([a-z0-9.]+)(?:\t(.*))?$`)

// address is an operand that is one, at the end.
var place = regexp.MustCompile(`(?:^|, )([0-9a-f]+) <`)

// flowOf is the flow of GNU's mnemonic.
func flowOf(m string) isa.Flow {
	switch {
	case m == "b":
		return isa.Jump
	case m == "bl":
		return isa.Call
	case strings.HasPrefix(m, "b."), m == "cbz", m == "cbnz", m == "tbz", m == "tbnz":
		return isa.CondJump
	case m == "br", strings.HasPrefix(m, "bra"):
		return isa.IndirectJump
	case strings.HasPrefix(m, "blr"):
		return isa.IndirectCall
	case strings.HasPrefix(m, "ret"):
		return isa.Return
	case m == "svc":
		return isa.Syscall
	case m == "brk":
		return isa.Break
	case m == "hvc", m == "smc", m == "hlt":
		return isa.Trap
	case m == "udf":
		return isa.Undefined
	}
	return isa.Next
}

var exclusives = regexp.MustCompile(`^(ld|st)a?l?xp?r?[bh]?$`)

func TestLibraries(t *testing.T) {
	seen, relative, flows, exclusive := 0, 0, map[isa.Flow]int{}, 0
	for _, lib := range libraries {
		cmd := exec.Command("aarch64-linux-gnu-objdump", "-d", "-z", "/usr/aarch64-linux-gnu/lib/"+lib)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(out); s.Scan(); {
			m := line.FindStringSubmatch(s.Text())
			if m == nil || m[3] == ".inst" || m[3] == ".word" {
				continue
			}
			pc, _ := strconv.ParseUint(m[1], 16, 64)
			word, _ := strconv.ParseUint(m[2], 16, 32)
			text := m[3] + " " + m[4]
			in, err := ISA.Decode(binary.LittleEndian.AppendUint32(nil, uint32(word)), arch.Addr(pc))
			want := flowOf(m[3])
			seen++
			flows[want]++
			switch to := place.FindStringSubmatch(m[4]); {
			case err != nil:
				t.Errorf("%s %x: %08x %s: %v", lib, pc, word, text, err)
			case in.Flow != want:
				t.Errorf("%s %x: %08x %s: flow %v, want %v", lib, pc, word, text, in.Flow, want)
			case in.PCRel != (to != nil):
				t.Errorf("%s %x: %08x %s: refers to its own place: %v", lib, pc, word, text, in.PCRel)
			case to != nil:
				relative++
				if a, _ := strconv.ParseUint(to[1], 16, 64); arch.Addr(a) != in.Target {
					t.Errorf("%s %x: %08x %s: refers to %v", lib, pc, word, text, in.Target)
				}
			case exclusives.MatchString(m[3]) != (in.Monitor != isa.Leaves) && m[3] != "clrex":
				t.Errorf("%s %x: %08x %s: monitor %v", lib, pc, word, text, in.Monitor)
			case in.Monitor != isa.Leaves:
				exclusive++
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d instructions, %d refer to their own place, %d exclusive; %v", seen, relative, exclusive, flows)
	if seen < 300000 || relative < 60000 || exclusive < 30 {
		t.Errorf("of %d instructions %d refer to their own place, %d are exclusive", seen, relative, exclusive)
	}
}

// An instruction that cannot be probed has a reason.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		word   uint32
		reason string
	}{
		{0xd4200000, "breakpoint"}, {0xd4207d00, "breakpoint"}, {0xd4400000, "debugger"}, {0xd69f03e0, "exception"},
		{0x885ffc41, "exclusive"}, {0xc8017c02, "exclusive"}, {0x887f0820, "exclusive"},
		{0x19010440, "copy or fill memory"}, {0x1d010440, "copy or fill memory"}, {0x19c10440, "copy or fill memory"},
		{0xdac1a3fe, "its own place"}, {0xf380001f, "its own place"}, {0x5500001f, "its own place"},
		{0xd5233061, "transaction"}, {0x5cffffe4, "its own bytes"}, {0x9cffffa4, "its own bytes"}, {0x58000004, "its own bytes"}, {0x18000024, ""}, {0x18ffffe4, ""}, {0xd63f03c0, ""}, {0x1c000020, "out of reach"},
	} {
		v, err := ISA.Place(binary.LittleEndian.AppendUint32(nil, c.word), 0x400000, 0x4000000)
		if err != nil || (v.Kind == isa.Refuse) != (c.reason != "") || !strings.Contains(v.Reason, c.reason) {
			t.Errorf("%08x: %v %q, %v", c.word, v.Kind, v.Reason, err)
		}
	}
	// Compare and swap, and ordered accesses, are no exclusives; new branches are not known.
	for _, word := range []uint32{0x88a07c41, 0xc8e0fc41, 0x08dffc41, 0x48207c82} {
		if v, err := ISA.Place(binary.LittleEndian.AppendUint32(nil, word), 0x400000, 0x4000000); err != nil || v.Kind != isa.Copy {
			t.Errorf("%08x: %v %q, %v", word, v.Kind, v.Reason, err)
		}
	}
	for _, word := range []uint32{0x74000000, 0x75000000, 0xd7000000, 0x56000000, 0xd4e00000} {
		if in, err := ISA.Decode(binary.LittleEndian.AppendUint32(nil, word), 0x400000); err == nil {
			t.Errorf("%08x is taken for %+v", word, in)
		}
	}
	// A call by the link register, in a slot, would lose the register; on registers it does not.
	v, _ := ISA.Place([]byte{0xc0, 0x03, 0x3f, 0xd6}, 0x400000, 0x4000000)
	if v.Kind != isa.Emulate || len(v.Code) != 0 {
		t.Errorf("blr x30: %v, % x", v.Kind, v.Code)
	}
}

// Several in a row, and addresses that they refer to out of a branch's reach.
func TestDisplace(t *testing.T) {
	code := func(words ...uint32) (b []byte) {
		for _, w := range words {
			b = binary.LittleEndian.AppendUint32(b, w)
		}
		return b
	}
	v, err := ISA.Displace(code(0x54000040, 0x910003fd, 0xd65f03c0), 0x400000, 0x500000) // b.eq, mov, ret
	want := code(0x54000041, 0x17fc0001, 0x910003fd, 0xd65f03c0)
	if err != nil || string(v.Code) != string(want) || v.Body != len(want) || len(v.Marks) != 4 {
		t.Errorf("% x, body %d, marks %v, %s: %v; want % x", v.Code, v.Body, v.Marks, v.Reason, err, want)
	}
	for _, c := range [][]byte{code(0xd65f03c0, nop), code(0xc8017c02), code(nop)[:4]} {
		at := arch.Addr(0x500000)
		if len(c) == 4 && c[0] == 0x1f {
			at = 0x20000000
		}
		if v, err := ISA.Displace(c, 0x400000, at); err != nil || v.Kind != isa.Refuse {
			t.Errorf("% x: %v, %v", c, v.Kind, err)
		}
	}
	if _, err := ISA.Displace(code(nop)[:3], 0, 0); err == nil {
		t.Error("three bytes were taken for an instruction")
	}
}

// A constant is the value that its instructions make.
func TestConstant(t *testing.T) {
	for _, v := range []uint64{0, 1, 0xffff, 0x10000, 0xffff800080001000, ^uint64(0), 0xffffffffffff0000, 0x1234567890abcdef, 0xffff000000000000, 0x0000ffffffffffff} {
		got := uint64(0)
		words := a64.Constant(5, v)
		for _, w := range words {
			at, h := 16*(w>>21&3), uint64(w>>5&0xffff)
			switch w >> 23 {
			case 0xd2800000 >> 23:
				got = h << at
			case 0x92800000 >> 23:
				got = ^(h << at)
			case 0xf2800000 >> 23:
				got = got&^(0xffff<<at) | h<<at
			default:
				t.Errorf("%#x: %08x", v, w)
			}
			if w&31 != 5 {
				t.Errorf("%#x: %08x is of another register", v, w)
			}
		}
		if got != v || len(words) > 4 {
			t.Errorf("%#x: %08x make %#x", v, words, got)
		}
	}
}
