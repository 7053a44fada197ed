// Package bpftest helps to test packages that check, run or compile eBPF: an assembler for readable
// cases, and a generator of random programs.
package bpftest

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"kprobe/bpf"
)

// Assemble reads a program in the notation that bpf.Insn prints, one instruction a
// line or between semicolons, with labels for jumps and calls, and names for maps:
//
//	r1 = map counts            if r0 == 0 goto out     *(u64 *)(r10 -8) = r1
//	r1 = value .rodata+4       call lookup_key         lock fetch_add *(u64 *)(r1 +0), r2
//	out: r0 = 0                exit                    # a comment
//
// A call is of a label where there is one, else of a helper.
func Assemble(text string, maps ...*bpf.MapSpec) ([]bpf.Insn, error) {
	var lines []string
	labels := map[string]int{}
	slots := 0
	for _, line := range strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == ';' }) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.Join(strings.Fields(line), " ")
		for {
			label, rest, ok := strings.Cut(line, ":")
			if !ok {
				break
			}
			labels[strings.TrimSpace(label)] = slots
			line = strings.TrimSpace(rest)
		}
		if line == "" {
			continue
		}
		lines = append(lines, line)
		slots++
		if wide.MatchString(line) {
			slots++
		}
	}
	a := assembler{labels: labels, maps: maps}
	for _, line := range lines {
		if err := a.line(line); err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
	}
	return a.out, nil
}

// MustAssemble is Assemble of a text that is right.
func MustAssemble(text string, maps ...*bpf.MapSpec) []bpf.Insn {
	insns, err := Assemble(text, maps...)
	if err != nil {
		panic(err)
	}
	return insns
}

type assembler struct {
	labels map[string]int
	maps   []*bpf.MapSpec
	out    []bpf.Insn
}

const memory = `\*\(([us])(8|16|32|64) \*\)\(r(\d+) ?([+-]\d+)\)`

var (
	wide   = regexp.MustCompile(`^r(\d+) = (?:(map|value) ([\w.]+)(?:\+(\d+))?|(\S+) ll)$`)
	load   = regexp.MustCompile(`^r(\d+) = ` + memory + `$`)
	store  = regexp.MustCompile(`^` + memory + ` = (r?)(\S+)$`)
	atomic = regexp.MustCompile(`^lock (fetch_)?(\w+) ` + memory + `, r(\d+)$`)
	order  = regexp.MustCompile(`^r(\d+) = (le|be|bswap)(16|32|64) r(\d+)$`)
	neg    = regexp.MustCompile(`^([rw])(\d+) = -[rw](\d+)$`)
	extend = regexp.MustCompile(`^([rw])(\d+) = \(s(8|16|32)\) ?[rw](\d+)$`)
	arith  = regexp.MustCompile(`^([rw])(\d+) (s>>=|s/=|s%=|[-+*/|&%^]?=|<<=|>>=) ([rw]?)(-?\w+)$`)
	branch = regexp.MustCompile(`^if ([rw])(\d+) (\S+) ([rw]?)(-?\w+) goto (\S+)$`)
	jump   = regexp.MustCompile(`^(gotol?|may_goto|call) (\S+)$`)

	ops = map[string]uint8{"+=": bpf.Add, "-=": bpf.Sub, "*=": bpf.Mul, "/=": bpf.Div, "s/=": bpf.Div, "|=": bpf.Or,
		"&=": bpf.And, "<<=": bpf.Lsh, ">>=": bpf.Rsh, "%=": bpf.Mod, "s%=": bpf.Mod, "^=": bpf.Xor, "=": bpf.Mov, "s>>=": bpf.Arsh}
	conds = map[string]uint8{"==": bpf.Jeq, ">": bpf.Jgt, ">=": bpf.Jge, "&": bpf.Jset, "!=": bpf.Jne, "s>": bpf.Jsgt,
		"s>=": bpf.Jsge, "<": bpf.Jlt, "<=": bpf.Jle, "s<": bpf.Jslt, "s<=": bpf.Jsle}
	atomics = map[string]int32{"add": bpf.AtomicAdd, "or": bpf.AtomicOr, "and": bpf.AtomicAnd, "xor": bpf.AtomicXor,
		"xchg": bpf.AtomicXchg, "cmpxchg": bpf.AtomicCmpxchg}
	sizes = map[string]uint8{"8": bpf.SizeB, "16": bpf.SizeH, "32": bpf.SizeW, "64": bpf.SizeDW}
)

func num(s string) int64 {
	if v, err := strconv.ParseInt(s, 0, 64); err == nil {
		return v
	}
	v, _ := strconv.ParseUint(s, 0, 64)
	return int64(v)
}

func regNo(s string) uint8 { return uint8(num(s)) }

// alu is the class for r (64 bits) or w (32 bits).
func class(rw string, r, w uint8) uint8 {
	if rw == "w" {
		return w
	}
	return r
}

func (a *assembler) put(i ...bpf.Insn) error {
	a.out = append(a.out, i...)
	return nil
}

// to is the distance to a label, or a number given as such.
func (a *assembler) to(label string) (int, error) {
	if at, ok := a.labels[label]; ok {
		return at - len(a.out) - 1, nil
	}
	n, err := strconv.Atoi(label)
	return n, err
}

func (a *assembler) line(s string) error {
	if m := wide.FindStringSubmatch(s); m != nil {
		return a.wide(m)
	}
	if m := load.FindStringSubmatch(s); m != nil {
		op := uint8(bpf.ClassLDX | bpf.ModeMem)
		if m[2] == "s" {
			op = bpf.ClassLDX | bpf.ModeMemSX
		}
		return a.put(bpf.Insn{Op: op | sizes[m[3]], Dst: regNo(m[1]), Src: regNo(m[4]), Off: int16(num(m[5]))})
	}
	if m := store.FindStringSubmatch(s); m != nil {
		i := bpf.Insn{Op: bpf.ClassST | bpf.ModeMem | sizes[m[2]], Dst: regNo(m[3]), Off: int16(num(m[4])), Imm: int32(num(m[6]))}
		if m[5] == "r" {
			i.Op, i.Src, i.Imm = bpf.ClassSTX|bpf.ModeMem|sizes[m[2]], regNo(m[6]), 0
		}
		return a.put(i)
	}
	if m := atomic.FindStringSubmatch(s); m != nil {
		op, ok := atomics[m[2]]
		if !ok {
			return fmt.Errorf("atomic %q", m[2])
		}
		if m[1] != "" {
			op |= bpf.AtomicFetch
		}
		return a.put(bpf.Insn{Op: bpf.ClassSTX | bpf.ModeAtomic | sizes[m[4]], Dst: regNo(m[5]), Src: regNo(m[7]), Off: int16(num(m[6])), Imm: op})
	}
	if m := order.FindStringSubmatch(s); m != nil {
		op := map[string]uint8{"le": bpf.ClassALU, "be": bpf.ClassALU | bpf.SrcX, "bswap": bpf.ClassALU64}[m[2]]
		return a.put(bpf.Insn{Op: op | bpf.End, Dst: regNo(m[1]), Imm: int32(num(m[3]))})
	}
	if m := neg.FindStringSubmatch(s); m != nil {
		return a.put(bpf.Insn{Op: bpf.Neg | class(m[1], bpf.ClassALU64, bpf.ClassALU), Dst: regNo(m[2])})
	}
	if m := extend.FindStringSubmatch(s); m != nil {
		return a.put(bpf.Insn{Op: bpf.Mov | bpf.SrcX | class(m[1], bpf.ClassALU64, bpf.ClassALU), Dst: regNo(m[2]), Src: regNo(m[4]), Off: int16(num(m[3]))})
	}
	if m := arith.FindStringSubmatch(s); m != nil {
		i := bpf.Insn{Op: ops[m[3]] | class(m[1], bpf.ClassALU64, bpf.ClassALU), Dst: regNo(m[2]), Imm: int32(num(m[5]))}
		if m[4] != "" {
			i.Op, i.Src, i.Imm = i.Op|bpf.SrcX, regNo(m[5]), 0
		}
		if m[3] == "s/=" || m[3] == "s%=" {
			i.Off = 1
		}
		return a.put(i)
	}
	if m := branch.FindStringSubmatch(s); m != nil {
		cond, ok := conds[m[3]]
		if !ok {
			return fmt.Errorf("condition %q", m[3])
		}
		off, err := a.to(m[6])
		i := bpf.Insn{Op: cond | class(m[1], bpf.ClassJMP, bpf.ClassJMP32), Dst: regNo(m[2]), Off: int16(off), Imm: int32(num(m[5]))}
		if m[4] != "" {
			i.Op, i.Src, i.Imm = i.Op|bpf.SrcX, regNo(m[5]), 0
		}
		a.out = append(a.out, i)
		return err
	}
	if m := jump.FindStringSubmatch(s); m != nil {
		return a.jump(m[1], m[2])
	}
	if s == "exit" {
		return a.put(bpf.Insn{Op: bpf.ClassJMP | bpf.Exit})
	}
	return fmt.Errorf("no such instruction")
}

func (a *assembler) wide(m []string) error {
	dst := regNo(m[1])
	if m[2] == "" {
		v := uint64(num(m[5]))
		return a.put(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Imm: int32(v)}, bpf.Insn{Imm: int32(v >> 32)})
	}
	kind := map[string]uint8{"map": bpf.LoadMap, "value": bpf.LoadMapValue}[m[2]]
	for k, spec := range a.maps {
		if spec.Name == m[3] {
			return a.put(bpf.Insn{Op: bpf.OpLoadImm64, Dst: dst, Src: kind, Imm: int32(k)}, bpf.Insn{Imm: int32(num(m[4]))})
		}
	}
	return fmt.Errorf("no map %q", m[3])
}

func (a *assembler) jump(what, label string) error {
	off, err := a.to(label)
	switch what {
	case "goto":
		a.out = append(a.out, bpf.Insn{Op: bpf.ClassJMP | bpf.Ja, Off: int16(off)})
		return err
	case "may_goto":
		a.out = append(a.out, bpf.Insn{Op: bpf.ClassJMP | bpf.MayGoto, Off: int16(off)})
		return err
	case "gotol":
		a.out = append(a.out, bpf.Insn{Op: bpf.ClassJMP32 | bpf.Ja, Imm: int32(off)})
		return err
	}
	if _, local := a.labels[label]; local {
		return a.put(bpf.Insn{Op: bpf.ClassJMP | bpf.Call, Src: bpf.CallLocal, Imm: int32(off)})
	}
	for id, h := range bpf.Helpers {
		if h.Name == label {
			return a.put(bpf.Insn{Op: bpf.ClassJMP | bpf.Call, Imm: id})
		}
	}
	if err == nil {
		return a.put(bpf.Insn{Op: bpf.ClassJMP | bpf.Call, Imm: int32(off)})
	}
	return fmt.Errorf("no helper %q", label)
}

// ByHand are maps of most kinds, for programs that are written by hand.
var ByHand = []*bpf.MapSpec{
	{Name: "counts", Type: bpf.Array, KeySize: 4, ValueSize: 64, MaxEntries: 10},
	{Name: "start", Type: bpf.Hash, KeySize: 8, ValueSize: 16, MaxEntries: 100},
	{Name: "events", Type: bpf.RingBuf, MaxEntries: 4096},
	{Name: "perf", Type: bpf.PerfEventArray, KeySize: 4, ValueSize: 4},
	{Name: "stacks", Type: bpf.StackTrace, KeySize: 4, ValueSize: 80, MaxEntries: 16},
	{Name: "config", Type: bpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1, Flags: bpf.FlagReadOnly,
		Contents: []bpf.KeyValue{{Key: make([]byte, 4), Value: []byte{5, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}}},
	{Name: "data", Type: bpf.Array, KeySize: 4, ValueSize: 16, MaxEntries: 1},
	{Name: "out", Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1, Flags: bpf.FlagWriteOnly},
}
