package bpf_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/bpftest"
	"kprobe/bpf/verify"
)

// prove verifies a program of the cases.
func prove(t testing.TB, text string) *bpf.Proof {
	t.Helper()
	insns, err := bpftest.Assemble(text, bpftest.ByHand...)
	if err != nil {
		t.Fatal(err)
	}
	proof, err := verify.Program(&bpf.Program{Name: "test", Insns: insns, Maps: bpftest.ByHand})
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// Every operation with the operands where its ways part. The numbers are RFC
// 9669's, worked out by hand: r0 op r2, then w0 op w2.
func TestArithmetic(t *testing.T) {
	const (
		min64 = 1 << 63
		max64 = 1<<63 - 1
		min32 = 1 << 31
		max32 = 1<<31 - 1
		all   = 1<<64 - 1
		all32 = 1<<32 - 1
	)
	for _, tt := range []struct {
		a      uint64
		op     string
		b      uint64
		r0, w0 uint64
	}{
		{all, "+=", 1, 0, 0},
		{max32, "+=", 1, min32, min32},
		{all32, "+=", 1, 1 << 32, 0},
		{0, "-=", 1, all, all32},
		{1 << 32, "-=", 1, all32, all32},
		{all, "*=", all, 1, 1},
		{1 << 32, "*=", 3, 3 << 32, 0},
		{0x123456789, "*=", 0x10001, 0x123456789 * 0x10001, (0x23456789 * 0x10001) & all32},
		{7, "/=", 2, 3, 3},
		{7, "/=", 0, 0, 0},
		{all, "/=", 2, max64, max32},
		{1<<32 + 6, "/=", 1 << 32, 1, 0}, // w: 6 / 0
		{7, "%=", 4, 3, 3},
		{1<<32 + 7, "%=", 0, 1<<32 + 7, 7},
		{all, "%=", 16, 15, 15},
		{all - 6, "s/=", 2, all - 2, all32 - 2}, // -7 / 2
		{min64, "s/=", all, min64, 0},           // w: 0 / -1
		{min32, "s/=", all, all - min32 + 1, min32},
		{5, "s/=", 0, 0, 0},
		{all - 6, "s%=", 2, all, all32}, // -7 % 2 = -1
		{7, "s%=", all - 1, 1, 1},       // 7 % -2 = 1
		{min64, "s%=", all, 0, 0},
		{min32, "s%=", all, 0, 0},
		{all - 6, "s%=", 0, all - 6, all32 - 6},
		{0xf0f0f0f0f0f0f0f0, "|=", 0x0f, 0xf0f0f0f0f0f0f0ff, 0xf0f0f0ff},
		{0xf0f0f0f0f0f0f0f0, "&=", all32, 0xf0f0f0f0, 0xf0f0f0f0},
		{0xf0f0f0f0f0f0f0f0, "^=", all, 0x0f0f0f0f0f0f0f0f, 0x0f0f0f0f},
		{1, "<<=", 63, min64, min32},
		{1, "<<=", 64, 1, 1},
		{1, "<<=", 33, 1 << 33, 2},
		{1, "<<=", all, min64, min32},
		{min64, ">>=", 63, 1, 0},
		{min64 + min32, ">>=", 31, 1<<32 + 1, 1},
		{all, ">>=", 32, all32, all32},
		{min64, "s>>=", 63, all, 0},
		{min32, "s>>=", 31, 1, all32},
		{min32, "s>>=", 32, 0, min32},
		{min64, "s>>=", 64, min64, 0},
		{5, "=", all, all, all32},
	} {
		for _, c := range []struct {
			reg  string
			want uint64
		}{{"r", tt.r0}, {"w", tt.w0}} {
			text := fmt.Sprintf("r0 = %#x ll; r2 = %#x ll; %s0 %s %s2; exit", tt.a, tt.b, c.reg, tt.op, c.reg)
			forms := []string{text}
			// As an immediate too, where it is one that the instruction may have.
			if v := int64(tt.b); v == int64(int32(v)) && !(v == 0 && strings.ContainsAny(tt.op, "/%")) &&
				!(strings.ContainsAny(tt.op, "<>") && (v < 0 || v > 63 || c.reg == "w" && v > 31)) {
				forms = append(forms, fmt.Sprintf("r0 = %#x ll; %s0 %s %d; exit", tt.a, c.reg, tt.op, v))
			}
			for _, text := range forms {
				res, err := bpftest.Machine(t, prove(t, text)).Run(nil)
				if err != nil || res.R0 != c.want {
					t.Errorf("%s: %#x %v, want %#x", text, res.R0, err, c.want)
				}
			}
		}
	}
	const n = 0x1122334455667788
	for text, want := range map[string]uint64{
		"r0 = -r0":           0xeeddccbbaa998878,
		"w0 = -w0":           0xaa998878,
		"r0 = le16 r0":       0x7788,
		"r0 = le32 r0":       0x55667788,
		"r0 = le64 r0":       n,
		"r0 = be16 r0":       0x8877,
		"r0 = be32 r0":       0x88776655,
		"r0 = be64 r0":       0x8877665544332211,
		"r0 = bswap16 r0":    0x8877,
		"r0 = bswap32 r0":    0x88776655,
		"r0 = bswap64 r0":    0x8877665544332211,
		"r0 = (s8)r0":        0xffffffffffffff88,
		"r0 = (s16)r0":       0x7788,
		"r0 = (s32)r0":       0x55667788,
		"w0 = (s8)w0":        0xffffff88,
		"w0 = (s16)w0":       0x7788,
		"w0 = w0":            0x55667788,
		"w0 = -1":            all32,
		"r0 = -1":            all,
		"r0 = 0xffffffff ll": all32,
		"r0 = -2 ll":         all - 1,
		"r0 += -2147483648":  0x11223343d5667788,
		"r0 &= -16":          0x1122334455667780,
		"w0 &= -16":          0x55667780,
		"*(u64 *)(r10 -8) = -2; r0 = *(u64 *)(r10 -8)":                                                                       all - 1,
		"*(u64 *)(r10 -8) = -2; r0 = *(u32 *)(r10 -8)":                                                                       all32 - 1,
		"*(u64 *)(r10 -8) = r0; r0 = *(u16 *)(r10 -6)":                                                                       0x5566,
		"*(u64 *)(r10 -8) = r0; r0 = *(u8 *)(r10 -8)":                                                                        0x88,
		"*(u64 *)(r10 -8) = r0; r0 = *(s8 *)(r10 -8)":                                                                        0xffffffffffffff88,
		"*(u64 *)(r10 -8) = r0; r0 = *(s16 *)(r10 -8)":                                                                       0x7788,
		"*(u64 *)(r10 -8) = -3; r0 = *(s32 *)(r10 -4)":                                                                       all,
		"*(u64 *)(r10 -8) = r0; *(u8 *)(r10 -8) = 1; r0 = *(u64 *)(r10 -8)":                                                  n&^0xff | 1,
		"*(u64 *)(r10 -8) = 5; r2 = 3; lock add *(u64 *)(r10 -8), r2; r0 = *(u64 *)(r10 -8)":                                 8,
		"*(u64 *)(r10 -8) = 5; r0 = 3; lock fetch_add *(u64 *)(r10 -8), r0":                                                  5,
		"*(u64 *)(r10 -8) = -1; r2 = 1; lock add *(u32 *)(r10 -8), r2; r0 = *(u64 *)(r10 -8)":                                all &^ all32,
		"*(u64 *)(r10 -8) = -1; r0 = 1; lock fetch_add *(u32 *)(r10 -8), r0":                                                 all32,
		"*(u64 *)(r10 -8) = 6; r2 = 3; lock xor *(u64 *)(r10 -8), r2; r0 = *(u64 *)(r10 -8)":                                 5,
		"*(u64 *)(r10 -8) = 6; r2 = 3; lock or *(u64 *)(r10 -8), r2; r0 = *(u64 *)(r10 -8)":                                  7,
		"*(u64 *)(r10 -8) = 6; r2 = 3; lock fetch_and *(u64 *)(r10 -8), r2; r0 = *(u64 *)(r10 -8); r0 *= 10; r0 += r2":       26,
		"*(u64 *)(r10 -8) = 6; r0 = 3; lock xchg *(u32 *)(r10 -8), r0":                                                       6,
		"*(u64 *)(r10 -8) = 6; r0 = 6; r2 = 9; lock cmpxchg *(u64 *)(r10 -8), r2; r2 = *(u64 *)(r10 -8); r0 *= 10; r0 += r2": 69,
		"*(u64 *)(r10 -8) = 6; r0 = 7; r2 = 9; lock cmpxchg *(u64 *)(r10 -8), r2; r2 = *(u64 *)(r10 -8); r0 *= 10; r0 += r2": 66,
		"*(u64 *)(r10 -8) = -2; r0 = -2; r2 = 9; lock cmpxchg *(u32 *)(r10 -8), r2":                                          all32 - 1,
	} {
		res, err := bpftest.Machine(t, prove(t, fmt.Sprintf("r0 = %#x ll; %s; exit", uint64(n), text))).Run(nil)
		if err != nil || res.R0 != want {
			t.Errorf("%s: %#x %v, want %#x", text, res.R0, err, want)
		}
	}
}

// Every jump, in 64 and 32 bits, by a register and an immediate.
func TestJumps(t *testing.T) {
	const minus = 1<<64 - 1
	for _, tt := range []struct {
		a    uint64
		b    int32
		want string // the conditions that hold, in 64 bits; then in 32
		half string
	}{
		{5, 5, "== >= s>= <= s<= &", "== >= s>= <= s<= &"},
		{6, 5, "> >= s> s>= != &", "> >= s> s>= != &"},
		{4, 3, "> >= s> s>= !=", "> >= s> s>= !="},
		{minus, 5, "> >= s< s<= != &", "> >= s< s<= != &"},
		{minus, -1, "== >= s>= <= s<= &", "== >= s>= <= s<= &"},
		{3, -1, "< <= s> s>= != &", "< <= s> s>= != &"},
		{1<<32 + 5, 5, "> >= s> s>= != &", "== >= s>= <= s<= &"},
		{1<<32 - 1, -1, "< <= s> s>= != &", "== >= s>= <= s<= &"},
		{1 << 31, 1, "> >= s> s>= !=", "> >= s< s<= !="},
	} {
		for _, op := range strings.Fields("== > >= s> s>= != < <= s< s<= &") {
			for _, c := range []struct{ reg, hold string }{{"r", tt.want}, {"w", tt.half}} {
				want := uint64(0)
				if strings.Contains(" "+c.hold+" ", " "+op+" ") {
					want = 1
				}
				// By way of the context, so that the verifier knows nothing.
				ctx := make([]byte, 168)
				binary.LittleEndian.PutUint64(ctx, tt.a)
				binary.LittleEndian.PutUint64(ctx[8:], uint64(int64(tt.b)))
				for _, b := range []string{fmt.Sprint(tt.b), c.reg + "3"} {
					text := fmt.Sprintf("r2 = *(u64 *)(r1 +0); r3 = *(u64 *)(r1 +8); r0 = 1; if %s2 %s %s goto yes; r0 = 0; yes: exit", c.reg, op, b)
					res, err := bpftest.Machine(t, prove(t, text)).Run(ctx)
					if err != nil || res.R0 != want {
						t.Errorf("%#x, %d: %s: %d %v, want %d", tt.a, tt.b, text, res.R0, err, want)
					}
				}
			}
		}
	}
}

// Answers of helpers at their limits.
func TestHelpers(t *testing.T) {
	key := "*(u32 *)(r10 -4) = %d; r2 = r10; r2 += -4; r1 = map counts;"
	read := "r1 = r10; r1 += -16; *(u64 *)(r10 -16) = -1; *(u64 *)(r10 -8) = -1; r2 = %d; r3 = %#x ll; call %s;"
	for _, tt := range []struct {
		text string
		want int64
	}{
		{fmt.Sprintf(key, 9) + "call map_lookup_elem; if r0 != 0 goto a; exit; a: r0 = 1; exit", 1},
		{fmt.Sprintf(key, 10) + "call map_lookup_elem; if r0 != 0 goto a; exit; a: r0 = 1; exit", 0},
		{fmt.Sprintf(key, 10) + "*(u64 *)(r10 -72) = 0;" + zeros + "r3 = r10; r3 += -72; r4 = 0; call map_update_elem; exit", -bpf.E2BIG},
		{fmt.Sprintf(key, 1) + zeros + "r3 = r10; r3 += -72; r4 = 1; call map_update_elem; exit", -bpf.EEXIST},
		{fmt.Sprintf(key, 1) + zeros + "r3 = r10; r3 += -72; r4 = 7; call map_update_elem; exit", -bpf.EINVAL},
		{fmt.Sprintf(key, 1) + "call map_delete_elem; exit", -bpf.EINVAL},

		{fmt.Sprintf(read, 8, bpftest.PageAddr+bpftest.PageText, "probe_read_user") + "if r0 != 0 goto a; r0 = *(u64 *)(r10 -16); a: exit", 0x7865742065_6d6f73},
		{fmt.Sprintf(read, 8, bpftest.PageAddr+4090, "probe_read_user") + "exit", -bpf.EFAULT},
		{fmt.Sprintf(read, 8, bpftest.PageAddr+4090, "probe_read_user") + "r0 = *(u64 *)(r10 -16); exit", 0},
		{fmt.Sprintf(read, 8, bpftest.PageAddr+4090, "probe_read_kernel") + "r0 = *(u64 *)(r10 -8); exit", -1},
		{fmt.Sprintf(read, 0, 0, "probe_read") + "exit", 0},
		{fmt.Sprintf(read, 16, bpftest.PageAddr+bpftest.PageText, "probe_read_user_str") + "exit", 10},
		{fmt.Sprintf(read, 16, bpftest.PageAddr+bpftest.PageText+9, "probe_read_user_str") + "exit", 1},
		{fmt.Sprintf(read, 4, bpftest.PageAddr+bpftest.PageText, "probe_read_user_str") + "exit", 4},
		{fmt.Sprintf(read, 4, bpftest.PageAddr+bpftest.PageText, "probe_read_user_str") + "r0 = *(u32 *)(r10 -16); exit", 'm'<<16 | 'o'<<8 | 's'},
		{fmt.Sprintf(read, 16, bpftest.PageAddr+4090, "probe_read_user_str") + "exit", -bpf.EFAULT},
		{fmt.Sprintf(read, 6, bpftest.PageAddr+4090, "probe_read_kernel_str") + "exit", 6},
		{fmt.Sprintf(read, 16, 0, "probe_read_str") + "r0 = *(u64 *)(r10 -8); exit", 0},
		{fmt.Sprintf(read, 0, 0, "probe_read_str") + "exit", 0},
		{"r6 = r1; r1 = r10; r1 += -8; *(u64 *)(r10 -8) = 0; r2 = 8; r3 = r6; call probe_read; r0 = *(u64 *)(r10 -8); exit", 0x0807060504030201},

		{"r1 = r10; r1 += -16; r2 = 16; call get_current_comm; r0 = *(u64 *)(r10 -8); exit", 0x72657672},
		{"call get_current_pid_tgid; exit", 1000<<32 | 1001},
		{"call get_current_uid_gid; exit", 5<<32 | 6},
		{"call get_smp_processor_id; exit", 3},
		{"call get_func_ip; exit", 0x401000},
		{"call get_attach_cookie; exit", 77},
		{"r1 = value config; r2 = 8; call trace_printk; exit", 8},

		{"r2 = map perf; *(u64 *)(r10 -8) = 1; r3 = -1 ll; w3 = w3; r4 = r10; r4 += -8; r5 = 8; call perf_event_output; exit", 0},
		{"r2 = map perf; *(u64 *)(r10 -8) = 1; r3 = -1; r4 = r10; r4 += -8; r5 = 8; call perf_event_output; exit", -bpf.EINVAL},
		{"*(u64 *)(r10 -8) = 1; r1 = map events; r2 = r10; r2 += -8; r3 = 8; r4 = 0; call ringbuf_output; exit", 0},
		{"r1 = map events; r2 = 4089; r3 = 0; call ringbuf_reserve; if r0 == 0 goto a; r1 = r0; r2 = 0; call ringbuf_discard; r0 = 1; a: exit", 0},
		{"r2 = map stacks; r3 = 0x10000; call get_stackid; exit", -bpf.EINVAL},
		{"r2 = map stacks; r3 = 255; call get_stackid; exit", -bpf.EFAULT},
	} {
		ctx := make([]byte, 168)
		for i := range ctx {
			ctx[i] = byte(i + 1)
		}
		res, err := bpftest.Machine(t, prove(t, tt.text)).Run(ctx)
		if err != nil || int64(res.R0) != tt.want {
			t.Errorf("%s: %d (%#x) %v, want %d", tt.text, int64(res.R0), res.R0, err, tt.want)
		}
	}
}

// zeros is 64 bytes of value at r10-72.
var zeros = func() (s string) {
	for off := -72; off < -8; off += 8 {
		s += fmt.Sprintf("*(u64 *)(r10 %d) = 0;", off)
	}
	return s
}()

// A proof of another program is no reason to touch memory that is not the program's.
func TestFaults(t *testing.T) {
	for _, text := range []string{
		"r1 = 0x41414141 ll; r0 = *(u64 *)(r1 +0); exit",
		"*(u64 *)(r10 +0) = 1; r0 = 0; exit",
		"*(u64 *)(r10 -520) = 1; r0 = 0; exit",
		"r1 = map counts; *(u64 *)(r1 +0) = 1; r0 = 0; exit",
		"r1 = value data; *(u64 *)(r1 +16) = 1; r0 = 0; exit",
		"r0 = *(u64 *)(r1 +168); exit",
		"r1 = 1; lock add *(u64 *)(r1 +0), r1; exit",
		"a: goto a",
		"call ktime_get_ns; exit",
	} {
		proof := prove(t, "r0 = 0; exit")
		p := *proof.Program
		p.Insns = bpftest.MustAssemble(text, bpftest.ByHand...)
		proof.Program = &p
		proof.Calls = make([]*bpf.HelperCall, len(p.Insns))
		vm := bpftest.Machine(t, proof)
		vm.MaxSteps = 1000
		var fault *bpf.Fault
		if _, err := vm.Run(make([]byte, 168)); !errors.As(err, &fault) {
			t.Errorf("%s: %v, want a fault", text, err)
		}
	}
}

// A printed instruction is read back as the same instruction.
func TestDisassemblyReadsBack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		p := bpftest.Random(r, bpftest.Options{Maps: bpftest.Maps(), Helpers: plainHelpers})
		for pc := 0; pc < len(p.Insns); pc++ {
			i := p.Insns[pc]
			if i.Wide() {
				pc++
				continue // by the names of maps
			}
			text := i.String()
			// A call is by a distance, as a jump.
			again, err := bpftest.Assemble(text)
			if i.IsCall(bpf.CallLocal) {
				continue
			}
			if err != nil || len(again) != 1 || again[0] != i {
				t.Fatalf("%+v prints %q, which is %+v %v", i, text, again, err)
			}
		}
	}
}

var noise = regexp.MustCompile(`<\w+>$|\s+|\+0x0|#.*`)

// And the print equals that of llvm-objdump.
func TestDisassemblyAgainstObjdump(t *testing.T) {
	file := filepath.Join(t.TempDir(), "prog.o")
	if err := os.WriteFile(file, clang(t, "testdata/top.bpf.c", "v3"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("llvm-objdump", "-d", file).Output()
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`^\s+\d+:\t((?:[0-9a-f]{2} )+[0-9a-f]{2})\t(.*)$`)
	n := 0
	for line := range strings.Lines(string(out)) {
		m := row.FindStringSubmatch(strings.TrimRight(line, "\n"))
		if m == nil {
			continue
		}
		var raw []byte
		for _, b := range strings.Fields(m[1]) {
			var v byte
			fmt.Sscanf(b, "%02x", &v)
			raw = append(raw, v)
		}
		insns, err := bpf.Unmarshal(raw)
		if err != nil {
			t.Fatal(err)
		}
		got, want := insns[0].String(), strings.TrimSpace(noise.ReplaceAllString(m[2], " "))
		if insns[0].Wide() || strings.HasPrefix(want, "call") {
			continue // numbers there, names here
		}
		// One writes "+ 0", the other "+0".
		same := strings.NewReplacer("+ ", "+", "- ", "-")
		if n++; same.Replace(got) != same.Replace(want) {
			t.Errorf("%x: %q, objdump %q", raw, got, want)
		}
	}
	if n < 50 {
		t.Errorf("only %d instructions", n)
	}
}
