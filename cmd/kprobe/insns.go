package main

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/internal/machine"
)

func insnsCommand() *cobra.Command {
	var points bool
	c := &cobra.Command{
		Use:   "insns FILE",
		Short: "List the instructions of an ELF file's .text, as the engine decodes them",
		Long: `List the instructions of an ELF file's .text (of all executable sections where
there is no .text), one a line:

  ADDRESS LENGTH MNEMONIC [pc=ADDRESS]

Addresses are the file's virtual addresses in hexadecimal. The mnemonic is "-"
where the decoder has no name; pc= is what the instruction refers to relative
to itself. Bytes that are no instruction have length 0, and decoding goes on one
byte further.`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 {
				return errors.New("one ELF file must be given")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			p, err := openCode(args[0])
			if err != nil {
				return err
			}
			out := bufio.NewWriterSize(c.OutOrStdout(), 1<<16)
			if points {
				err = p.decodePoints(out, c.InOrStdin())
			} else {
				p.sweep(out)
			}
			return errors.Join(err, out.Flush())
		},
	}
	c.Flags().BoolVar(&points, "points", false, "decode exactly at the addresses on standard input, one a line; length 0: no instruction is there")
	return c
}

// code is what of a file is executed.
type code struct {
	mode     int // 32 or 64: the width of addresses in bits
	isa      isa.ISA
	sections []section // by address
}

type section struct {
	addr  uint64
	bytes []byte
}

func openCode(name string) (*code, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	e, err := elf.NewFile(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p, class := &code{mode: 64}, elf.ELFCLASS64
	switch e.Machine {
	case elf.EM_X86_64:
	case elf.EM_386:
		p.mode, class = 32, elf.ELFCLASS32
	default:
		return nil, fmt.Errorf("%s: its machine is %v, only x86 is decoded", name, e.Machine)
	}
	m, err := machine.OfELF(e.Machine, class, e.ByteOrder)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	p.isa = m.ISA
	text := e.Section(".text")
	for _, s := range e.Sections {
		if s.Flags&elf.SHF_EXECINSTR == 0 || s.Type == elf.SHT_NOBITS || text != nil && s != text {
			continue
		}
		b, err := s.Data()
		if err != nil {
			return nil, fmt.Errorf("%s: section %s: %w", name, s.Name, err)
		}
		p.sections = append(p.sections, section{s.Addr, b})
	}
	if len(p.sections) == 0 {
		return nil, fmt.Errorf("%s: it has no executable section", name)
	}
	sort.SliceStable(p.sections, func(i, j int) bool { return p.sections[i].addr < p.sections[j].addr })
	return p, nil
}

// sweep decodes from one end to the other.
func (p *code) sweep(out *bufio.Writer) {
	for _, s := range p.sections {
		for off := 0; off < len(s.bytes); {
			off += max(1, p.print(out, s.bytes[off:], s.addr+uint64(off)))
		}
	}
}

// decodePoints decodes at the addresses that are read.
func (p *code) decodePoints(out *bufio.Writer, in io.Reader) error {
	lines := bufio.NewScanner(in)
	for n := 1; lines.Scan(); n++ {
		word := strings.TrimSpace(lines.Text())
		if word == "" {
			continue
		}
		addr, err := strconv.ParseUint(strings.TrimPrefix(word, "0x"), 16, 64)
		if err != nil {
			return fmt.Errorf("standard input, line %d: %q is no hexadecimal address", n, word)
		}
		p.print(out, p.from(addr), addr)
	}
	return lines.Err()
}

// from is the code from an address on to the end of its section; none where
// the address is in no section.
func (p *code) from(addr uint64) []byte {
	for _, s := range p.sections {
		if addr >= s.addr && addr-s.addr < uint64(len(s.bytes)) {
			return s.bytes[addr-s.addr:]
		}
	}
	return nil
}

// print writes the line of the instruction at addr and answers its length.
// A large program has ten million of them: nothing is allocated.
func (p *code) print(out *bufio.Writer, b []byte, addr uint64) int {
	line := strconv.AppendUint(out.AvailableBuffer(), addr, 16)
	in, err := amd64.Decode(b, p.mode)
	if err != nil {
		out.Write(append(line, " 0 -\n"...))
		return 0
	}
	line = strconv.AppendUint(append(line, ' '), uint64(in.Len), 10)
	line = append(append(line, ' '), in.Name()...)
	if in.PCRel {
		// The target depends on the mode as well: that is the engine's to know.
		if where, err := p.isa.Decode(b, arch.Addr(addr)); err == nil {
			line = strconv.AppendUint(append(line, " pc="...), uint64(where.Target), 16)
		}
	}
	out.Write(append(line, '\n'))
	return int(in.Len)
}
