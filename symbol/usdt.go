package symbol

import (
	"bytes"
	"debug/elf"
	"strconv"
	"strings"
)

// StaticProbe is a place in a file that its author has made to be probed (USDT): a note
// of owner "stapsdt" (the format of SystemTap's <sys/sdt.h>). One probe may have several places.
type StaticProbe struct {
	Provider, Name string
	Vaddr          uint64 // of the instruction
	Semaphore      uint64 // address of 2 bytes that count the users of the probe; 0 for none
	Args           string // where the arguments are: "-4@%edi 8@16(%rsp)"
}

const maxNotes = 64 << 20

// StaticProbes are the file's, in the order of its notes. A note that makes no sense counts as
// none.
func (f *File) StaticProbes() (found []StaticProbe) {
	s := f.elf.Section(".note.stapsdt")
	if s == nil || s.Type != elf.SHT_NOTE || s.Size > maxNotes {
		return nil
	}
	notes, err := s.Data()
	if err != nil {
		return nil
	}
	var base uint64 // that of the notes moves with prelink, and tells how far
	if b := f.elf.Section(".stapsdt.base"); b != nil {
		base = b.Addr
	}
	order := f.elf.ByteOrder
	word := func(b []byte) uint64 {
		if f.ptr == 4 {
			return uint64(order.Uint32(b))
		}
		return order.Uint64(b)
	}
	for len(notes) >= 12 {
		nameLen, descLen, kind := uint64(order.Uint32(notes)), uint64(order.Uint32(notes[4:])), order.Uint32(notes[8:])
		nameEnd := 12 + (nameLen+3)&^3
		end := nameEnd + (descLen+3)&^3
		if end > uint64(len(notes)) {
			return found
		}
		owner, desc := notes[12:12+nameLen], notes[nameEnd:nameEnd+descLen]
		notes = notes[end:]
		if string(owner) != "stapsdt\x00" || kind != 3 || len(desc) < 3*f.ptr {
			continue
		}
		text := bytes.Split(desc[3*f.ptr:], []byte{0})
		if len(text) < 3 {
			continue
		}
		p := StaticProbe{Provider: string(text[0]), Name: string(text[1]), Args: string(text[2]),
			Vaddr: word(desc), Semaphore: word(desc[2*f.ptr:])}
		if was := word(desc[f.ptr:]); base != 0 && was != 0 {
			p.Vaddr += base - was
			if p.Semaphore != 0 {
				p.Semaphore += base - was
			}
		}
		found = append(found, p)
	}
	return found
}

// StaticArg says where an argument of a static probe is.
type StaticArg struct {
	Size   int // bytes: 1, 2, 4 or 8
	Signed bool

	// A constant; or a register, by the name of all of it ("rdi"); or memory at Base + Value +
	// Index*Scale.
	Value  int64
	Base   string
	Index  string
	Scale  int
	Memory bool
}

// StaticArgs reads the arguments of a static probe of an x86 file. ok is false for the first that
// cannot be read (a float, a global variable): the index of it is len(args).
func StaticArgs(text string) (args []StaticArg, ok bool) {
	for _, word := range strings.Fields(text) {
		size, where, found := strings.Cut(word, "@")
		n, err := strconv.Atoi(size)
		a := StaticArg{Size: max(n, -n), Signed: n < 0}
		switch a.Size {
		case 1, 2, 4, 8:
		default:
			err = strconv.ErrRange
		}
		if !found || err != nil || !a.place(where) {
			return args, false
		}
		args = append(args, a)
	}
	return args, true
}

// place reads an operand of AT&T's assembler.
func (a *StaticArg) place(s string) (ok bool) {
	if value, constant := strings.CutPrefix(s, "$"); constant {
		a.Value, ok = number(value)
		return ok
	}
	if strings.HasPrefix(s, "%") {
		a.Base, ok = register(s)
		return ok
	}
	off, inside, memory := strings.Cut(s, "(")
	inside, closed := strings.CutSuffix(inside, ")")
	if !memory || !closed {
		return false
	}
	a.Memory = true
	if off != "" {
		if a.Value, ok = number(off); !ok {
			return false
		}
	}
	parts := strings.Split(inside, ",")
	if parts[0] != "" {
		if a.Base, ok = register(parts[0]); !ok {
			return false
		}
	}
	if len(parts) == 1 {
		return a.Base != ""
	}
	a.Scale = 1
	if len(parts) == 3 {
		scale, fine := number(parts[2])
		if a.Scale = int(scale); !fine || scale != 1 && scale != 2 && scale != 4 && scale != 8 {
			return false
		}
	}
	a.Index, ok = register(parts[1])
	return ok && a.Base != "" && len(parts) <= 3
}

func number(s string) (int64, bool) {
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return n, true
	}
	n, err := strconv.ParseUint(s, 0, 64)
	return int64(n), err == nil
}

// register is the whole register that an x86 name is of, or of a part of.
func register(s string) (name string, ok bool) {
	s, ok = strings.CutPrefix(s, "%")
	if !ok {
		return "", false
	}
	if rest, numbered := strings.CutPrefix(s, "r"); numbered && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
		n, err := strconv.Atoi(strings.TrimRight(rest, "bwd"))
		return "r" + strconv.Itoa(n), err == nil && n >= 8 && n <= 15
	}
	name = strings.TrimLeft(s, "re")
	switch name {
	case "ax", "bx", "cx", "dx", "si", "di", "bp", "sp":
		return "r" + name, true
	case "al", "bl", "cl", "dl":
		return "r" + name[:1] + "x", true
	case "sil", "dil", "bpl", "spl":
		return "r" + name[:2], true
	}
	return "", false
}
