package kernel

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"kprobe/arch"
)

// The largest line of a symbol list: KSYM_NAME_LEN is 512, and Rust's and
// module names stay below the rest.
const maxLine = 4096

// maxSymbols bounds the part that is kept of a list that never ends. The largest kernels, with
// every option, have some 400,000.
const maxSymbols = 1 << 21

// ReadText reads a list of symbols: /proc/kallsyms, or a System.map, which has the addresses of a
// kernel that KASLR did not move (see Table.Slide). Lines of modules are the second result, by
// module. Errors: a line that is no symbol, with its number; a list whose addresses are all 0, as
// the kernel shows it to users who may not see them (kptr_restrict).
func ReadText(r io.Reader) (*Table, map[string]*Table, error) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, maxLine)
	byModule := map[string][]Symbol{}
	seen := false
	n := 0
	for in.Scan() {
		n++
		s, err := parseLine(in.Text())
		if err != nil {
			return nil, nil, fmt.Errorf("line %d: %w", n, err)
		}
		if n > maxSymbols {
			return nil, nil, fmt.Errorf("more than %d symbols", maxSymbols)
		}
		seen = seen || s.Addr != 0
		byModule[s.Module] = append(byModule[s.Module], s)
	}
	if err := in.Err(); err != nil {
		return nil, nil, fmt.Errorf("line %d: %w", n+1, err)
	}
	if !seen {
		return nil, nil, errors.New("the list has no addresses: its reader may not see them (kptr_restrict)")
	}
	modules := map[string]*Table{}
	for name, syms := range byModule {
		if name != "" {
			modules[name] = newTable(syms, 0)
		}
	}
	return kernelTable(byModule[""]), modules, nil
}

var errLine = errors.New(`not "ADDRESS TYPE NAME"`)

// parseLine reads "ffffffff81000000 T _text", and "\t[module]" behind it.
func parseLine(line string) (Symbol, error) {
	hex, rest, ok1 := strings.Cut(line, " ")
	kind, rest, ok2 := strings.Cut(rest, " ")
	addr, err := strconv.ParseUint(hex, 16, 64)
	if !ok1 || !ok2 || len(kind) != 1 || err != nil {
		return Symbol{}, errLine
	}
	name, module, has := strings.Cut(rest, "\t[")
	if has {
		module, ok1 = strings.CutSuffix(module, "]")
	}
	if name == "" || !ok1 || has && module == "" || strings.ContainsAny(name, " \t") {
		return Symbol{}, errLine
	}
	return Symbol{Name: strings.Clone(name), Addr: arch.Addr(addr), Type: kind[0], Module: strings.Clone(module)}, nil
}

// Slide is the table of the same kernel moved by KASLR. Per-CPU offsets and
// other numbers below the image are not moved.
func (t *Table) Slide(by uint64) *Table {
	syms := make([]Symbol, len(t.syms))
	for i, s := range t.syms {
		if s.Addr >= t.bounds.Start {
			s.Addr += arch.Addr(by)
		}
		s.Size = 0
		syms[i] = s
	}
	return kernelTable(syms)
}
