package jit

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/asm/a64"
)

// text64 is GNU's text of A64 code, a line an instruction.
func text64(t *testing.T, code []byte) (lines []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, code, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("aarch64-linux-gnu-objdump", "-D", "-z", "-b", "binary", "-m", "aarch64", "-M", "no-aliases", "--no-show-raw-insn", file).Output()
	if err != nil {
		t.Fatal("objdump: ", err)
	}
	for _, m := range regexp.MustCompile(`(?m)^ *[0-9a-f]+:\t(.*)$`).FindAllStringSubmatch(string(out), -1) {
		lines = append(lines, strings.Join(strings.Fields(m[1]), " "))
	}
	return lines
}

func name64(n int, r gpr, zero string) string {
	letter := map[int]string{4: "w", 8: "x"}[n]
	if r == 31 {
		if zero == "sp" && n == 8 {
			return "sp"
		}
		return letter + zero
	}
	return fmt.Sprint(letter, uint32(r))
}

// GNU's disassembler reads every kind of instruction as it was meant, with registers that have all
// bits of the fields.
func TestEncoding64(t *testing.T) {
	a := &asm64{}
	var want []string
	is := func(format string, args ...any) { want = append(want, fmt.Sprintf(format, args...)) }
	general := []gpr{0, 7, 16, 25, 30}
	three := map[uint32]string{a64.And: "and", a64.Orr: "orr", a64.Eor: "eor", a64.Ands: "ands", a64.Add: "add", a64.Sub: "sub", a64.Subs: "subs",
		a64.Udiv: "udiv", a64.Sdiv: "sdiv", a64.Lslv: "lslv", a64.Lsrv: "lsrv", a64.Asrv: "asrv"}
	rng := rand.New(rand.NewPCG(64, 64))
	for _, n := range []int{4, 8} {
		r := func(x gpr) string { return name64(n, x, "zr") }
		s := func(x gpr) string { return name64(n, x, "sp") }
		for _, x := range general {
			for _, y := range general {
				for op, mnemonic := range three {
					a.rrr(n, op, x, y, x^1)
					is("%s %s, %s, %s", mnemonic, r(x), r(y), r(x^1))
				}
				a.rrrr(n, a64.Madd, x, y, x^1, y^1)
				is("madd %s, %s, %s, %s", r(x), r(y), r(x^1), r(y^1))
				a.rrrr(n, a64.Msub, x, y, x^1, zr)
				is("msub %s, %s, %s, %s", r(x), r(y), r(x^1), r(zr))
				a.move(n, x, y)
				is("orr %s, %s, %s", r(x), r(zr), r(y))
				for _, v := range []int64{0, 1, 4095, 4096, 4095 << 12} {
					shift := ""
					if v > 4095 {
						shift = ", lsl #12"
					}
					field := v
					if v > 4095 {
						field >>= 12
					}
					if !a.addImm(n, x, y, v) {
						t.Errorf("no addition of %d", v)
					}
					is("add %s, %s, #%#x%s", s(x), s(y), field, shift)
					if !a.compareImm(n, x, v) {
						t.Errorf("no comparison with %d", v)
					}
					is("subs %s, %s, #%#x%s", r(zr), s(x), field, shift)
					if v == 0 {
						continue
					}
					a.addImm(n, x, y, -v)
					is("sub %s, %s, #%#x%s", s(x), s(y), field, shift)
					a.compareImm(n, x, -v)
					is("adds %s, %s, #%#x%s", r(zr), s(x), field, shift)
				}
				k := 1 + rng.IntN(8*n-1)
				a.lsl(n, x, y, k)
				is("ubfm %s, %s, #%d, #%d", r(x), r(y), 8*n-k, 8*n-1-k)
				a.lsr(n, x, y, k)
				is("ubfm %s, %s, #%d, #%d", r(x), r(y), k, 8*n-1)
				a.asr(n, x, y, k)
				is("sbfm %s, %s, #%d, #%d", r(x), r(y), k, 8*n-1)
				a.loadExclusive(n, x, y)
				is("ldaxr %s, [%s]", r(x), name64(8, y, "sp"))
				a.storeExclusive(n, x, y, 31)
				is("stlxr %s, %s, [sp]", name64(4, x, ""), r(y))
			}
		}
		for op, mnemonic := range map[uint32]string{a64.And: "and", a64.Orr: "orr", a64.Eor: "eor", a64.Ands: "ands"} {
			for range 400 {
				// A run of ones, rotated, and repeated.
				size := 2 << rng.IntN(6)
				if size > 8*n {
					continue
				}
				run := uint64(1)<<(1+rng.IntN(size-1)) - 1
				k := rng.IntN(size)
				v := (run<<k | run>>(size-k)) & (^uint64(0) >> (64 - size))
				for w := size; w < 8*n; w *= 2 {
					v |= v << w
				}
				if !a.logical(n, op, 5, 6, v) {
					t.Errorf("%#x of %d bytes is no immediate", v, n)
				}
				is("%s %s, %s, #%#x", mnemonic, r(5), r(6), v)
			}
		}
		for _, v := range []uint64{0, ^uint64(0), 5, 0x1234, 0xffff0ff0} {
			if w, ok := a64.Logical(n, a64.And, 5, 6, v); ok {
				t.Errorf("%#x of %d bytes is in the instruction %#x", v, n, w)
			}
		}
	}
	for n, names := range map[int][3]string{1: {"strb w", "ldrb w", "ldrsb x"}, 2: {"strh w", "ldrh w", "ldrsh x"}, 4: {"str w", "ldr w", "ldrsw x"}, 8: {"str x", "ldr x", ""}} {
		for i, op := range []uint32{a64.Store, a64.Load, a64.Signed} {
			if names[i] == "" {
				continue
			}
			mnemonic, letter, _ := strings.Cut(names[i], " ")
			a.access(op, n, 3, 25, 0, 10)
			is("%s %s3, [x25]", mnemonic, letter)
			a.access(op, n, 3, 25, int32(4095*n), 10)
			is("%s %s3, [x25, #%d]", mnemonic, letter, 4095*n)
			a.access(op, n, 3, 31, int32(2*n), 10)
			is("%s %s3, [sp, #%d]", mnemonic, letter, 2*n)
			unscaled := strings.Replace(strings.Replace(mnemonic, "ldr", "ldur", 1), "str", "stur", 1)
			a.access(op, n, 3, 25, -256, 10)
			is("%s %s3, [x25, #-256]", unscaled, letter)
			if n > 1 {
				a.access(op, n, 3, 25, 255, 10)
				is("%s %s3, [x25, #255]", unscaled, letter)
			}
			a.access(op, n, 3, 25, -257, 10)
			is("movn x10, #0x100")
			is("%s %s3, [x25, x10]", mnemonic, letter)
		}
	}
	a.bitfield(4, false, 3, 4, 0, 15)
	is("ubfm w3, w4, #0, #15")
	a.bitfield(8, true, 3, 4, 0, 31)
	is("sbfm x3, x4, #0, #31")
	a.put(a64.Rev16|4<<5|3, 3)
	is("rev16 w3, w4")
	a.put(a64.Rev32|4<<5|3, 3)
	is("rev w3, w4")
	a.put(a64.Rev64|4<<5|3, 3)
	is("rev x3, x4")
	a.storeRelease(3, 4)
	is("stlr w3, [x4]")
	a.barrier()
	is("dmb ish")
	a.ret()
	is("ret")

	// Jumps, there and back, near and far.
	back, on := a.newLabel(), a.newLabel()
	a.bind(back)
	start := len(a.code)
	a.goTo(on)
	a.callLabel(back)
	a.when(a64.HS, on)
	a.whenZero(8, true, 9, back)
	a.whenZero(4, false, 9, on)
	a.far = true
	a.when(a64.LE, back)
	a.whenZero(4, true, 9, on)
	a.bind(on)
	a.ret()
	end := start + 4*9
	is("b 0x%x", end)
	is("bl 0x%x", start)
	is("b.cs 0x%x", end)
	is("cbnz x9, 0x%x", start)
	is("cbz w9, 0x%x", end)
	is("b.gt 0x%x", start+28)
	is("b 0x%x", start)
	is("cbz w9, 0x%x", start+36)
	is("b 0x%x", end)
	is("ret")
	if _, _, err := a.finish(); err != nil {
		t.Fatal(err)
	}

	got := text64(t, a.code)
	if len(got) != len(want) {
		t.Fatalf("%d instructions, want %d", len(got), len(want))
	}
	comment := regexp.MustCompile(` *(//|<).*$`)
	for i := range got {
		if line := comment.ReplaceAllString(got[i], ""); line != want[i] {
			t.Errorf("%d: %s, want %s", i, line, want[i])
		}
	}
}

// A jump that its field cannot hold is found, and then made longer.
func TestFar64(t *testing.T) {
	a := &asm64{}
	to := a.newLabel()
	a.when(a64.EQ, to)
	a.code = append(a.code, make([]byte, 1<<20)...)
	a.bind(to)
	if _, _, err := a.finish(); err != errFar {
		t.Errorf("a jump of a MiB: %v", err)
	}
	if n := bits.OnesCount64(uint64(places64.helper)); n != 19 || places64.helper.Has(18) {
		t.Errorf("helpers change %d registers", n)
	}
}
