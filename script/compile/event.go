package compile

import (
	"kprobe/bpf"
	"kprobe/script/point"
	"kprobe/script/types"
)

// Programs at trace events of a kernel: they run where the kernel hands a record on, of whichever event, or raw where it makes
// the record.

// recordOf finds the record, and goes to the program's end where it is another event's.
func (g *Generator) recordOf(e *point.Event) {
	if g.At[0].Raw {
		g.Context(g.Machine.Args[0])
		g.Imm(bpf.R1, e.File)
		g.IfReg(bpf.Jne, bpf.R0, bpf.R1, g.End)
		return
	}
	g.Call = g.Temp()
	word := func(at int) {
		g.Context(g.Machine.Args[0])
		g.AluImm(bpf.Add, bpf.R0, int32(at))
		g.ReadTarget(types.Uint64)
	}
	word(e.In.File)
	g.Imm(bpf.R1, e.File)
	g.IfReg(bpf.Jne, bpf.R0, bpf.R1, g.End)
	word(e.In.Entry)
	g.Store(g.Call, bpf.R0)
}

// recordPart leaves in R0 the address of a member of the record, or of what it says is behind.
func (g *Generator) recordPart(p *point.Param) {
	address := func() {
		g.Load(bpf.R0, g.Call, 8, false)
		g.AluImm(bpf.Add, bpf.R0, int32(p.Offset))
	}
	address()
	if !p.Behind {
		return
	}
	const offset = 0xffff // and above it the length
	g.ReadTarget(types.Uint32)
	g.AluImm(bpf.And, bpf.R0, offset)
	g.Load(bpf.R1, g.Call, 8, false)
	g.Alu(bpf.Add, bpf.R0, bpf.R1)
}
