package bpf

// Numbers of helpers that read numbers out of a text, and their flags: a base in the low bits.
const (
	fnStrtol  = 105
	fnStrtoul = 106
	fnJiffies = 118
	baseMask  = 0x1f
	maxNumber = 63      // characters of a number that the kernel looks at
	jiffy     = 4000000 // nanoseconds: of a kernel with HZ 250, which object.Kconfig tells programs
)

// strtol is strtol(text, size, flags, result), or strtoul, the kernel's rules: spaces, a minus,
// then digits of base 8, 10 or 16, which the text says for 0. It answers how many characters that
// were, or -EINVAL, -ERANGE; the result is 0 then.
//
// Where it is in the text, the verifier would follow step by step. So it is kept in memory that is
// not read back by R10, which the verifier forgets, as in snprintf.go.
func strtol(signed bool) []Insn {
	const at, value, base, negative, some, size = 0, 8, 16, 24, 32, 40 // from R9
	w := &coder{}
	get := func(reg uint8, off int16) { w.put(loadOf(SizeDW, reg, R9, off)) }
	set := func(off int16, reg uint8) { w.put(storeTo(SizeDW, R9, off, reg)) }
	// character loads the one that is n behind number R1 into R2.
	character := func(n int32, none string) {
		w.put(movReg(R2, R1), aluTo(Add, R2, n))
		w.whenReg(Jge, R2, R7, none)
		w.put(aluBy(Add, R2, R6), loadOf(SizeB, R2, R2, 0))
	}
	w.put(movReg(R6, R1), movReg(R7, R2), movReg(R8, R4), movReg(R9, R10), addTo(R9, -size))
	w.put(storeNumber(SizeDW, R8, 0, 0))
	for off := int16(0); off < size; off += 8 {
		w.put(storeNumber(SizeDW, R9, off, 0))
	}
	set(base, R3)
	for _, b := range []int32{0, 8, 10, 16} {
		w.when(Jeq, R3, b, "space")
	}
	w.goTo("wrong")

	w.label("space")
	w.rounds("wrong")
	get(R1, at)
	character(0, "wrong")
	w.when(Jeq, R2, ' ', "skip")
	w.when(Jeq, R2, 0xa0, "skip")
	w.when(Jlt, R2, '\t', "sign")
	w.when(Jgt, R2, '\r', "sign")
	w.label("skip")
	w.put(aluTo(Add, R1, 1))
	set(at, R1)
	w.goTo("space")

	w.label("sign")
	w.when(Jne, R2, '-', "limit")
	w.put(aluTo(Add, R1, 1))
	set(at, R1)
	set(negative, R2)
	w.label("limit")
	w.put(movReg(R3, R1), aluTo(Add, R3, maxNumber))
	w.whenReg(Jle, R7, R3, "prefix")
	w.put(movReg(R7, R3))

	w.label("prefix")
	get(R0, base)
	w.when(Jeq, R0, 8, "digits")
	w.when(Jeq, R0, 10, "digits")
	character(0, "wrong")
	w.put(movTo(R3, 10))
	w.when(Jne, R2, '0', "by itself")
	w.put(movTo(R3, 8))
	character(1, "by itself")
	w.put(aluTo(Or, R2, 0x20))
	w.when(Jne, R2, 'x', "by itself")
	w.when(Jeq, R0, 16, "hex")
	character(2, "by itself")
	w.put(movReg(R4, R2), aluTo(Sub, R4, '0'))
	w.when(Jlt, R4, 10, "hex")
	w.put(aluTo(Or, R2, 0x20), aluTo(Sub, R2, 'a'))
	w.when(Jge, R2, 6, "by itself")
	w.label("hex")
	w.put(movTo(R3, 16), aluTo(Add, R1, 2))
	set(at, R1)
	w.label("by itself")
	w.when(Jeq, R0, 16, "digits")
	set(base, R3)

	w.label("digits")
	w.rounds("end")
	get(R1, at)
	character(0, "end")
	w.put(movReg(R3, R2), aluTo(Sub, R3, '0'))
	w.when(Jlt, R3, 10, "digit")
	w.put(aluTo(Or, R2, 0x20), movReg(R3, R2), aluTo(Sub, R3, 'a'))
	w.when(Jge, R3, 6, "end")
	w.put(aluTo(Add, R3, 10))
	w.label("digit")
	get(R0, base)
	w.whenReg(Jge, R3, R0, "end")
	get(R4, value)
	w.put(movTo(R5, -1), aluBy(Sub, R5, R3), aluBy(Div, R5, R0))
	w.whenReg(Jgt, R4, R5, "range")
	w.put(aluBy(Mul, R4, R0), aluBy(Add, R4, R3), aluTo(Add, R1, 1))
	set(value, R4)
	set(at, R1)
	set(some, R0)
	w.goTo("digits")

	w.label("end")
	get(R1, some)
	w.when(Jeq, R1, 0, "wrong")
	get(R1, negative)
	get(R4, value)
	if signed {
		w.when(Jne, R1, 0, "negative")
		w.when(Jslt, R4, 0, "range")
		w.goTo("done")
		w.label("negative")
		w.put(Insn{Op: ClassALU64 | Neg, Dst: R4})
		w.when(Jsgt, R4, 0, "range")
	} else {
		w.when(Jne, R1, 0, "wrong")
	}
	w.label("done")
	w.put(storeTo(SizeDW, R8, 0, R4))
	get(R0, at)
	w.put(Insn{Op: ClassJMP | Exit})
	w.label("range")
	w.answer(-ERANGE)
	w.label("wrong")
	w.answer(-EINVAL)
	return w.code()
}
