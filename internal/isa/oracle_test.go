package isa_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/isa/riscv64"
	"kprobe/internal/isa/s390x"
)

// pattern describes random instructions: bits that are given, where mask has ones, and others.
type pattern struct{ mask, value uint64 }

// oracle is LLVM's disassembler for one machine.
type oracle struct {
	isa    isa.ISA
	triple string
	cpu    []string
	random func(r *rand.Rand) []byte

	// flows tell from the text what an instruction does to the program counter, the first that
	// matches. An instruction that none matches goes on.
	flows []row
	// target finds the address that the text refers to, as a distance.
	target *regexp.Regexp
	place  bool // it is given as an address, where the first of all instructions is at 0

	nop *regexp.Regexp
}

type row struct {
	text string
	flow isa.Flow
}

// flow is the flow that a text tells.
func (o *oracle) flow(text string) isa.Flow {
	for _, f := range o.flows {
		if is(f.text, text) {
			return f.flow
		}
	}
	return isa.Next
}

var patterns = map[string]*regexp.Regexp{}

func is(pattern, text string) bool {
	if patterns[pattern] == nil {
		patterns[pattern] = regexp.MustCompile(pattern)
	}
	return patterns[pattern].MatchString(text)
}

var oracles = []oracle{
	{isa: arm64.ISA, triple: "aarch64", cpu: []string{"-mattr=+v8.7a,+sve2,+mte,+lse"},
		random: func(r *rand.Rand) []byte {
			// All there is, and more often what branches: groups 101x, and literals.
			list := []pattern{{0, 0}, {7 << 26, 5 << 26}, {0xfe000000, 0xd6000000}, {0xff00001c, 0xd4000000},
				{0x1f000000, 0x10000000}, {0x3b000000, 0x18000000}, {0x3f000000, 0x08000000}, {0xfffff000, 0xd5032000}, {0xffff0000, 0},
				{0xfffffc1f, 0xd65f0000}, {0xfffffc1f, 0xd63f0000}, {0xffffffff, 0xd69f03e0}, {0xfe000000, 0x54000000}}
			return arch.ARM64.Order.(interface {
				AppendUint32([]byte, uint32) []byte
			}).AppendUint32(nil, uint32(pick(r, list)))
		},
		flows: []row{{`^b\t`, isa.Jump}, {`^bl\t`, isa.Call}, {`^(b\.\w+|cbn?z|tbn?z)\t`, isa.CondJump},
			{`^bra`, isa.IndirectJump}, {`^br\t`, isa.IndirectJump}, {`^blr`, isa.IndirectCall}, {`^ret`, isa.Return}, {`^(eret|dcps|drps)`, isa.Privileged},
			{`^svc`, isa.Syscall}, {`^(hvc|smc|hlt)`, isa.Trap}, {`^brk`, isa.Break}, {`^udf`, isa.Undefined}},
		nop:    regexp.MustCompile(`^nop$`),
		target: regexp.MustCompile(`^(?:bl?\t|b\.\w+\t|cbn?z\t\w+, |tbn?z\t\w+, #\d+, |adrp?\t\w+, |ldr(?:sw)?\t\w+, |prfm\t#?\w+, )#(-?\d+)$`),
	},
	{isa: riscv64.ISA, triple: "riscv64", cpu: []string{"-mattr=+m,+a,+f,+d,+c,+v,+zba,+zbb,+zbs,+zfh,+zicbom", "-M=no-aliases"},
		random: func(r *rand.Rand) []byte {
			// All there is, and more often what branches.
			list := []pattern{{3, 3}, {3, 3}, {0x7f, 0x6f}, {0xfff, 0x6f}, {0x7f, 0x67}, {0x7fff, 0x67}, {0x7f, 0x63}, {0x7f, 0x17}, {0xfffff, 0x8067}, {0xf800607f, 0x1000202f},
				{0x000fffff, 0x73}, {0x7f, 0x73}, {0x7f, 0x13}, {0xf1ffffff, 0x73}, {0xffffffff, 0x00000013}, {0xffffffff, 0x00100073}, {0xffffffff, 0x30200073}, {0xffffffff, 0x00000073},
				{3, 0}, {3, 1}, {3, 2}, {0xe003, 0xa001}, {0xc003, 0xc001}, {0xe07f, 0x8002}, {0xffff, 0}, {0xffff, 0x8082}, {0xffff, 0x9002}, {0xffff, 1}}
			v := uint32(pick(r, list))
			b := arch.RISCV64.Order.(interface {
				AppendUint32([]byte, uint32) []byte
			}).AppendUint32(nil, v)
			if v&3 != 3 {
				return b[:2]
			}
			return b
		},
		flows: []row{{`^(c\.j\t|jal\tzero,)`, isa.Jump}, {`^jal\t`, isa.Call}, {`^(c\.b(eq|ne)z|b(eq|ne|lt|ge|ltu|geu))\t`, isa.CondJump},
			{`^(c\.jr\tra|jalr\tzero, 0x?0?\(ra\))$`, isa.Return}, {`^(c\.jr|jalr\tzero,)`, isa.IndirectJump}, {`^(c\.jalr|jalr)\t`, isa.IndirectCall},
			{`^ecall`, isa.Syscall}, {`^(c\.)?ebreak`, isa.Break}, {`^c\.unimp`, isa.Undefined},
			{`^([msu]ret|mnret|dret|wfi|sfence|hfence|sinval|hinval|hlv|hlvx|hsv)`, isa.Privileged}},
		nop:    regexp.MustCompile(`^(c\.nop|addi\tzero, zero, 0)$`),
		target: regexp.MustCompile(`^(?:c\.j\t|jal\t\w+, |c\.b(?:eq|ne)z\t\w+, |b(?:eq|ne|lt|ge|ltu|geu)\t\w+, \w+, )(-?(?:0x)?[0-9a-f]+)$`),
	},
	{isa: s390x.ISA, triple: "s390x", cpu: []string{"-mcpu=z15"},
		random: func(r *rand.Rand) []byte {
			list := []pattern{{0, 0}, {0xff << 40, 0x07 << 40}, {0xff << 40, 0xa7 << 40}, {0xff << 40, 0xc0 << 40},
				{0xff << 40, 0xc4 << 40}, {0xff << 40, 0xc6 << 40}, {0xff0f << 32, 0xcc06 << 32}, {0xff << 40, 0xec << 40}, {0xfe << 40, 0x84 << 40}, {0xff << 40, 0xe3 << 40}, {0xff << 40, 0xeb << 40},
				{0xf0 << 40, 0x40 << 40}, {0xf0 << 40, 0}, {0xffff << 32, 0xb946 << 32}, {0xff << 40, 0xb2 << 40}, {0xf8 << 40, 0x80 << 40}}
			v := pick(r, list)
			b := []byte{byte(v >> 40), byte(v >> 32), byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
			if b[0] == 0xec && r.IntN(2) == 0 { // the operation is in the last byte
				b[5] = []byte{0x44, 0x45, 0x64, 0x65, 0x76, 0x77, 0x7c, 0x7d, 0x7e, 0x7f, 0xe4, 0xe5, 0xf6, 0xf7, 0xfc, 0xfd, 0xfe, 0xff}[r.IntN(18)]
			}
			if b[0] == 0xe3 && r.IntN(2) == 0 {
				b[5] = 0x46 + byte(r.IntN(2))
			}
			if b[0] == 0xeb && r.IntN(2) == 0 {
				b[5] = []byte{0x44, 0x45, 0x71}[r.IntN(3)]
			}
			return b[:[]int{2, 4, 4, 6}[b[0]>>6]]
		},
		// A branch to what register 0 holds is none.
		flows: []row{{`^br\t%r14$`, isa.Return}, {`^(bcr|bc|brcl?)\t0,`, isa.Next}, {`^b\w*r\t%r0$`, isa.Next},
			{`^(balr|basr|bassm|bsm|bctg?r)\t%r\d+, %r0$`, isa.Next}, {`^bpr?p\t`, isa.Next},
			{`^(balr|basr|bassm|bal|bas|pc)\t`, isa.IndirectCall}, {`^brasl?\t`, isa.Call},
			{`^jg?\t`, isa.Jump}, {`^(j\w+|brct\w*|brx\w+|cl?g?[ri]j\w*)\t`, isa.CondJump},
			{`^(pr$|(b|b\w+|pt|cl?g?[ri]b\w*)\t)`, isa.IndirectJump}, {`^svc`, isa.Syscall},
			{`^(mc|diag)\t|^trap[24]`, isa.Trap}, {`^lpsw`, isa.Privileged}},
		nop:    regexp.MustCompile(`^(bcr|bc|brcl?)\t0,`),
		target: regexp.MustCompile(`(?:^|, |\t)(0x[0-9a-f]+)$`), place: true},
}

// pick makes an instruction of one of the patterns.
func pick(r *rand.Rand, list []pattern) uint64 {
	p := list[r.IntN(len(list))]
	return r.Uint64()&^p.mask | p.value
}

// disassemble gives LLVM's text for each instruction, "" where it knows none.
func (o *oracle) disassemble(t *testing.T, codes [][]byte) []string {
	t.Helper()
	var in bytes.Buffer
	for _, c := range codes {
		for _, b := range c {
			fmt.Fprintf(&in, "%#02x ", b)
		}
		in.WriteByte('\n')
	}
	cmd := exec.Command("llvm-mc", append([]string{"--disassemble", "-triple=" + o.triple}, o.cpu...)...)
	cmd.Stdin = &in
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("llvm-mc: %v: %.200s", err, complaints.Bytes())
	}
	bad := make(map[int]bool)
	for _, m := range regexp.MustCompile(`<stdin>:(\d+):\d+: warning: invalid`).FindAllSubmatch(complaints.Bytes(), -1) {
		n, _ := strconv.Atoi(string(m[1]))
		bad[n-1] = true
	}
	lines := strings.Split(strings.TrimSpace(strings.TrimPrefix(string(out), "\t.text\n")), "\n")
	texts := make([]string, len(codes))
	for i := range codes {
		if bad[i] {
			continue
		}
		if len(lines) == 0 {
			t.Fatalf("llvm-mc told of fewer than %d instructions", len(codes))
		}
		texts[i], lines = strings.TrimSpace(lines[0]), lines[1:]
	}
	return texts
}

// Each instruction that the disassembler knows is decoded, and means the same. One that it does not
// know may be decoded: models of a machine have instructions of their own.
func TestOracle(t *testing.T) {
	for _, o := range oracles {
		t.Run(o.isa.Arch().Name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			const n = 10000 // fewer do not have every kind among them
			codes := make([][]byte, n)
			for i := range codes {
				codes[i] = o.random(r)
			}
			// Once more without those that it does not know: there it may take the next one to
			// begin anywhere.
			texts := o.disassemble(t, codes)
			codes = slices.DeleteFunc(codes, func(c []byte) bool {
				unknown := texts[0] == ""
				texts = texts[1:]
				return unknown
			})
			seen := map[isa.Flow]int{}
			relative, at := 0, arch.Addr(0)
			for i, text := range o.disassemble(t, codes) {
				in, err := o.isa.Decode(codes[i], at)
				want := o.flow(text)
				seen[want]++
				var target arch.Addr
				m := o.target.FindStringSubmatch(text)
				if strings.HasPrefix(text, "bp") {
					m = nil // a hint for later instructions
				}
				if m != nil {
					v, err := strconv.ParseInt(m[1], 0, 64)
					if err != nil { // an address at the very end of all
						u, _ := strconv.ParseUint(m[1], 0, 64)
						v = int64(u)
					}
					if target = arch.Addr(v); !o.place {
						from := at
						if strings.HasPrefix(text, "adrp") {
							from &^= 0xfff
						}
						target += from
					}
					relative++
				}
				switch {
				case err != nil || in.Len != len(codes[i]):
					t.Errorf("% x, %q: %+v, %v", codes[i], text, in, err)
				case in.Flow != want:
					t.Errorf("% x, %q: flow %v, want %v", codes[i], text, in.Flow, want)
				case in.Nop != o.nop.MatchString(text):
					t.Errorf("% x, %q: nop %v", codes[i], text, in.Nop)
				case m != nil && (!in.PCRel || in.Target != target):
					t.Errorf("% x, %q at %v: refers to %v (%v), want %v", codes[i], text, at, in.Target, in.PCRel, target)
				}
				at += arch.Addr(in.Len)
			}
			if len(codes) < n/4 || relative < n/50 {
				t.Errorf("of %d instructions %d are known, %d refer to addresses", n, len(codes), relative)
			}
			for _, f := range o.flows {
				if seen[f.flow] == 0 {
					t.Errorf("no instruction was like %s", f.text)
				}
			}
		})
	}
}
