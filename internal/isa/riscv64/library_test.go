package riscv64

import (
	"bufio"
	"encoding/binary"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// GNU's disassembler as the judge, over whole libraries: an instruction that it shows to refer to
// an address refers to the same one here, and no other instruction refers to any.

var libraries = []string{"libc.so.6", "libm.so.6", "ld-linux-riscv64-lp64d.so.1"}

var line = regexp.MustCompile(`^ *([0-9a-f]+):\t([0-9a-f]{4}|[0-9a-f]{8}) +\t([a-z0-9._]+)(?:\t(.*))?$`)

// place is an operand that is an address, at the end.
var place = regexp.MustCompile(`(?:^|,)([0-9a-f]+) <`)

// flowOf is the flow of GNU's mnemonic, without aliases.
func flowOf(m, operands string) isa.Flow {
	switch {
	case m == "c.j", m == "jal" && strings.HasPrefix(operands, "zero,"):
		return isa.Jump
	case m == "jal":
		return isa.Call
	case m == "c.beqz", m == "c.bnez", m == "beq", m == "bne", m == "blt", m == "bge", m == "bltu", m == "bgeu":
		return isa.CondJump
	case m == "c.jr" && operands == "ra", m == "jalr" && operands == "zero,0(ra)":
		return isa.Return
	case m == "c.jr", m == "jalr" && strings.HasPrefix(operands, "zero,"):
		return isa.IndirectJump
	case m == "c.jalr", m == "jalr":
		return isa.IndirectCall
	case m == "ecall":
		return isa.Syscall
	case m == "ebreak", m == "c.ebreak":
		return isa.Break
	case m == "c.unimp":
		return isa.Undefined
	}
	return isa.Next
}

func TestLibraries(t *testing.T) {
	seen, relative, short, monitors, refused, flows := 0, 0, 0, 0, 0, map[isa.Flow]int{}
	for _, lib := range libraries {
		cmd := exec.Command("riscv64-linux-gnu-objdump", "-d", "-z", "-Mno-aliases", "/usr/riscv64-linux-gnu/lib/"+lib)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for s := bufio.NewScanner(out); s.Scan(); {
			m := line.FindStringSubmatch(s.Text())
			if m == nil || strings.HasPrefix(m[3], ".") {
				continue
			}
			pc, _ := strconv.ParseUint(m[1], 16, 64)
			word, _ := strconv.ParseUint(m[2], 16, 32)
			size := len(m[2]) / 2
			operands, _, _ := strings.Cut(m[4], " # ")
			code := binary.LittleEndian.AppendUint32(nil, uint32(word))[:size]
			in, err := ISA.Decode(code, arch.Addr(pc))
			want := flowOf(m[3], operands)
			to := place.FindStringSubmatch(operands)
			reads := strings.HasPrefix(m[3], "lr.")
			seen++
			flows[want]++
			if size == 2 {
				short++
			}
			switch {
			case err != nil:
				t.Errorf("%s %x: % x %s %s: %v", lib, pc, code, m[3], operands, err)
			case in.Len != size || in.Flow != want:
				t.Errorf("%s %x: % x %s %s: flow %v of %d bytes, want %v", lib, pc, code, m[3], operands, in.Flow, in.Len, want)
			case in.PCRel != (to != nil || m[3] == "auipc"):
				t.Errorf("%s %x: % x %s %s: refers to its own place: %v", lib, pc, code, m[3], operands, in.PCRel)
			case reads != (in.Monitor == isa.Opens) || strings.HasPrefix(m[3], "sc.") != (in.Monitor == isa.Closes):
				t.Errorf("%s %x: % x %s %s: monitor %v", lib, pc, code, m[3], operands, in.Monitor)
			case m[3] == "auipc":
				relative++
				_, pages, _ := strings.Cut(operands, ",")
				if v, _ := strconv.ParseUint(pages, 0, 64); arch.Addr(pc)+arch.Addr(int64(int32(v<<12))) != in.Target {
					t.Errorf("%s %x: % x %s %s: refers to %v", lib, pc, code, m[3], operands, in.Target)
				}
			case to != nil:
				relative++
				if a, _ := strconv.ParseUint(to[1], 16, 64); arch.Addr(a) != in.Target {
					t.Errorf("%s %x: % x %s %s: refers to %v", lib, pc, code, m[3], operands, in.Target)
				}
			case in.Monitor != isa.Leaves:
				monitors++
			}
			v, err := ISA.Place(code, arch.Addr(pc), arch.Addr(pc)+1<<28)
			if err != nil || v.Kind == isa.Refuse {
				refused++
			}
		}
		if err := cmd.Wait(); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d instructions, %d compressed, %d refer to their own place, %d exclusive, %d refused; %v", seen, short, relative, monitors, refused, flows)
	if seen < 300000 || short < 150000 || relative < 60000 || monitors < 30 || refused > 3000 {
		t.Errorf("of %d instructions %d are compressed, %d refer to their own place, %d are exclusive, %d refused", seen, short, relative, monitors, refused)
	}
}

// An encoding that is not known to be an instruction is none.
func TestUnknown(t *testing.T) {
	for _, code := range [][]byte{
		{}, {0x13}, {0x13, 0, 0}, // cut off
		{0x0b, 0, 0, 0}, {0x6b, 0, 0, 0}, // custom, reserved
		{0x63, 0x20, 0, 0}, {0x67, 0x10, 0, 0}, // a branch and a jalr of no kind
		{0x1f, 0, 0, 0, 0, 0}, {0x3f, 0, 0, 0, 0, 0, 0, 0}, // longer ones
		{0x02, 0x80}, {0x01, 0x61}, {0x04, 0x00}, // reserved compressed ones: c.jr x0, c.addi16sp 0, c.addi4spn 0
	} {
		if in, err := ISA.Decode(code, 0x1000); err == nil {
			t.Errorf("% x: %+v", code, in)
		}
	}
}

// Landing pads, and what lr and sc have between them, are not touched.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		code []byte
		why  string
	}{
		{[]byte{0x17, 0x10, 0, 0}, noLanding},
		{[]byte{0xaf, 0x26, 0x05, 0x10}, noMonitor}, // lr.w a3, (a0)
		{[]byte{0xaf, 0x26, 0xb5, 0x18}, noMonitor}, // sc.w a3, a1, (a0)
		{[]byte{0x02, 0x90}, noBreakpoint},
		{[]byte{0x73, 0, 0x10, 0}, noBreakpoint},
		{[]byte{0x73, 0, 0x20, 0x30}, noUser}, // mret
	} {
		v, err := ISA.Place(c.code, 0x1000, 0x2000)
		if err != nil || v.Kind != isa.Refuse || v.Reason != c.why {
			t.Errorf("% x: %v, %v", c.code, v, err)
		}
	}
}
