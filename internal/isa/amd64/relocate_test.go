package amd64

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/asm/x86"
	"kprobe/internal/isa"
)

var update = flag.Bool("update", false, "rewrite testdata/place.golden (needs objdump)")

// TestPlaceGolden reads testdata/place.golden: cases, each with what Place
// makes of it. The disassembly behind the bytes is objdump's, and is checked
// where there is one.
func TestPlaceGolden(t *testing.T) {
	const file = "testdata/place.golden"
	_, err := exec.LookPath("objdump")
	disassemble := err == nil
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, block := range strings.Split(strings.TrimSpace(string(b)), "\n\n") {
		lines := strings.SplitN(block, "\n", 3)
		if strings.HasPrefix(block, "#") {
			out = append(out, block)
			continue
		}
		var mode int
		var pc, slot uint64
		where, bytes, _ := strings.Cut(lines[1], ":")
		if _, err := fmt.Sscanf(where, "%d-bit at %v slot %v", &mode, &pc, &slot); err != nil {
			t.Fatalf("%q: %v", lines[1], err)
		}
		code, err := hex.DecodeString(strings.ReplaceAll(bytes, " ", ""))
		if err != nil {
			t.Fatalf("%q: %v", lines[1], err)
		}
		m := ISA
		if mode == 32 {
			m = machine386
		}
		v, err := m.Place(code, arch.Addr(pc), arch.Addr(slot))
		if err != nil {
			t.Errorf("%s: %v", lines[0], err)
			continue
		}
		got := listing(t, &v, mode, arch.Addr(slot), disassemble)
		out = append(out, strings.Join(lines[:2], "\n")+"\n"+got)
		if *update {
			continue
		}
		want := ""
		if len(lines) == 3 {
			want = lines[2]
		}
		if !disassemble {
			want = withoutText(want)
		}
		if got != want {
			t.Errorf("%s\n%s\ngot\n%s\nwant\n%s", lines[0], lines[1], got, want)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// listing prints a verdict: one line for each instruction of its code with the
// offset, the address that the program sees, and the bytes.
func listing(t *testing.T, v *isa.Verdict, mode int, slot arch.Addr, disassemble bool) string {
	out := v.Kind.String()
	if v.Reason != "" {
		out += ": " + v.Reason
	}
	if v.Code != nil {
		out += fmt.Sprintf("; body %d of %d", v.Body, len(v.Code))
	}
	if v.Emulate != nil {
		out += "; emulation"
	}
	for i, m := range v.Marks {
		end := len(v.Code)
		if i+1 < len(v.Marks) {
			end = v.Marks[i+1].Off
		}
		at := m.PC.String()
		if m.SP != 0 {
			at += fmt.Sprintf(" sp%+d", m.SP)
		}
		line := fmt.Sprintf("  +%-2d %-19s % x", m.Off, at, v.Code[m.Off:end])
		if disassemble {
			line = fmt.Sprintf("%-72s ; %s", line, objdump(t, v.Code[m.Off:end], mode, slot+arch.Addr(m.Off)))
		}
		out += "\n" + line
	}
	return out
}

func withoutText(listing string) string {
	lines := strings.Split(listing, "\n")
	for i, l := range lines[1:] {
		l, _, _ = strings.Cut(l, " ; ")
		lines[i+1] = strings.TrimRight(l, " ")
	}
	return strings.Join(lines, "\n")
}

// objdump is the text of the one instruction in code; the eight bytes behind
// the absolute jump are data.
func objdump(t *testing.T, code []byte, mode int, at arch.Addr) string {
	t.Helper()
	text := ""
	if isJmpAbs(code) {
		text = fmt.Sprintf(" -> %#x", binary.LittleEndian.Uint64(code[6:]))
		code = code[:6]
	}
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, code, 0o644); err != nil {
		t.Fatal(err)
	}
	machine := map[int]string{64: "i386:x86-64", 32: "i386"}[mode]
	dump, err := exec.Command("objdump", "-D", "-w", "-b", "binary", "-M", "intel", "-m", machine,
		fmt.Sprintf("--adjust-vma=%#x", uint64(at)), file).Output()
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(dump)), "\n")
	last := strings.Split(lines[len(lines)-1], "\t")
	if first := lines[len(lines)-2]; !strings.HasSuffix(first, ">:") || len(last) != 3 {
		t.Errorf("% x is not one instruction:\n%s", code, dump)
	}
	return strings.Join(strings.Fields(last[2]), " ") + text
}

func isJmpAbs(code []byte) bool {
	return len(code) >= x86.JmpFarLen && bytes.Equal(code[:6], []byte{0xff, 0x25, 0, 0, 0, 0})
}

func TestPlaceRefuses(t *testing.T) {
	for _, c := range []struct{ code, why string }{
		{"cc", "a breakpoint instruction of someone else"},
		{"0f34", "the kernel returns from it to an address of its own choice"},
		{"66ffe0", "a branch with an operand size prefix means different things on Intel and AMD"},
		{"66c3", "a branch with an operand size prefix means different things on Intel and AMD"},
		{"f2e1", "a loope or loopne with a repeat prefix means different things on Intel and AMD"},
		{"ff18", "a far call pushes the slot's address"},
		{"48ff28", "a far branch with REX.W means different things on Intel and AMD"},
		{"6465ff20", "a branch with two segment prefixes"},
	} {
		code, _ := hex.DecodeString(c.code + "0000000000000000")
		v, err := ISA.Place(code, 0x401000, 0x500000)
		if err != nil || v.Kind != isa.Refuse || v.Reason != c.why || v.Code != nil || v.Emulate != nil {
			t.Errorf("%s: %v %q, %v; want refuse %q", c.code, v.Kind, v.Reason, err, c.why)
		}
	}
}

func TestPlaceUnknown(t *testing.T) {
	for _, code := range [][]byte{nil, {0x48}, {0x06}, {0xe8, 1, 2}, {0x0f, 0x04}} {
		if v, err := ISA.Place(code, 0, 0); !errors.Is(err, isa.ErrUnknown) {
			t.Errorf("% x: %v %v, want ErrUnknown", code, v.Kind, err)
		}
	}
}

// The longest slots there are, so that SlotSize is not a guess.
func TestSlotSize(t *testing.T) {
	longest := append(bytes.Repeat([]byte{0x2e}, maxLen-1), 0x90)
	for _, c := range []struct {
		m    isa.ISA
		code []byte
	}{
		{ISA, []byte{0x67, 0xe2, 0x10}}, // a loop, everything out of reach
		{machine386, longest},
	} {
		v, err := c.m.Place(c.code, 0x7f00_0000_0000, 0x10000)
		if err != nil || len(v.Code) != c.m.SlotSize() {
			t.Errorf("% x takes %d bytes, %v; want %d", c.code, len(v.Code), err, c.m.SlotSize())
		}
	}
}

func TestDecodeTarget(t *testing.T) {
	for _, c := range []struct {
		m    isa.ISA
		code string
		pc   arch.Addr
		want isa.Insn
	}{
		{ISA, "55", 0x401000, isa.Insn{Len: 1, Pushes: true, Pushed: arch.BP}},
		{ISA, "54", 0x401000, isa.Insn{Len: 1}},
		{ISA, "4155", 0x401000, isa.Insn{Len: 2}},
		{machine386, "50", 0x401000, isa.Insn{Len: 1, Pushes: true, Pushed: arch.AX}},
		{ISA, "f3aa", 0x401000, isa.Insn{Len: 2, Repeats: true}},
		{ISA, "f248a7", 0x401000, isa.Insn{Len: 3, Repeats: true}},
		{ISA, "aa", 0x401000, isa.Insn{Len: 1}},
		{ISA, "f3c3", 0x401000, isa.Insn{Len: 2, Flow: isa.Return}},
		{ISA, "ebfe", 0x401000, isa.Insn{Len: 2, Flow: isa.Jump, PCRel: true, PCRelOff: 1, PCRelSize: 1, Target: 0x401000}},
		{ISA, "c70504000000aabbccdd", 0x401000, isa.Insn{Len: 10, PCRel: true, PCRelOff: 2, PCRelSize: 4, Target: 0x40100e}},
		{ISA, "678b05f9ffffff", 0x7f00_0040_1000, isa.Insn{Len: 7, PCRel: true, PCRelOff: 3, PCRelSize: 4, Target: 0x401000}},
		{ISA, "67e8fbffffff", 0x7f00_0040_1000, isa.Insn{Len: 6, Flow: isa.Call, PCRel: true, PCRelOff: 2, PCRelSize: 4, Target: 0x7f00_0040_1001}},
		{machine386, "e900000080", 0x9000_0000, isa.Insn{Len: 5, Flow: isa.Jump, PCRel: true, PCRelOff: 1, PCRelSize: 4, Target: 0x1000_0005}},
	} {
		code, _ := hex.DecodeString(c.code)
		if got, err := c.m.Decode(code, c.pc); err != nil || got != c.want {
			t.Errorf("%s: %+v %v, want %+v", c.code, got, err, c.want)
		}
	}
}

func TestJump(t *testing.T) {
	b, err := ISA.Jump(0x1000, 0x2000)
	if err != nil || !bytes.Equal(b, []byte{0xe9, 0xfb, 0x0f, 0, 0}) {
		t.Errorf("% x %v", b, err)
	}
	const from, end = arch.Addr(0x1000_0000_0000), arch.Addr(0x1000_0000_0000 + x86.JmpLen)
	for _, c := range []struct {
		to    arch.Addr
		reach bool
	}{
		{end + math.MaxInt32, true},
		{end + math.MaxInt32 + 1, false},
		{end - 1<<31, true},
		{end - 1<<31 - 1, false},
	} {
		b, err := ISA.Jump(from, c.to)
		if c.reach != (err == nil) || err != nil && !errors.Is(err, isa.ErrRange) {
			t.Errorf("to %v: % x %v", c.to, b, err)
		}
	}
	if b, err := machine386.Jump(0x1000, 0xf0000000); err != nil || !bytes.Equal(b, []byte{0xe9, 0xfb, 0xef, 0xff, 0xef}) {
		t.Errorf("% x %v", b, err)
	}
}

func FuzzPlace(f *testing.F) {
	for _, s := range []string{"90", "e8fb0f0000", "ff142408", "48ff2508000000", "0f8400010000", "e2fe", "67e3fe",
		"c20800", "0f05", "cd80", "c7f810000000", "62f17c48580510000000", "c5f8580510000000", "66c7050000000034120f",
		"ff94cc00000000", "ff54240c", "ff6424f8", "48cf", "6766ff18", "f2ff15aabbccdd"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, uint64(0x401000), uint64(0x40000000), true)
		f.Add(b, uint64(0x7fff_f000_1000), uint64(0x10000), true)
		f.Add(b, uint64(0xfffffff0), uint64(0x10), false)
	}
	f.Fuzz(func(t *testing.T, code []byte, pc, slot uint64, wide bool) {
		m := machine386
		if wide {
			m = ISA
		} else {
			pc, slot = uint64(uint32(pc)), uint64(uint32(slot))
		}
		if err := checkPlace(m, code, arch.Addr(pc), arch.Addr(slot)); err != nil {
			t.Fatal(err)
		}
	})
}

// checkPlace holds every verdict to its contract.
func checkPlace(m isa.ISA, code []byte, pc, slot arch.Addr) error {
	in, err := m.Decode(code, pc)
	v, perr := m.Place(code, pc, slot)
	if err != nil || perr != nil {
		if !errors.Is(err, isa.ErrUnknown) || !errors.Is(perr, isa.ErrUnknown) {
			return fmt.Errorf("errors %v and %v", err, perr)
		}
		return nil
	}
	cut := m.(*machine).cut
	next := cut(pc + arch.Addr(in.Len))
	switch {
	case v.Kind == isa.Refuse:
		if v.Reason == "" || v.Code != nil || v.Marks != nil || v.Emulate != nil {
			return errors.New("a refusal must say why and no more")
		}
		return nil
	case v.Kind == isa.Emulate && v.Emulate == nil, v.Kind == isa.Copy && v.Code == nil:
		return fmt.Errorf("%v without it", v.Kind)
	case v.Code == nil:
		return nil
	case len(v.Code) > m.SlotSize():
		return fmt.Errorf("%d bytes, more than SlotSize", len(v.Code))
	case v.Body < 1 || v.Body > len(v.Code):
		return fmt.Errorf("body %d of %d", v.Body, len(v.Code))
	case v.Body == len(v.Code) && v.Emulate == nil:
		return errors.New("leaves by itself, and no emulation for a post-handler")
	case v.Marks[0] != isa.Mark{PC: cut(pc)}:
		return fmt.Errorf("first mark is %+v", v.Marks[0])
	}
	// Walk the code: instructions must begin exactly at the marks, and lead to
	// where the instruction leads.
	mark := 0
	bodyEnds := v.Body == len(v.Code)
	for off := 0; off < len(v.Code); mark++ {
		if mark == len(v.Marks) || v.Marks[mark].Off != off {
			return fmt.Errorf("no mark at %d: %+v", off, v.Marks)
		}
		if off == v.Body {
			bodyEnds = true
			if (v.Marks[mark] != isa.Mark{Off: off, PC: next}) {
				return fmt.Errorf("mark behind the body is %+v", v.Marks[mark])
			}
		}
		si, err := m.Decode(v.Code[off:], slot+arch.Addr(off))
		if err != nil {
			return fmt.Errorf("code at %d: %w", off, err)
		}
		to, leads := si.Target, si.PCRel
		if isJmpAbs(v.Code[off:]) && m == ISA {
			to = arch.Addr(binary.LittleEndian.Uint64(v.Code[off+6:]))
			si.Len = x86.JmpFarLen
		}
		inside := to > slot && to < slot+arch.Addr(len(v.Code))
		if leads && to != next && !(in.PCRel && to == in.Target) && !inside {
			return fmt.Errorf("code at %d leads to %v, want %v or %v", off, to, next, in.Target)
		}
		off += si.Len
	}
	if mark != len(v.Marks) || !bodyEnds {
		return fmt.Errorf("marks %+v do not fit the code, body %d", v.Marks, v.Body)
	}
	return nil
}

// A verdict's kind must be known before the slot is.
func FuzzKindIsStable(f *testing.F) {
	f.Add([]byte{0xe8, 0, 0, 0, 0}, uint32(0x1000), uint32(0x2000))
	f.Add([]byte{0x48, 0x8d, 0x05, 0, 0, 0, 0}, uint32(0x1000), uint32(0xffff))
	f.Fuzz(func(t *testing.T, code []byte, a, b uint32) {
		const pc, window = arch.Addr(0x7f00_0000_0000), 1 << 28
		in, err := ISA.Decode(code, pc)
		if err != nil || in.PCRel && in.Target-pc+window > 2*window {
			return // an operand so far away that some slots do not reach it
		}
		near, _ := ISA.Place(code, pc, pc+arch.Addr(a%window))
		other, _ := ISA.Place(code, pc, pc-arch.Addr(b%window))
		if near.Kind != other.Kind || near.Body != other.Body || len(near.Code) != len(other.Code) {
			t.Errorf("% x: %v and %v", code[:in.Len], near, other)
		}
	})
}
