package amd64

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"kprobe/internal/isa"
)

// attr is a row's shape as Decode uses it, 0 for an opcode that does not exist.
type attr uint32

const (
	attrImm attr = 0x0f // which immediates: imm...

	attrExists attr = 1 << (iota + 3)
	attrModRM
	attrNoReg
	attrNoMem
	attrSIB
	attrModIgnored
	attrGroup
	attrRel
	attrD64
	attrI64
	attrO64
	attrFlow // does more than go on: see flowRows
	attrVvvv
	attrVvvvReg
	attrNoW0
	attrNoW1
	attrBroadcast
	attrRound
	attrMask

	lenShift   = 23 // three bits: vector lengths that do not exist
	groupShift = 26 // the rest: index in groups
	maxGroups  = 1 << (32 - groupShift)
)

const (
	immB attr = iota + 1
	immW
	immD
	immZ
	immV
	immAddr
	immBB
	immWB
	immPtr
	immTestB
	immTestZ
)

var shapeWords = map[string]attr{
	".":   0,
	"rm":  attrModRM,
	"r":   attrModRM | attrNoMem,
	"m":   attrModRM | attrNoReg,
	"sib": attrModRM | attrNoReg | attrSIB,
	"crm": attrModRM | attrModIgnored,
	"g":   attrModRM | attrGroup,
	"ib":  immB, "iw": immW, "id": immD, "iz": immZ, "iv": immV, "ia": immAddr,
	"ibb": immBB, "iwb": immWB, "ptr": immPtr, "tb": immTestB, "tz": immTestZ,
	"rel": attrRel | attrFlow,
	"d64": attrD64,
	"i64": attrI64, "o64": attrO64,
	"v":  attrVvvv,
	"vr": attrVvvv | attrVvvvReg,
	"L0": 0b110 << lenShift, "L1": 0b101 << lenShift,
	"L2": 0b011 << lenShift, "L12": 0b001 << lenShift,
	"W0": attrNoW1, "W1": attrNoW0,
	"bc": attrBroadcast, "er": attrRound,
	"k": attrMask,
}

// column is the attributes of one map's opcodes with one mandatory prefix.
type column [256]attr

// The maps, built from the rows of tables.go when the first instruction is decoded. The first index
// of legacy, vex and evex is the map's number in a VEX or EVEX prefix, the second the mandatory
// prefix as in Inst.PP.
var (
	oneByte column
	legacy  [4][4]column
	vex     [4][4]column
	evex    [7][4]column
	xop     [3]column

	groups   = make([]group, 1, 64) // [0] is unused: index 0 means no group
	prefixOf [256]uint16
	is3DNow  [256]bool
	flowOf   [2][256]isa.Flow // of the one-byte map and of 0F
)

// built builds the maps. A program that decodes nothing is not kept waiting.
var built sync.Once

func build() {
	fill(oneByteRows, oneByteGroupRows, func(string) []*column { return []*column{&oneByte} })
	fill(legacyRows, legacyGroupRows, columnsOf(legacy[:]))
	fill(vexRows, vexGroupRows, columnsOf(vex[:]))
	fill(evexRows, evexGroupRows, columnsOf(evex[:]))
	fill(xopRows, xopGroupRows, func(name string) []*column {
		return []*column{&xop[strings.Index("89A", strings.TrimPrefix(name, "X"))]}
	})
	for _, op := range opcodes(opcodes3DNow) {
		is3DNow[op] = true
	}
	for op, bit := range prefixBytes {
		prefixOf[op] = bit
	}
	for _, r := range flowRows {
		for _, op := range opcodes(r.oneByte) {
			flowOf[0][op] = r.flow
			oneByte[op] |= attrFlow
		}
		for _, op := range opcodes(r.map0F) {
			flowOf[1][op] = r.flow
			for pp := range legacy[Map0F] {
				if legacy[Map0F][pp][op] != 0 {
					legacy[Map0F][pp][op] |= attrFlow
				}
			}
		}
	}
}

// columnsOf gives the columns that a name like "NP,66.0F38" means, "0F38"
// meaning all four.
func columnsOf(maps [][4]column) func(string) []*column {
	return func(name string) (cols []*column) {
		prefixes, m, cut := strings.Cut(name, ".")
		if !cut {
			prefixes, m = "NP,66,F3,F2", name
		}
		n := map[string]int{"0F": 1, "0F38": 2, "0F3A": 3, "M5": 5, "M6": 6}[m]
		for _, p := range strings.Split(prefixes, ",") {
			cols = append(cols, &maps[n][strings.Index("NP66F3F2", p)/2])
		}
		return cols
	}
}

// fill sets the opcodes of rows in the columns that named finds.
func fill(rows []row, groupRows []groupRow, named func(string) []*column) {
	for _, r := range rows {
		a := attrExists
		for _, w := range strings.Fields(r.shape) {
			bits, ok := shapeWords[w]
			if !ok {
				panic(fmt.Sprintf("amd64: row %q: no such word %q", r.shape, w))
			}
			a |= bits
		}
		for _, col := range named(r.column) {
			for _, op := range opcodes(r.opcodes) {
				if col[op] != 0 {
					panic(fmt.Sprintf("amd64: %s %02x is in two rows", r.column, op))
				}
				col[op] = a
			}
		}
	}
	for _, g := range groupRows {
		for _, col := range named(g.column) {
			for _, op := range opcodes(g.opcodes) {
				if col[op]&attrGroup == 0 || col[op]>>groupShift != 0 {
					panic(fmt.Sprintf("amd64: %s %02x has two groups or none", g.column, op))
				}
				col[op] |= attr(len(groups)) << groupShift
			}
		}
		if groups = append(groups, newGroup(g)); len(groups) > maxGroups {
			panic("amd64: too many groups")
		}
	}
}

// opcodes reads "00-03 08".
func opcodes(s string) (ops []byte) {
	for _, f := range strings.Fields(s) {
		lo, hi, isRange := strings.Cut(f, "-")
		if !isRange {
			hi = lo
		}
		for op := parseByte(lo); op <= parseByte(hi); op++ {
			ops = append(ops, byte(op))
		}
	}
	return ops
}

func parseByte(s string) uint64 {
	n, err := strconv.ParseUint(s, 16, 8)
	if err != nil {
		panic("amd64: " + err.Error())
	}
	return n
}

// group is a groupRow: a bit for each reg field with a memory operand, and one
// for each of the 64 ModRM bytes with mod 3.
type group struct {
	reg uint64
	mem uint8
}

func newGroup(r groupRow) (g group) {
	for n, c := range r.mem {
		if c != '-' {
			g.mem |= 1 << n
		}
	}
	for n, f := range strings.Fields(r.reg) {
		if f != "--" {
			g.reg |= parseByte(f) << (8 * n)
		}
	}
	return g
}

func (g *group) has(modrm byte) bool {
	if modrm >= 0xc0 {
		return g.reg>>(modrm&0x3f)&1 != 0
	}
	return g.mem>>(modrm>>3&7)&1 != 0
}
