package jit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/asm/x86"
	"kprobe/internal/isa/amd64"
)

// The encoder against objdump, and against our own decoder.

var regNames = map[int][]string{
	1: {"al", "cl", "dl", "bl", "spl", "bpl", "sil", "dil", "r8b", "r9b", "r10b", "r11b", "r12b", "r13b", "r14b", "r15b"},
	2: {"ax", "cx", "dx", "bx", "sp", "bp", "si", "di", "r8w", "r9w", "r10w", "r11w", "r12w", "r13w", "r14w", "r15w"},
	4: {"eax", "ecx", "edx", "ebx", "esp", "ebp", "esi", "edi", "r8d", "r9d", "r10d", "r11d", "r12d", "r13d", "r14d", "r15d"},
	8: {"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"},
}

var sizeNames = map[int]string{1: "BYTE PTR ", 2: "WORD PTR ", 4: "DWORD PTR ", 8: "QWORD PTR "}

func nameOf(size int, o x86.Operand) string {
	if o.Reg != x86.NoReg {
		return regNames[size][o.Reg]
	}
	s := sizeNames[size] + "[" + regNames[8][o.Base]
	if o.Index != x86.NoReg {
		s += fmt.Sprintf("+%s*%d", regNames[8][o.Index], 1<<o.Shift)
	}
	switch {
	case o.Disp < 0:
		s += fmt.Sprintf("-%#x", -int64(o.Disp))
	case o.Disp > 0 || o.Base&7 == x86.RBP:
		s += fmt.Sprintf("+%#x", o.Disp)
	}
	return s + "]"
}

// immName is an immediate as objdump shows it for an operation of a size.
func immName(size int, v int32) string {
	return fmt.Sprintf("%#x", uint64(v)&(1<<(8*size-1)<<1-1))
}

// disassemble has objdump read code; one line for each instruction.
func disassemble(t testing.TB, code []byte) []string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(file, code, 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(slices.Clone(under.objdump), "-D", "-z", "-b", "binary", "--no-show-raw-insn", file)
	out, err := exec.Command(args[0], args[1:]...).Output()
	if err != nil {
		t.Fatal("objdump: ", err)
	}
	var lines []string
	for _, m := range regexp.MustCompile(`(?m)^ *[0-9a-f]+:\t(.*)$`).FindAllStringSubmatch(string(out), -1) {
		lines = append(lines, strings.Join(strings.Fields(m[1]), " "))
	}
	return lines
}

func TestEncoding(t *testing.T) {
	var a asm
	var want []string
	var ends []int
	is := func(format string, args ...any) {
		want = append(want, fmt.Sprintf(format, args...))
		ends = append(ends, len(a.code))
	}
	all := []x86.Reg{x86.RAX, x86.RCX, x86.RDX, x86.RBX, x86.RSP, x86.RBP, x86.RSI, x86.RDI, x86.R8, x86.R9, x86.R10, x86.R11, x86.R12, x86.R13, x86.R14, x86.R15}
	general := []x86.Reg{x86.RAX, x86.RCX, x86.RBX, x86.RBP, x86.RSI, x86.R8, x86.R12, x86.R13, x86.R15}
	var operands []x86.Operand
	for _, r := range all {
		for _, disp := range []int32{0, 1, -128, 127, 128, -129, 0x12345678} {
			operands = append(operands, x86.At(r, disp))
		}
		for _, index := range []x86.Reg{x86.RAX, x86.RBP, x86.R12, x86.R13} {
			operands = append(operands, x86.Indexed(r, index, uint8(r)&3, int32(r)-5))
		}
	}
	mnemonic := map[x86.ALU]string{x86.Add: "add", x86.Or: "or", x86.And: "and", x86.Sub: "sub", x86.Xor: "xor", x86.Cmp: "cmp"}
	imms := []int32{1, -1, 127, -128, 128, 0x1234, -0x12345678}

	for _, x := range all {
		for _, y := range all {
			for _, n := range []int{4, 8} {
				nx, ny := regNames[n][x], regNames[n][y]
				a.mov(n, x, y)
				is("mov %s,%s", nx, ny)
				a.alu(n, x86.Xor, x, y)
				is("xor %s,%s", nx, ny)
				a.imul(n, x, y)
				is("imul %s,%s", nx, ny)
				a.extend(n, 1, x, x86.In(y))
				is("movsx %s,%s", nx, regNames[1][y])
				a.extend(n, 2, x, x86.In(y))
				is("movsx %s,%s", nx, regNames[2][y])
				a.imulImm(n, x, y, -5)
				is("imul %s,%s,%s", nx, ny, immName(n, -5))
				a.imulImm(n, x, y, 500)
				is("imul %s,%s,0x1f4", nx, ny)
			}
			a.extend(8, 4, x, x86.In(y))
			is("movsxd %s,%s", regNames[8][x], regNames[4][y])
			a.load(1, x, x86.In(y))
			is("movzx %s,%s", regNames[4][x], regNames[1][y])
			a.load(2, x, x86.In(y))
			is("movzx %s,%s", regNames[4][x], regNames[2][y])
			a.emit(8, x86.OpShrdImm, x, x86.In(y))
			a.imm(1, 33)
			is("shrd %s,%s,0x21", regNames[8][y], regNames[8][x])
			a.emit(8, x86.OpTest, x, x86.In(y))
			is("test %s,%s", regNames[8][y], regNames[8][x])
		}
	}
	for _, x := range all {
		for op, name := range mnemonic {
			for _, n := range []int{1, 4, 8} {
				for _, v := range imms {
					if n == 1 && v != int32(int8(v)) {
						continue
					}
					a.aluImm(n, op, x86.In(x), v)
					if v == 128 && (op == x86.Add || op == x86.Sub) {
						is("%s %s,%s", map[x86.ALU]string{x86.Add: "sub", x86.Sub: "add"}[op], regNames[n][x], immName(n, -128))
					} else {
						is("%s %s,%s", name, regNames[n][x], immName(n, v))
					}
				}
			}
		}
		for _, n := range []int{4, 8} {
			nx := regNames[n][x]
			for op, name := range map[x86.Unary]string{x86.Not: "not", x86.Neg: "neg", x86.Mul: "mul", x86.Div: "div", x86.IDiv: "idiv"} {
				a.unary(n, op, x)
				is("%s %s", name, nx)
			}
			for op, name := range map[x86.Shift]string{x86.Ror: "ror", x86.Shl: "shl", x86.Shr: "shr", x86.Sar: "sar"} {
				a.shiftImm(n, op, x, 1)
				is("%s %s,1", name, nx)
				a.shiftImm(n, op, x, 31)
				is("%s %s,0x1f", name, nx)
				a.shiftCL(n, op, x)
				is("%s %s,cl", name, nx)
			}
			a.bswap(n, x)
			is("bswap %s", nx)
			a.flags.reg = x86.NoReg
			a.test(n, x)
			is("test %s,%s", nx, nx)
			a.testImm(n, x, -2)
			is("test %s,%s", nx, immName(n, -2))
		}
		a.testImm(8, x, 0x7f)
		is("test %s,0x7f", regNames[1][x])
		a.testImm(8, x, 0x80)
		is("test %s,0x80", regNames[4][x])
		a.shiftImm(2, x86.Ror, x, 8)
		is("ror %s,0x8", regNames[2][x])
		a.push(x)
		is("push %s", regNames[8][x])
		a.pop(x)
		is("pop %s", regNames[8][x])
		for _, v := range []uint64{0, 1, 0x7fffffff, 0x80000000, 0xffffffff, 1 << 32, 1<<64 - 1, 1<<64 - 1<<31, 0x123456789abcdef0} {
			a.movImm(x, v)
			switch {
			case v == 0:
				is("xor %s,%s", regNames[4][x], regNames[4][x])
			case v <= 0xffffffff:
				is("mov %s,%#x", regNames[4][x], v)
			case v >= 1<<64-1<<31:
				is("mov %s,%#x", regNames[8][x], v)
			default:
				is("movabs %s,%#x", regNames[8][x], v)
			}
		}
	}
	for _, m := range operands {
		for _, x := range general {
			for _, n := range []int{1, 2, 4, 8} {
				nx, nm := regNames[n][x], nameOf(n, m)
				a.store(n, m, x)
				is("mov %s,%s", nm, nx)
				a.load(n, x, m)
				if n < 4 {
					is("movzx %s,%s", regNames[4][x], nm)
				} else {
					is("mov %s,%s", nx, nm)
				}
				if n < 4 {
					a.extend(8, n, x, m)
					is("movsx %s,%s", regNames[8][x], nm)
				}
			}
			a.extend(8, 4, x, m)
			is("movsxd %s,%s", regNames[8][x], nameOf(4, m))
			for _, n := range []int{4, 8} {
				nx, nm := regNames[n][x], nameOf(n, m)
				a.lea(n, x, m)
				is("lea %s,%s", nx, strings.TrimPrefix(nm, sizeNames[n]))
				a.lock()
				a.exchange(n, x86.OpXadd, m, x)
				is("lock xadd %s,%s", nm, nx)
				a.lock()
				a.exchange(n, x86.OpCmpxchg, m, x)
				is("lock cmpxchg %s,%s", nm, nx)
				a.exchange(n, x86.OpXchg, m, x)
				is("xchg %s,%s", nm, nx)
				a.lock()
				a.emit(n, x86.Add.ToRM(), x, m)
				is("lock add %s,%s", nm, nx)
			}
		}
		for _, n := range []int{1, 4, 8} {
			a.storeImm(n, m, -3)
			is("mov %s,%s", nameOf(n, m), immName(n, -3))
			a.aluImm(n, x86.Add, m, 3)
			is("add %s,0x3", nameOf(n, m))
		}
		a.storeImm(2, m, 0x1234)
		is("mov %s,0x1234", nameOf(2, m))
	}
	a.signExtendA(4)
	is("cdq")
	a.signExtendA(8)
	is("cqo")
	a.rdtsc()
	is("rdtsc")
	a.ret()
	is("ret")

	got := disassemble(t, a.code)
	if len(got) != len(want) {
		t.Errorf("%d instructions, %d were encoded", len(got), len(want))
	}
	// xchg names its operands in either order; movabs is mov to some versions.
	same := strings.NewReplacer("movabs", "mov", "*1+", "+", "*1]", "]", "+riz", "")
	for i := range min(len(got), len(want)) {
		if same.Replace(got[i]) != same.Replace(want[i]) {
			t.Fatalf("instruction %d (% x): objdump says %q, want %q", i, a.code[slices.Concat([]int{0}, ends)[i]:ends[i]], got[i], want[i])
		}
	}
	for i, begin := 0, 0; i < len(ends); i++ {
		in, err := amd64.Decode(a.code[begin:], 64)
		if err != nil || int(in.Len) != ends[i]-begin {
			t.Errorf("%s: our decoder finds %d bytes, want %d (%v)", want[i], in.Len, ends[i]-begin, err)
		}
		begin = ends[i]
	}
}

// Jumps take the form that reaches, and no longer one.
func TestJumps(t *testing.T) {
	pad := func(a *asm, n int) {
		for range n {
			a.ret()
		}
	}
	for _, gap := range []int{0, 1, 126, 127, 128, 300} {
		for _, c := range []x86.Cond{x86.CondE, x86.CondNE, x86.CondB, x86.CondAE, x86.CondBE, x86.CondA, x86.CondS, x86.CondNS, x86.CondL, x86.CondGE, x86.CondLE, x86.CondG, always, calling} {
			var a asm
			back, forth := a.newLabel(), a.newLabel()
			a.bind(back)
			pad(&a, gap)
			a.jump(c, forth)
			pad(&a, gap)
			a.bind(forth)
			a.jump(c, back)
			code, _, _ := a.finish()
			want := 2*gap + sizeOver(c, gap, 127) + sizeOver(c, 2*gap+sizeOver(c, gap, 127)+2, 128)
			if len(code) != want {
				t.Errorf("condition %d over %d bytes: %d bytes of code, want %d", c, gap, len(code), want)
			}
			lines := disassemble(t, code)
			first, last := lines[gap], lines[len(lines)-1]
			if !strings.HasSuffix(first, fmt.Sprintf(" 0x%x", want-sizeOver(c, 2*gap+sizeOver(c, gap, 127)+2, 128))) {
				t.Errorf("condition %d over %d bytes: %q does not go to its end", c, gap, first)
			}
			if !strings.HasSuffix(last, " 0x0") {
				t.Errorf("condition %d over %d bytes: %q does not go to the begin", c, gap, last)
			}
		}
	}
}

// sizeOver is the size of a jump over a distance with that reach.
func sizeOver(c x86.Cond, distance, reach int) int {
	switch {
	case c == calling:
		return 5
	case distance <= reach:
		return 2
	case c == always:
		return 5
	}
	return 6
}
