package gdbremote

import (
	"encoding/xml"
	"fmt"
	"io"
	"path"
	"strconv"
	"strings"

	"kprobe/arch"
	"kprobe/internal/cpu"
)

// register is one register of the stub's.
type register struct {
	name   string
	number int // in p and P requests
	at     int // offset in the answer to g, in bytes
	size   int // bytes
}

// description is the machine as the stub has it (GDB manual, "Target
// Descriptions").
type description struct {
	machine   string // <architecture>, "" where it is not said
	registers []register
	byName    map[string]*register
}

type xmlInclude struct {
	Href string `xml:"href,attr"`
}

type xmlRegister struct {
	Name   string `xml:"name,attr"`
	Bits   int    `xml:"bitsize,attr"`
	Number string `xml:"regnum,attr"`
}

// Bounds on a stub's description; real machines have some hundred registers.
const (
	maxRegisters = 4096
	maxBits      = 1 << 16
	maxDepth     = 8
)

// parseDescription reads target.xml and the documents that it includes; document fetches one by its
// name. Registers are numbered in order unless they say otherwise.
func parseDescription(document func(name string) (string, error)) (*description, error) {
	d := &description{byName: make(map[string]*register)}
	if err := d.read("target.xml", document, 0); err != nil {
		return nil, err
	}
	// The answer to g holds the registers in order of their numbers.
	at := 0
	for i := range d.registers {
		r := &d.registers[i]
		if i > 0 && r.number <= d.registers[i-1].number {
			return nil, fmt.Errorf("register %s is out of order", r.name)
		}
		r.at = at
		at += r.size
		d.byName[r.name] = r
	}
	return d, nil
}

func (d *description) read(name string, document func(string) (string, error), depth int) error {
	if depth == maxDepth {
		return fmt.Errorf("%s: included too deeply", name)
	}
	text, err := document(name)
	if err != nil {
		return err
	}
	// The order of a <target>'s features and includes is the order of the registers' numbers, so it
	// is read piece by piece.
	dec := xml.NewDecoder(strings.NewReader(text))
	for {
		tok, err := dec.Token()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		el, ok := tok.(xml.StartElement)
		if !ok {
			continue
		}
		switch el.Name.Local {
		case "architecture":
			if err = dec.DecodeElement(&d.machine, &el); err == nil {
				d.machine = strings.TrimSpace(d.machine)
			}
		case "include":
			var in xmlInclude
			if err = dec.DecodeElement(&in, &el); err == nil {
				err = d.read(path.Base(in.Href), document, depth+1)
			}
		case "reg":
			var r xmlRegister
			if err = dec.DecodeElement(&r, &el); err == nil {
				err = d.add(r)
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
}

func (d *description) add(r xmlRegister) error {
	if r.Bits < 0 || r.Bits > maxBits || r.Bits%8 != 0 || len(d.registers) == maxRegisters {
		return fmt.Errorf("register %s of %d bits", r.Name, r.Bits)
	}
	number := 0
	if n := len(d.registers); n > 0 {
		number = d.registers[n-1].number + 1
	}
	if r.Number != "" {
		n, err := strconv.ParseUint(r.Number, 0, 16)
		if err != nil {
			return fmt.Errorf("register %s: %w", r.Name, err)
		}
		number = int(n)
	}
	d.registers = append(d.registers, register{name: r.Name, number: number, size: r.Bits / 8})
	return nil
}

// size is the length of a complete answer to g.
func (d *description) size() int {
	if len(d.registers) == 0 {
		return 0
	}
	last := d.registers[len(d.registers)-1]
	return last.at + last.size
}

// get reads a register out of an answer to g; a register wider than 64 bits gives its low ones. A
// stub may cut the answer short: a register that is missing is not known.
func (d *description) get(a *arch.Arch, g []byte, r *register) (uint64, bool) {
	if r == nil || r.size == 0 || r.at+r.size > len(g) {
		return 0, false
	}
	b := g[r.at:][:r.size]
	var v uint64
	little := a.Order.Uint16([]byte{1, 0}) == 1
	for i := range min(8, r.size) {
		c := b[r.size-1-i]
		if little {
			c = b[i]
		}
		v |= uint64(c) << (8 * i)
	}
	return v, true
}

// put is get's reverse.
func (d *description) put(a *arch.Arch, g []byte, r *register, v uint64) {
	b := g[r.at:][:r.size]
	little := a.Order.Uint16([]byte{1, 0}) == 1
	for i := range min(8, r.size) {
		c := byte(v >> (8 * i))
		if little {
			b[i] = c
		} else {
			b[r.size-1-i] = c
		}
	}
}

// arch finds the machine by its name. Nil: it is not known. A stub that gives no name has described
// x86-64, if there is its program counter.
func (d *description) arch() *arch.Arch {
	if r := d.byName["rip"]; d.machine == "" && r != nil && r.size == 8 {
		return cpu.Named("i386:x86-64")
	}
	return cpu.Named(d.machine)
}
