package jit

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/asm/rv64"
)

// textRV is GNU's text of RISC-V code, a line an instruction.
func textRV(t *testing.T, code []byte) (lines []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("riscv64-linux-gnu-objdump", "-D", "-z", "-b", "binary", "-m", "riscv:rv64", "-M", "no-aliases,numeric", "--no-show-raw-insn", file).Output()
	if err != nil {
		t.Fatal("objdump: ", err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ *[0-9a-f]+:\t(.*)$`).FindAllStringSubmatch(string(out), -1) {
		line, _, _ := strings.Cut(m[1], "#")
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return lines
}

// GNU's disassembler reads every kind of instruction as it was meant, with registers that have all
// bits of the fields.
func TestEncodingRV(t *testing.T) {
	a := &asmRV{}
	var want []string
	is := func(format string, args ...any) { want = append(want, fmt.Sprintf(format, args...)) }
	general := []gpr{1, 8, 18, 31}
	three := map[uint32]string{rv64.Add: "add", rv64.Sub: "sub", rv64.Sll: "sll", rv64.Srl: "srl", rv64.Sra: "sra", rv64.Mul: "mul",
		rv64.Div: "div", rv64.Divu: "divu", rv64.Rem: "rem", rv64.Remu: "remu", rv64.Sltu: "sltu", rv64.Xor: "xor", rv64.Or: "or", rv64.And: "and"}
	noWord := map[uint32]bool{rv64.Sltu: true, rv64.Xor: true, rv64.Or: true, rv64.And: true}
	atomics := map[uint32]string{rv64.AmoAdd: "amoadd", rv64.AmoSwap: "amoswap", rv64.AmoXor: "amoxor", rv64.AmoOr: "amoor", rv64.AmoAnd: "amoand", rv64.SC: "sc"}
	for _, x := range general {
		for _, y := range general {
			z := x ^ 1
			for op, mnemonic := range three {
				a.rrr(op, x, y, z)
				is("%s x%d,x%d,x%d", mnemonic, x, y, z)
				if !noWord[op] {
					a.rrr(op|rvWord(4), x, y, z)
					is("%sw x%d,x%d,x%d", mnemonic, x, y, z)
				}
			}
			for op, mnemonic := range map[uint32]string{rv64.Addi: "addi", rv64.Xori: "xori", rv64.Ori: "ori", rv64.Andi: "andi", rv64.Addi | rv64.Word: "addiw"} {
				for _, v := range []int64{0, 1, 2047, -1, -2048} {
					a.imm(op, x, y, v)
					is("%s x%d,x%d,%d", mnemonic, x, y, v)
				}
			}
			for op, mnemonic := range map[uint32]string{rv64.Slli: "slli", rv64.Srli: "srli", rv64.Srai: "srai"} {
				a.imm(op, x, y, 63)
				is("%s x%d,x%d,0x3f", mnemonic, x, y)
				a.imm(op|rv64.Word, x, y, 21)
				is("%sw x%d,x%d,0x15", mnemonic, x, y)
			}
			for n, letter := range map[int]string{4: "w", 8: "d"} {
				for op, mnemonic := range atomics {
					a.amo(n, op|rv64.Acquire|rv64.Releases, x, y, z)
					is("%s.%s.aqrl x%d,x%d,(x%d)", mnemonic, letter, x, y, z)
				}
				a.amo(n, rv64.LR|rv64.Acquire, x, rvZero, z)
				is("lr.%s.aq x%d,(x%d)", letter, x, z)
			}
			for n, letter := range map[int]string{1: "b", 2: "h", 4: "w", 8: "d"} {
				for _, off := range []int32{0, 2047, -2048, -1} {
					a.load(n, true, x, y, off)
					is("l%s x%d,%d(x%d)", letter, x, off, y)
					a.store(n, x, y, off)
					is("s%s x%d,%d(x%d)", letter, x, off, y)
					if n < 8 {
						a.load(n, false, x, y, off)
						is("l%su x%d,%d(x%d)", letter, x, off, y)
					}
				}
				a.store(n, x, y, 2048)
				is("lui x28,0x1")
				is("addiw x28,x28,-2048")
				is("add x28,x28,x%d", y)
				is("s%s x%d,0(x28)", letter, x)
			}
		}
	}
	a.storeRelease(3, 4)
	is("fence rw,w")
	is("sw x3,0(x4)")
	a.put(rv64.Fence, rvZero)
	is("fence rw,rw")

	// Jumps, there and back, of all lengths.
	back, on := a.newLabel(), a.newLabel()
	a.bind(back)
	begin := len(a.code)
	conditions := map[uint32]string{rvEQ: "beq", rvNE: "bne", rvLT: "blt", rvGE: "bge", rvLTU: "bltu", rvGEU: "bgeu"}
	for cond, mnemonic := range conditions {
		a.reach = rvBranch
		a.when(cond, 9, 31, back)
		is("%s x9,x31,0x%x", mnemonic, begin)
		at := len(a.code)
		a.reach = rvJump
		a.when(cond, 9, 31, back)
		is("%s x9,x31,0x%x", conditions[cond^1], at+8)
		is("jal x0,0x%x", begin)
		a.reach = rvPair
		a.when(cond, 9, 31, back)
		is("%s x9,x31,0x%x", conditions[cond^1], at+20)
		is("auipc x28,0x0")
		is("jalr x0,%d(x28)", begin-at-12)
	}
	a.reach = rvJump
	a.callLabel(on)
	a.goTo(on)
	a.reach = rvPair
	a.callLabel(on)
	a.ret()
	a.bind(on)
	end := len(a.code)
	is("jal x1,0x%x", end)
	is("jal x0,0x%x", end)
	is("auipc x1,0x0")
	is("jalr x1,12(x1)")
	is("jalr x0,0(x1)")
	if _, _, err := a.finish(); err != nil {
		t.Fatal(err)
	}
	got := textRV(t, a.code)
	if len(got) != len(want) {
		t.Fatalf("%d instructions, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%d: %s, want %s", i, got[i], want[i])
		}
	}
}

// reckon does what words that put a constant into x5 do.
func reckon(t *testing.T, words []uint32) (v uint64) {
	for i, w := range words {
		imm := uint64(int64(int32(w)) >> 20)
		from := v
		if i == 0 {
			from = 0
		}
		switch w & 0x707f {
		case rv64.Addi:
			v = from + imm
		case rv64.Addi | rv64.Word:
			v = uint64(int64(int32(from + imm)))
		case rv64.Slli:
			v = from << (imm & 63)
		default:
			if w&0x7f != rv64.Lui || i > 0 {
				t.Fatalf("%#x in %#x", w, words)
			}
			v = uint64(int64(int32(w &^ 0xfff)))
		}
	}
	return v
}

// Constants of all lengths, at the places where a carry goes from part to part.
func TestConstantRV(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	for i := range 200000 {
		v := rng.Uint64() >> rng.IntN(64)
		switch i % 4 {
		case 1:
			v = ^v
		case 2:
			v = 1<<rng.IntN(64) + uint64(rng.IntN(3)) - 1
		case 3:
			v = -(1<<rng.IntN(64) + uint64(rng.IntN(3)) - 1)
		}
		if words := rv64.Constant(5, v); reckon(t, words) != v || len(words) > 8 {
			t.Fatalf("%#x: %d words, which are %#x", v, len(words), reckon(t, words))
		}
	}
}

// A jump that its field cannot hold is found, of each length.
func TestFarRV(t *testing.T) {
	for _, reach := range []struct {
		kind rvField
		on   int // how far it leads ahead
		ok   bool
	}{{rvBranch, 4094, true}, {rvBranch, 4096, false}, {rvJump, 1<<20 - 2, true}, {rvJump, 1 << 20, false}} {
		a := &asmRV{reach: reach.kind}
		to := a.newLabel()
		if reach.kind == rvBranch {
			a.when(rvEQ, 5, 6, to)
		} else {
			a.goTo(to)
		}
		a.code = append(a.code, make([]byte, reach.on-4)...)
		a.bind(to)
		if _, _, err := a.finish(); (err == nil) != reach.ok {
			t.Errorf("%d bytes ahead: %v", reach.on, err)
		}
	}
	// A call of a helper reaches 2 GiB, from a place of the lower half on less by the half of 4
	// KiB.
	for _, far := range []struct {
		d  int64
		ok bool
	}{{1<<31 - 1<<11 - 2, true}, {1<<31 - 1<<11, false}, {-1<<31 - 1<<11, true}, {-1<<31 - 1<<11 - 2, false}} {
		const from = 1 << 40
		words, ok := rv64.Call(from, arch.Addr(from+far.d))
		if ok != far.ok {
			t.Errorf("a call %#x away: %v", far.d, ok)
		}
		to := from + int64(int32(words[0]&^0xfff)) + int64(int32(words[1])>>20)
		if ok && to != from+far.d {
			t.Errorf("a call %#x away leads %#x away", far.d, to-from)
		}
	}
}

// The address nowhere is no memory of a program, however many bits of an address are translated and
// however many are a pointer's mask: it is never like the addresses that have only lower bits.
func TestNowhereRV(t *testing.T) {
	for _, translated := range []int{39, 48, 57} {
		for _, mask := range []int{0, 7, 16} {
			v := int64(placesRV.nowhere) << mask >> mask
			if v >= 0 && v < 1<<(translated-1) {
				t.Errorf("%#x is memory of a program with %d bits, %d of the upper ones masked", v, translated, mask)
			}
		}
	}
}
