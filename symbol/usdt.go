package symbol

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
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
	// Index*Scale. A variable is in memory by the program counter, "rip", which is the probe's address.
	Value  int64
	Base   string
	Index  string
	Scale  int
	Memory bool

	Unread string // why it cannot be read; "" where it can
}

// StaticArgs reads the arguments of a static probe of an x86 file.
func (f *File) StaticArgs(p *StaticProbe) (args []StaticArg) {
	o := operands{file: f, at: p.Vaddr}
	for _, word := range strings.Fields(p.Args) {
		size, where, found := strings.Cut(word, "@")
		n, err := strconv.Atoi(size)
		a := StaticArg{Size: max(n, -n), Signed: n < 0}
		switch {
		case !found || err != nil || !slices.Contains([]int{1, 2, 4, 8}, a.Size):
			err = errors.New("it is no integer of 1, 2, 4 or 8 bytes")
		default:
			err = o.read(&a, where)
		}
		if err != nil {
			a = StaticArg{Size: 8, Unread: fmt.Sprintf("%s: %v", word, err)}
		}
		args = append(args, a)
	}
	return args
}

// operands reads operands of AT&T's assembler, of an instruction of a file.
type operands struct {
	file *File
	at   uint64
}

var errNoOperand = errors.New("it is in no general register, nor in memory by one")

func (o operands) read(a *StaticArg, s string) (err error) {
	if value, constant := strings.CutPrefix(s, "$"); constant && value != "" {
		a.Value, err = o.absolute(value)
		return err
	}
	ok := false
	if strings.HasPrefix(s, "%") {
		if a.Base, ok = register(s); !ok {
			return errNoOperand
		}
		return nil
	}
	off, inside, by := strings.Cut(s, "(")
	inside, closed := strings.CutSuffix(inside, ")")
	parts := strings.Split(inside, ",")
	if by != closed || len(parts) > 3 {
		return errNoOperand
	}
	a.Memory = true
	switch variable, offset, known := sum(off); {
	case !known:
		return errNoOperand
	case variable != "" && (parts[0] == "" || parts[0] == "%rip"): // by its address alone, which the probe's tells
		addr, err := o.variable(variable)
		if err != nil {
			return err
		}
		a.Base, a.Value = "rip", int64(addr)+offset-int64(o.at)
	default:
		if a.Base, ok = register(parts[0]); !ok {
			return errNoOperand
		}
		if a.Value, err = o.absolute(off); err != nil {
			return err
		}
	}
	if len(parts) == 1 {
		return nil
	}
	a.Scale = 1
	if len(parts) == 3 {
		scale, fine := number(parts[2])
		if a.Scale = int(scale); !fine || scale != 1 && scale != 2 && scale != 4 && scale != 8 {
			return errNoOperand
		}
	}
	if a.Index, ok = register(parts[1]); !ok {
		return errNoOperand
	}
	return nil
}

// absolute is the value of a text: a number, or where files are not moved a variable's address, too.
func (o operands) absolute(text string) (int64, error) {
	variable, offset, ok := sum(text)
	switch {
	case !ok:
		return 0, errNoOperand
	case variable == "":
		return offset, nil
	case o.file.elf.Type != elf.ET_EXEC:
		return 0, fmt.Errorf("the address of %s is not the same in each process", variable)
	}
	addr, err := o.variable(variable)
	return int64(addr) + offset, err
}

// variable is a variable's address by its only symbol.
func (o operands) variable(name string) (addr uint64, err error) {
	all := o.file.Lookup(name)
	if len(all) == 0 {
		return 0, fmt.Errorf("the file has no symbol %s", name)
	}
	if slices.ContainsFunc(all, func(s Symbol) bool { return s.Addr != all[0].Addr }) {
		return 0, fmt.Errorf("the file has several symbols %s", name)
	}
	return all[0].Addr, nil
}

// sum reads numbers and at most one variable that are added up, such as "8+table-16"; "" is 0.
func sum(text string) (variable string, offset int64, ok bool) {
	for text != "" {
		minus := text[0] == '-'
		if minus || text[0] == '+' {
			text = text[1:]
		}
		word := text
		if i := strings.IndexAny(text, "+-"); i >= 0 {
			word = text[:i]
		}
		text = text[len(word):]
		switch n, isNumber := number(word); {
		case isNumber && minus:
			offset -= n
		case isNumber:
			offset += n
		case minus || variable != "" || !isSymbol(word):
			return "", 0, false
		default:
			variable = word
		}
	}
	return variable, offset, true
}

func isSymbol(word string) bool {
	return word != "" && strings.IndexFunc(word, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("_.$", r)
	}) < 0
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
