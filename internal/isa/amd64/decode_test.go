package amd64

import (
	"bufio"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
)

// Tests look at the maps themselves, before anything is decoded.
func init() { built.Do(build) }

// TestDecode reads testdata/decode.golden: mode, bytes, then the decoder's result. objdump judges
// lengths; this holds the parts that objdump does not show.
func TestDecode(t *testing.T) {
	f, err := os.Open("testdata/decode.golden")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	cases := 0
	for s := bufio.NewScanner(f); s.Scan(); {
		text, _, _ := strings.Cut(s.Text(), "#")
		column := strings.Split(text, "|")
		if len(column) < 3 {
			continue
		}
		mode, err := strconv.Atoi(strings.TrimSpace(column[0]))
		if err != nil {
			t.Fatal(err)
		}
		code, err := hex.DecodeString(strings.ReplaceAll(column[1], " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		i, err := Decode(code, mode)
		if got, want := describe(i, err), strings.TrimSpace(column[2]); got != want {
			t.Errorf("%d | % x\n got %s\nwant %s", mode, code, got, want)
		}
		cases++
	}
	if cases == 0 {
		t.Error("no cases")
	}
}

var flowNames = map[isa.Flow]string{
	isa.Next: "next", isa.Jump: "jump", isa.CondJump: "condjump", isa.IndirectJump: "indirect jump",
	isa.Call: "call", isa.IndirectCall: "indirect call", isa.Return: "return", isa.Syscall: "syscall",
	isa.Break: "break", isa.Trap: "trap", isa.Undefined: "undefined", isa.Privileged: "privileged",
}

// describe is an instruction in one line: its parts by length, its flow, and
// what is relative.
func describe(i Inst, err error) string {
	if err != nil {
		return err.Error()
	}
	s := fmt.Sprintf("len %d op %d/%d %s", i.Len, i.OpSize, i.AddrSize, flowNames[i.Flow])
	if i.DispSize != 0 {
		s += fmt.Sprintf(" disp %d+%d", i.DispOff, i.DispSize)
	}
	if i.ImmSize != 0 {
		s += fmt.Sprintf(" imm %d+%d", i.ImmOff, i.ImmSize)
	}
	if i.PCRel {
		s += fmt.Sprintf(" rel %d at %d+%d", i.Rel, i.PCRelOff, i.PCRelSize)
	}
	return s
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	good, bad := []byte{0x48, 0x8b, 0x05, 1, 2, 3, 4}, []byte{0x06}
	if n := testing.AllocsPerRun(100, func() {
		Decode(good, 64)
		Decode(bad, 64)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzDecode holds the rules that are true of all bytes.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		"f30f1efa", "c5f877", "488b0501020304", "e801020304", "66666666666666660f1f840000000000",
		"62f17c48580501020304", "8fe878c0c109", "0f0fc1bf", "c8100000", "48b80102030405060708",
		"f20f38f1c8", "67e305", "9a010203040506", "8f0424", "c7f801020304",
	} {
		code, err := hex.DecodeString(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(code, true)
		f.Add(code, false)
	}
	f.Fuzz(func(t *testing.T, code []byte, long bool) {
		mode := 32
		if long {
			mode = 64
		}
		i, err := Decode(code, mode)
		if err != nil {
			if err != isa.ErrUnknown || i != (Inst{}) {
				t.Fatalf("% x: %v with %+v", code, err, i)
			}
			return
		}
		if err := checkInst(i, code, mode); err != "" {
			t.Fatalf("% x: %s: %+v", code, err, i)
		}
		if u := i.Uses(code[:i.Len]); u.FlagsWritten&effectFlagsNever != 0 && u.Exact && i.Opcode != 0x9d {
			t.Fatalf("% x: %+v", code, u)
		}
		if i.Name() == "" {
			t.Fatalf("% x: no name", code)
		}
	})
}

// effectFlagsNever are flags that only popf and its like write.
const effectFlagsNever = FlagTF | FlagIF

// checkInst describes the first mistake in a decoded instruction.
func checkInst(i Inst, code []byte, mode int) string {
	n := int(i.Len)
	switch {
	case n < 1 || n > maxLen || n > len(code):
		return "length"
	case i.OpOff >= i.Len:
		return "opcode outside"
	case i.Map != Map3DNow && code[i.OpOff] != i.Opcode:
		return "opcode is not at OpOff"
	case i.HasModRM && (i.ModRMOff >= i.Len || code[i.ModRMOff] != i.ModRM):
		return "ModRM"
	case i.HasSIB && (!i.HasModRM || code[i.ModRMOff+1] != i.SIB):
		return "SIB"
	case i.PCRel && (i.PCRelSize == 0 || i.PCRelOff+i.PCRelSize > i.Len):
		return "relative field outside"
	case i.PCRel && i.Rel != signed(code[i.PCRelOff:i.PCRelOff+i.PCRelSize]):
		return "relative value"
	}
	// The parts come in order, without gaps, and make up the whole.
	end := i.OpOff + 1
	if i.Map == Map3DNow {
		end = i.ModRMOff
	}
	for _, part := range []struct {
		is        bool
		off, size uint8
	}{{i.HasModRM, i.ModRMOff, 1}, {i.HasSIB, i.ModRMOff + 1, 1}, {i.DispSize != 0, i.DispOff, i.DispSize}, {i.ImmSize != 0, i.ImmOff, i.ImmSize}} {
		if part.is {
			if part.off != end {
				return "parts do not follow each other"
			}
			end += part.size
		}
	}
	if i.Map == Map3DNow {
		end++
	}
	if end != i.Len {
		return "parts do not make up the whole"
	}
	if again, err := Decode(code[:n], mode); err != nil || again != i {
		return "depends on the bytes after it"
	}
	for cut := range n {
		if _, err := Decode(code[:cut], mode); err != isa.ErrUnknown {
			return "shorter without its last bytes"
		}
	}
	return ""
}

func BenchmarkDecode(b *testing.B) {
	f, err := elf.Open("/lib/x86_64-linux-gnu/libc.so.6")
	if err != nil {
		b.Skip(err)
	}
	defer f.Close()
	text, err := f.Section(".text").Data()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	n := 0
	for b.Loop() {
		n = 0
		for at := 0; at < len(text); n++ {
			i, err := Decode(text[at:], 64)
			if err != nil {
				i.Len = 1
			}
			at += int(i.Len)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/insn")
}

// Assemblers fill the space between i386 functions with lea of a register into itself. The same
// bytes cut a register to 32 bits in 64-bit mode.
func TestPaddingOfI386(t *testing.T) {
	for _, tt := range []struct {
		code string
		fill bool
	}{
		{"8d742600", true},
		{"8d7600", true},
		{"8db42600000000", true},
		{"8db600000000", true},
		{"8dbc2700000000", true},
		{"2e8d742600", true},
		{"8d36", true},
		{"8d642400", true},          // lea 0(%esp),%esp
		{"8d742601", false},         // 1(%esi)
		{"8d7700", false},           // %edi into %esi
		{"8d740600", false},         // 0(%esi,%eax)
		{"8d3425ffffffff", false},   // an address
		{"8d2d00000000", false},     // lea 0,%ebp
		{"8d2c2500000000", false},   // the same by a SIB byte
		{"668d742600", false},       // 16 bits of it
		{"8db42600000001", false},   // far away
		{"678d7400", false},         // lea 0(%si),%si: the upper half is lost
		{"8b742600", false},         // mov
		{"c4e2790f0600", false},     // AVX
		{"0fb6b42600000000", false}, // movzx
	} {
		code, err := hex.DecodeString(tt.code)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range []*arch.Arch{arch.I386, arch.AMD64} {
			in, err := New(a).Decode(code, 0x1000)
			if want := tt.fill && a == arch.I386; err == nil && in.Nop != want || err != nil && tt.fill {
				t.Errorf("%s: % x: fills %v, %v; want %v", a.Name, code, in.Nop, err, want)
			}
		}
	}
}
