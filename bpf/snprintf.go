package bpf

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"kprobe/bpf/printk"
)

// bpf_snprintf becomes calls of functions that are made, one for each part of its format: each gets
// the buffer, its size and how long the text is so far, and answers how long it is then. The length
// goes on beyond the buffer, as the kernel's answer does; nothing is stored there.
//
// The verifier would tell each length from every other. So it is kept in memory that is not read
// back by R10, which the verifier forgets, and every store compares it with the buffer's size
// again. That a loop ends is for MayGoto to see to.

const (
	fnSnprintf = 165

	textPart = 64 // bytes of a text that are read at once, with a NUL
	maxParts = 8  // of one text
	forgotIn = -8 // where a function keeps the length
)

// snprintf is bpf_snprintf(buffer, size, format, values, bytes of values).
func (e *edit) snprintf(pc int) error {
	format, load, err := e.text(pc, R3, "bpf_snprintf: its format")
	if err != nil {
		return err
	}
	low, err := e.room(pc, 32, "bpf_snprintf")
	if err != nil {
		return err
	}
	buffer, size, length, values := low+24, low+16, low+8, low
	code := []Insn{saved(buffer, R1), saved(size, R2), saved(values, R4)}
	part := func(at int, args ...Insn) {
		code = append(code, loaded(R1, buffer), loaded(R2, size), loaded(R3, length))
		code = append(append(code, args...), calling(at), saved(length, R0))
	}
	_, onStack := e.frameAt(pc, R1)
	if onStack { // all of it counts as written then, as it does behind the kernel's helper
		code = append(code, calling(e.make("blank", blank)))
	}
	code = append(code, movTo(R0, 0), saved(length, R0))
	array, known := e.frameAt(pc, R4)
	count := 0
	at := 0 // in the format
	for c := range printk.Conversions(format) {
		for text := c.Before; text != ""; {
			n := len(text)
			if i := strings.IndexByte(text, '%'); i >= 0 {
				n = i + 1
			}
			m, off := e.p.Insns[load].Imm, e.p.Insns[load+1].Imm+int32(at)
			part(e.make("append", appendText), Insn{Op: OpLoadImm64, Dst: R4, Src: LoadMapValue, Imm: m}, Insn{Imm: off}, movTo(R5, int32(n)))
			if at += n; text[n-1] == '%' {
				at++ // it stands there twice
			}
			text = text[n:]
		}
		if c.Verb == 0 {
			break
		}
		at += 1 + len(c.How) + 1 + len(c.Tail)
		f, ok := c.Field(e.p.PtRegs().Word)
		if !ok {
			return e.p.Refuse(pc, "bpf_snprintf: the conversion %%%s%c%s is not there: %%d %%i %%u %%x %%X with l and ll, %%c, %%s and %%p are, with a width of up to %d", c.How, c.Verb, c.Tail, printk.MaxField)
		}
		// A pointer that the program has put into the array comes back as one only by R10.
		value := []Insn{loaded(R4, values), loadOf(SizeDW, R4, R4, int16(8*count))}
		if known {
			value = []Insn{loaded(R4, array+int16(8*count))}
		}
		if off, n, ok := e.ownText(pc, array+int16(8*count)); ok && known && f.Verb == 's' {
			part(e.ownField(f), movReg(R4, R10), addTo(R4, int32(off)), movTo(R5, n))
		} else {
			part(e.field(f), value...)
		}
		count++
	}
	if given, ok := e.constant(pc, R5); !ok {
		return e.p.Refuse(pc, "bpf_snprintf: how many values it is given is not to be seen right before: give a constant")
	} else if given%8 != 0 || given < int32(8*count) {
		return e.p.Refuse(pc, "bpf_snprintf: its format has %d conversions, and it is given %d bytes of values, 8 for each", count, given)
	}
	code = append(code, loaded(R1, buffer), loaded(R2, size), loaded(R3, length), calling(e.make("finish", finish)))
	e.instead[pc] = code
	return nil
}

// field makes the function of a conversion.
func (e *edit) field(f printk.Field) int {
	return e.make(fmt.Sprint("field ", f), func() []Insn {
		add, fill := e.make("append", appendText), e.make("pad", pad)
		if f.Verb == 's' {
			return textField(f, add, fill)
		}
		return numberField(f, add, fill)
	})
}

// ownText is the place on the stack, and the size, of a text whose address was put at a distance
// from R10 right before. A helper has put the text there, with a size that is a constant. Other
// bytes of the stack are not the text's.
func (e *edit) ownText(pc int, at int16) (off int16, size int32, ok bool) {
	start, end := e.function(pc)
	joined := e.targets()
	for ok = false; !ok; {
		if pc == start || joined[pc] {
			return 0, 0, false
		}
		pc--
		ok = e.p.Insns[pc] == saved(at, e.p.Insns[pc].Src)
	}
	if off, ok = e.frameAt(pc, e.p.Insns[pc].Src); !ok {
		return 0, 0, false
	}
	for pc := start; pc < end; pc++ {
		if i := e.p.Insns[pc]; i.IsCall(CallHelper) {
			to, ok := fills(i.Imm)
			if filled, onStack := e.frameAt(pc, to); !ok || !onStack || filled != off {
				continue
			}
			if n, ok := e.constant(pc, to+1); ok {
				size = max(size, n)
			}
		}
	}
	return off, size, size > 0
}

// fills is the register with the address of the memory that a helper fills; the next one has its
// size.
func fills(helper int32) (reg uint8, ok bool) {
	switch h := Helpers[helper]; {
	case helper == fnSnprintf || helper == fnCopyFromUser:
		return R1, true
	case h != nil:
		k := slices.Index(h.Args, ArgMemOut)
		return uint8(k + 1), k >= 0
	}
	return 0, false
}

// ownField makes the function of a conversion of a text on the stack: text(buffer, size, length,
// address, n).
func (e *edit) ownField(f printk.Field) int {
	add := e.make("text", appendOwn)
	if f.Width == 0 {
		return add
	}
	return e.make(fmt.Sprint("own field ", f), func() []Insn {
		fill, count := e.make("pad", pad), e.make("length", ownLength)
		const before = -8
		w := &coder{}
		w.put(movReg(R6, R1), movReg(R7, R2), movReg(R8, R4), movReg(R9, R5), saved(before, R3))
		text := func() {
			w.put(movReg(R1, R6), movReg(R2, R7), movReg(R4, R8), movReg(R5, R9), calling(add))
		}
		if f.Left {
			text()
			w.put(movReg(R3, R0), loaded(R4, before), addTo(R4, int32(f.Width)), movReg(R1, R6), movReg(R2, R7), calling(fill))
		} else {
			w.put(movReg(R1, R8), movReg(R2, R9), calling(count), loaded(R3, before), movReg(R4, R3))
			w.when(Jge, R0, int32(f.Width), "begin")
			w.put(addTo(R4, int32(f.Width)), aluBy(Sub, R4, R0))
			w.label("begin")
			w.put(movReg(R1, R6), movReg(R2, R7), calling(fill), movReg(R3, R0))
			text()
		}
		w.put(Insn{Op: ClassJMP | Exit})
		return w.code()
	})
}

// ownLength is length(address, n): of the bytes before the first that is 0.
func ownLength() []Insn {
	w := &coder{}
	w.put(movReg(R9, R10), addTo(R9, forgotIn), storeNumber(SizeDW, R9, 0, 0))
	w.label("next")
	w.put(loadOf(SizeDW, R6, R9, 0), movReg(R0, R6))
	w.rounds("end")
	w.whenReg(Jge, R6, R2, "end")
	w.put(movReg(R3, R1), aluBy(Add, R3, R6), loadOf(SizeB, R3, R3, 0))
	w.when(Jeq, R3, 0, "end")
	w.put(aluTo(Add, R6, 1), storeTo(SizeDW, R9, 0, R6))
	w.goTo("next")
	w.label("end")
	w.put(Insn{Op: ClassJMP | Exit})
	return w.code()
}

// appendText is append(buffer, size, length, from, n): n bytes, of which those that are 0 do not
// count.
func appendText() []Insn { return appendBytes("next") }

// appendOwn is append(buffer, size, length, from, n): up to n bytes, before the first that is 0.
func appendOwn() []Insn { return appendBytes("end") }

// appendBytes is the code of both; zero is the label for a 0.
func appendBytes(zero string) []Insn {
	w := &coder{}
	w.put(movTo(R0, 0), movReg(R9, R10), addTo(R9, forgotIn-8), storeTo(SizeDW, R9, 0, R0))
	w.each(func() {
		w.put(loadOf(SizeDW, R6, R9, 0))
		w.whenReg(Jge, R6, R5, "end")
		w.put(movReg(R0, R4), aluBy(Add, R0, R6), loadOf(SizeB, R0, R0, 0), aluTo(Add, R6, 1), storeTo(SizeDW, R9, 0, R6))
		w.when(Jeq, R0, 0, zero)
	})
	return w.code()
}

// pad is pad(buffer, size, length, to): spaces up to a length.
func pad() []Insn {
	w := &coder{}
	w.each(func() {
		w.put(loadOf(SizeDW, R0, R8, 0))
		w.whenReg(Jge, R0, R4, "end")
		w.put(movTo(R0, ' '))
	})
	return w.code()
}

// each puts one character after the other behind the text, as far as there is room: the one that
// get leaves in R0, until that goes to "end".
func (w *coder) each(get func()) {
	w.put(movReg(R8, R10), addTo(R8, forgotIn), storeTo(SizeDW, R8, 0, R3))
	w.label("next")
	w.rounds("end")
	get()
	w.put(loadOf(SizeDW, R7, R8, 0), aluTo(Add, R7, 1), storeTo(SizeDW, R8, 0, R7))
	w.whenReg(Jge, R7, R2, "next")
	w.when(Jeq, R7, 0, "next")
	w.put(aluBy(Add, R7, R1), storeTo(SizeB, R7, -1, R0))
	w.goTo("next")
	w.label("end")
	w.put(loadOf(SizeDW, R0, R8, 0), Insn{Op: ClassJMP | Exit})
}

// blank is blank(buffer, size): zeros.
func blank() []Insn {
	w := &coder{}
	w.put(movTo(R0, 0))
	w.label("next")
	w.whenReg(Jge, R0, R2, "end")
	w.put(movReg(R3, R1), aluBy(Add, R3, R0), storeNumber(SizeB, R3, 0, 0), aluTo(Add, R0, 1))
	w.goTo("next")
	w.label("end")
	w.answer(0)
	return w.code()
}

// finish is finish(buffer, size, length): the NUL behind the text, or in the buffer's last byte. It
// answers the length that the whole text has with its NUL.
func finish() []Insn {
	w := &coder{}
	w.put(movReg(R0, R3), aluTo(Add, R0, 1))
	w.when(Jeq, R2, 0, "out")
	w.put(addTo(R2, -1))
	w.whenReg(Jlt, R3, R2, "in")
	w.put(movReg(R3, R2))
	w.label("in")
	w.put(aluBy(Add, R1, R3), storeNumber(SizeB, R1, 0, 0))
	w.label("out")
	w.put(Insn{Op: ClassJMP | Exit})
	return w.code()
}

// numberField is number(buffer, size, length, value): the digits are put down from the last to the
// first, in a field that has what pads it already.
func numberField(f printk.Field, add, fill int) []Insn {
	w := &coder{}
	digits := map[bool]int{false: 10, true: 20}[f.Long]
	switch f.Verb {
	case 'x', 'X':
		digits = digits * 4 / 5
	case 'c':
		digits = 1
	}
	n := max(f.Width, digits+1)
	padded := n // where the padding begins
	if !f.Left {
		padded = n - f.Width
	}
	low := forgotIn - int16(roundUp(uint64(n), 8))
	zeros := f.Zeros && !f.Left && f.Verb != 'c'
	for at := range n {
		c := int32(0)
		if at >= padded {
			if c = ' '; zeros {
				c = '0'
			}
		}
		w.put(storeNumber(SizeB, R10, low+int16(at), c))
	}
	w.put(movReg(R6, R3)) // the length before
	switch {
	case !f.Long && f.Verb == 'd':
		w.put(Insn{Op: ClassALU64 | Mov | SrcX, Dst: R4, Src: R4, Off: 32})
	case !f.Long:
		w.put(Insn{Op: ClassALU | Mov | SrcX, Dst: R4, Src: R4})
	}
	if f.Verb == 'd' {
		w.put(movTo(R7, int32(f.Sign)))
		w.when(Jsge, R4, 0, "positive")
		w.put(movTo(R7, '-'), Insn{Op: ClassALU64 | Neg, Dst: R4})
		w.label("positive")
	}
	signed := func(at int) string { return "signed" + strconv.Itoa(at) }
	for d := range digits {
		at := n - 1 - d
		if d > 0 {
			w.when(Jeq, R4, 0, signed(at))
		}
		w.put(movReg(R0, R4))
		switch f.Verb {
		case 'c':
		case 'd', 'u':
			w.put(aluTo(Mod, R0, 10), aluTo(Div, R4, 10), aluTo(Add, R0, '0'))
		default: // the carry of 6 beyond 15 makes a letter
			letters := int32('a' - '0' - 10)
			if f.Verb == 'X' {
				letters = 'A' - '0' - 10
			}
			w.put(aluTo(And, R0, 15), aluTo(Rsh, R4, 4), movReg(R5, R0), aluTo(Add, R5, 6), aluTo(Rsh, R5, 4), aluTo(Mul, R5, letters), aluBy(Add, R0, R5), aluTo(Add, R0, '0'))
		}
		w.put(storeTo(SizeB, R10, low+int16(at), R0))
	}
	for at := n - 1 - digits; at < n-1; at++ { // the place before the first digit
		w.label(signed(at))
		if f.Verb == 'd' {
			place := at
			if zeros {
				place = min(at, padded)
			}
			w.when(Jeq, R7, 0, "done")
			w.put(storeTo(SizeB, R10, low+int16(place), R7))
			w.goTo("done")
		}
	}
	w.label("done")
	w.put(movReg(R4, R10), addTo(R4, int32(low)), movTo(R5, int32(n)))
	if !f.Left || f.Width == 0 {
		w.put(calling(add), Insn{Op: ClassJMP | Exit})
		return w.code()
	}
	w.put(movReg(R7, R1), movReg(R9, R2), calling(add))
	w.put(movReg(R1, R7), movReg(R2, R9), movReg(R3, R0), movReg(R4, R6), addTo(R4, int32(f.Width)), calling(fill), Insn{Op: ClassJMP | Exit})
	return w.code()
}

// textField is text(buffer, size, length, address): the target's text there, none where it cannot
// be read.
func textField(f printk.Field, add, fill int) []Insn {
	const length, got, before, part = -8, -16, -24, -24 - textPart
	w := &coder{}
	w.put(movReg(R6, R1), movReg(R7, R2), movReg(R8, R4), saved(length, R3), saved(before, R3))
	read := func() {
		for at := int16(part); at < part+textPart; at += 8 {
			w.put(storeNumber(SizeDW, R10, at, 0))
		}
		w.put(movReg(R1, R10), addTo(R1, part), movTo(R2, textPart), movReg(R3, R8), helping(FnProbeReadUserStr))
	}
	padTo := func() { w.put(movReg(R1, R6), movReg(R2, R7), loaded(R3, length), calling(fill), saved(length, R0)) }
	if f.Width > 0 && !f.Left {
		read()
		w.when(Jsge, R0, 1, "there")
		w.put(movTo(R0, 1))
		w.label("there")
		w.put(loaded(R4, before), addTo(R4, int32(f.Width)+1), aluBy(Sub, R4, R0))
		w.when(Jsgt, R0, int32(f.Width), "begin")
		padTo()
	}
	w.label("begin")
	w.put(movTo(R9, 0))
	w.label("next")
	read()
	w.when(Jsle, R0, 0, "out")
	w.put(saved(got, R0), movReg(R1, R6), movReg(R2, R7), loaded(R3, length), movReg(R4, R10), addTo(R4, part), movTo(R5, textPart-1), calling(add), saved(length, R0))
	w.put(loaded(R0, got), addTo(R8, textPart-1), aluTo(Add, R9, 1))
	w.when(Jne, R0, textPart, "out")
	w.when(Jlt, R9, maxParts, "next")
	w.label("out")
	if f.Width > 0 && f.Left {
		w.put(loaded(R4, before), addTo(R4, int32(f.Width)))
		padTo()
	}
	w.put(loaded(R0, length), Insn{Op: ClassJMP | Exit})
	return w.code()
}
