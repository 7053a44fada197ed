package args

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/cabi"
	"kprobe/internal/machine"
	"kprobe/internal/testprog"
)

// compilers have what a machine's compiler makes of calls written down: a function stores the registers of
// arguments, the stack pointer, and the stack.
var compilers = []struct {
	machine *arch.Arch
	gcc     []string
	run     []string
	callee  string // in assembly: fills regs, and goes on to report
	floats  int    // the first vector register for arguments
}{
	{arch.AMD64, []string{"gcc"}, nil, x86Callee(), 0},
	{arch.I386, []string{"gcc", "-m32", "-no-pie"}, nil, "mov %esp, regs+128\n jmp report", 0},
	{arch.ARM64, []string{"aarch64-linux-gnu-gcc", "-static"}, []string{"qemu-aarch64"},
		"adrp x16, regs\n add x16, x16, :lo12:regs\n" + eight(" str x%d, [x16, #%d]\n", 0, 0) + eight(" str d%d, [x16, #%d]\n", 0, 64) + " mov x17, sp\n str x17, [x16, #128]\n b report", 0},
	{arch.RISCV64, []string{"riscv64-linux-gnu-gcc", "-static"}, []string{"qemu-riscv64"},
		"la t0, regs\n" + eight(" sd a%d, %d(t0)\n", 0, 0) + eight(" fsd fa%d, %d(t0)\n", 0, 64) + " sd sp, 128(t0)\n tail report", 10},
	{arch.S390X, []string{"s390x-linux-gnu-gcc", "-static"}, []string{"qemu-s390x"},
		"larl %r1, regs\n stmg %r2, %r6, 0(%r1)\n" + eight(" std %%f%d, %d(%%r1)\n", 0, 64) + " stg %r15, 128(%r1)\n jg report", 0},
}

func eight(format string, first, off int) string {
	var b strings.Builder
	for i := range 8 {
		fmt.Fprintf(&b, format, first+i, off+8*i)
	}
	return b.String()
}

func x86Callee() string {
	var b strings.Builder
	for i, r := range []string{"rdi", "rsi", "rdx", "rcx", "r8", "r9"} {
		fmt.Fprintf(&b, "mov %%%s, regs+%d(%%rip)\n", r, 8*i)
	}
	return b.String() + eight("movsd %%xmm%d, regs+%d(%%rip)\n", 0, 64) + "mov %rsp, regs+128(%rip)\n jmp report"
}

// stackShown is how much of the stack a call shows.
const stackShown = 4096

// shown is a thread at a function's entry, as the function wrote it down.
type shown struct {
	a         *arch.Arch
	firstFlt  int
	Ints, Flt [8]uint64
	StackAt   uint64
	Stack     [stackShown]byte
}

func (s *shown) Get(r arch.Reg) uint64 {
	for i, arg := range s.a.Args {
		if arg == r {
			return s.Ints[i]
		}
	}
	return 0
}

func (s *shown) SP() arch.Addr { return arch.Addr(s.StackAt) }

func (s *shown) Vector(n int) (v [16]byte, _ error) {
	if n < s.firstFlt || n >= s.firstFlt+8 {
		return v, fmt.Errorf("vector register %d has no arguments", n)
	}
	s.a.Order.PutUint64(v[:], s.Flt[n-s.firstFlt])
	return v, nil
}

func (s *shown) ReadMem(addr arch.Addr, p []byte) error {
	off := uint64(addr) - s.StackAt
	if off+uint64(len(p)) > stackShown {
		return fmt.Errorf("%v is not shown", addr)
	}
	copy(p, s.Stack[off:])
	return nil
}

// cScalars are Go's types and those of C that they stand for.
var cScalars = []struct {
	typ reflect.Type
	c   string
}{
	{reflect.TypeFor[bool](), "_Bool"}, {reflect.TypeFor[int8](), "signed char"}, {reflect.TypeFor[uint16](), "unsigned short"},
	{reflect.TypeFor[int32](), "int"}, {reflect.TypeFor[int64](), "long long"}, {reflect.TypeFor[uint64](), "unsigned long long"},
	{reflect.TypeFor[int](), "long"}, {reflect.TypeFor[float32](), "float"}, {reflect.TypeFor[float64](), "double"}, {reflect.TypeFor[float64](), "double"},
}

// randomType gives a type in Go and in C, and how to declare NAME of it in C.
func randomType(r *rand.Rand, depth int) (reflect.Type, string) {
	if depth == 0 || r.IntN(3) > 0 {
		s := cScalars[r.IntN(len(cScalars))]
		return s.typ, s.c + " NAME"
	}
	var fs []reflect.StructField
	var c strings.Builder
	alike := r.IntN(2) == 0 // structs of one kind of number have rules of their own
	one, declared := randomType(r, depth-1)
	for i := range 1 + r.IntN(4) {
		if !alike && i > 0 {
			one, declared = randomType(r, depth-1)
		}
		typ, name := one, fmt.Sprintf("F%d", i)
		if n := 1 + r.IntN(3); r.IntN(6) == 0 {
			typ, name = reflect.ArrayOf(n, typ), fmt.Sprintf("%s[%d]", name, n)
		}
		fs = append(fs, reflect.StructField{Name: fmt.Sprintf("F%d", i), Type: typ})
		c.WriteString(strings.Replace(declared, "NAME", name, 1) + "; ")
	}
	return reflect.StructOf(fs), "struct { " + c.String() + "} NAME"
}

// randomValue fills memory with a value as C has it.
func randomValue(r *rand.Rand, a *arch.Arch, v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			randomValue(r, a, v.Field(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			randomValue(r, a, v.Index(i))
		}
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Float32, reflect.Float64:
		v.SetFloat(float64(float32(math.Ldexp(r.Float64()-0.5, r.IntN(40)-20))))
	default:
		bits := min(v.Type().Bits(), 8*cabi.SizeOf(a, v.Type()))
		if v.CanInt() {
			v.SetInt(int64(r.Uint64()) >> (64 - bits))
		} else {
			v.SetUint(r.Uint64() >> (64 - bits))
		}
	}
}

// literal is a value in C.
func literal(v reflect.Value) string {
	switch v.Kind() {
	case reflect.Struct:
		var parts []string
		for i := range v.NumField() {
			parts = append(parts, literal(v.Field(i)))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case reflect.Array:
		var parts []string
		for i := range v.Len() {
			parts = append(parts, literal(v.Index(i)))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case reflect.Bool:
		return map[bool]string{true: "1", false: "0"}[v.Bool()]
	case reflect.Float32, reflect.Float64:
		return fmt.Sprintf("%x", v.Float())
	}
	if v.CanInt() {
		return fmt.Sprintf("(long long)%#xULL", uint64(v.Int()))
	}
	return fmt.Sprintf("%#xULL", v.Uint())
}

// Arguments of any C function are found where the machine's compiler puts them.
func TestCompilersPutThemThere(t *testing.T) {
	for _, m := range compilers {
		if m.run == nil && runtime.GOARCH != "amd64" {
			continue // these run here
		}
		t.Run(m.machine.Name, func(t *testing.T) {
			t.Parallel()
			tool, err := exec.LookPath(m.gcc[0])
			testprog.Need(t, m.gcc[0], err == nil)
			r := rand.New(rand.NewPCG(7, uint64(m.machine.PtrSize)))
			const calls = 400
			want := make([][]reflect.Value, calls)
			var src strings.Builder
			fmt.Fprintf(&src, "#include <unistd.h>\n#define U __attribute__((used))\nU struct { unsigned long long ints[8], floats[8], sp; } regs;\n"+
				"U void report(void) { if (write(1, &regs, sizeof regs) != sizeof regs || write(1, (char *)(unsigned long)regs.sp, %d) != %d) _exit(9); }\n"+
				"void callee(void);\nasm(\".text\\n.globl callee\\ncallee:\\n%s\");\n", stackShown, stackShown, strings.ReplaceAll(m.callee, "\n", "\\n"))
			var calling strings.Builder
			for k := range calls {
				var names, types []string
				for i := range 1 + r.IntN(14) {
					typ, c := randomType(r, 2)
					v := reflect.New(typ).Elem()
					randomValue(r, m.machine, v)
					want[k] = append(want[k], v)
					name := fmt.Sprintf("t%d_%d", k, i)
					fmt.Fprintf(&src, "typedef %s;\n_Static_assert(sizeof(%s) == %d, \"%s\");\n", strings.Replace(c, "NAME", name, 1), name, cabi.SizeOf(m.machine, typ), typ)
					fmt.Fprintf(&src, "static %s v%s = %s;\n", name, name, literal(v))
					names, types = append(names, "v"+name), append(types, name)
				}
				fmt.Fprintf(&calling, "\t((void (*)(%s))callee)(%s);\n", strings.Join(types, ", "), strings.Join(names, ", "))
			}
			fmt.Fprintf(&src, "int main(void)\n{\n\tvolatile char room[%d];\n\troom[0] = 0;\n%s\treturn room[0];\n}\n", 2*stackShown, &calling)
			dir := t.TempDir()
			exe := filepath.Join(dir, "calls")
			if err := os.WriteFile(exe+".c", []byte(src.String()), 0o600); err != nil {
				t.Fatal(err)
			}
			if msg, err := exec.Command(tool, append(m.gcc[1:], "-w", "-O0", "-o", exe, exe+".c")...).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%.2000s", err, msg)
			}
			run := append(slices.Clone(m.run), exe)
			if m.machine == arch.I386 && !testprog.Programs32.On(t) {
				run = []string{"qemu-i386", exe}
			}
			out, err := exec.Command(run[0], run[1:]...).Output()
			if err != nil {
				t.Fatal(err)
			}
			for in := bytes.NewReader(out); len(want) > 0; want = want[1:] {
				s := &shown{a: m.machine, firstFlt: m.floats}
				for _, part := range []any{&s.Ints, &s.Flt, &s.StackAt, &s.Stack} {
					if err := binary.Read(in, m.machine.Order, part); err != nil {
						t.Fatal(err)
					}
				}
				checkCall(t, s, want[0])
				if len(want) == 1 && in.Len() != 0 {
					t.Errorf("%d bytes behind the last call", in.Len())
				}
			}
		})
	}
}

func checkCall(t *testing.T, s *shown, want []reflect.Value) {
	t.Helper()
	var types []reflect.Type
	for _, v := range want {
		types = append(types, v.Type())
	}
	never := Pointers{Is: func(reflect.Type) bool { return false }}
	on, err := machine.Of(s.a)
	if err != nil {
		t.Fatal(err)
	}
	places, err := C.Places(on, types, never.Is)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range want {
		got := reflect.New(v.Type()).Elem()
		if err := C.Fetch(on, s, got, places[i], never); err != nil || !reflect.DeepEqual(got.Interface(), v.Interface()) {
			t.Errorf("argument %d of %v: %v, %v; want %v; taken from %+v", i+1, types, got, err, v, places[i].Pieces)
		}
	}
}
