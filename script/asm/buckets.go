package asm

import "kprobe/bpf"

// PowerBucket makes of the number in R0 its bucket's index: 0 of negative ones, then one for
// each number below 2 << bits, then 2^bits for each power of two.
func (a *Asm) PowerBucket(bits int) {
	small, end, positive := a.NewLabel(), a.NewLabel(), a.NewLabel()
	a.IfImm(bpf.Jsge, bpf.R0, 0, positive)
	a.Imm(bpf.R0, 0)
	a.GoTo(end)
	a.Put(positive)
	a.IfImm(bpf.Jlt, bpf.R0, int32(2<<bits), small)
	// R1 becomes the logarithm, in steps that need no jump.
	a.Mov(bpf.R2, bpf.R0)
	a.Imm(bpf.R1, 0)
	for step := 5; step >= 0; step-- {
		a.Imm(bpf.R3, 1<<(1<<step)-1)
		a.Alu(bpf.Sub, bpf.R3, bpf.R2)
		a.AluImm(bpf.Rsh, bpf.R3, 63)
		a.AluImm(bpf.Lsh, bpf.R3, int32(step))
		a.Alu(bpf.Rsh, bpf.R2, bpf.R3)
		a.Alu(bpf.Or, bpf.R1, bpf.R3)
	}
	a.AluImm(bpf.Sub, bpf.R1, int32(bits)) // the power of a bucket's width
	a.Alu(bpf.Rsh, bpf.R0, bpf.R1)
	a.AluImm(bpf.And, bpf.R0, int32(1<<bits-1))
	a.AluImm(bpf.Add, bpf.R1, 1)
	a.AluImm(bpf.Lsh, bpf.R1, int32(bits))
	a.Alu(bpf.Add, bpf.R0, bpf.R1)
	a.Put(small)
	a.AluImm(bpf.Add, bpf.R0, 1)
	a.Put(end)
}

// StepBucket makes of the number in R0 its bucket's index: 0 of those below from, last of those from to on, else one for each step.
func (a *Asm) StepBucket(from, to, step int64, last int) {
	low, high, end := a.NewLabel(), a.NewLabel(), a.NewLabel()
	a.Imm(bpf.R1, uint64(from))
	a.IfReg(bpf.Jslt, bpf.R0, bpf.R1, low)
	a.Imm(bpf.R2, uint64(to))
	a.IfReg(bpf.Jsge, bpf.R0, bpf.R2, high)
	a.Alu(bpf.Sub, bpf.R0, bpf.R1)
	a.Imm(bpf.R1, uint64(step))
	a.Alu(bpf.Div, bpf.R0, bpf.R1)
	a.AluImm(bpf.Add, bpf.R0, 1)
	a.GoTo(end)
	a.Put(high)
	a.Imm(bpf.R0, uint64(last))
	a.GoTo(end)
	a.Put(low)
	a.Imm(bpf.R0, 0)
	a.Put(end)
}
