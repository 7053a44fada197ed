package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"strings"

	"kprobe/arch"
)

// The kernel's own table of symbols (scripts/kallsyms.c writes it, kernel/
// kallsyms.c reads it) is some arrays in its read-only data, each aligned to a
// pointer, since 7.2 to 4 bytes, in one of two orders:
//
//	up to 6.3   offsets  relative_base  num_syms  names  markers  [seqs_of_names]  token_table  token_index
//	since 6.4                           num_syms  names  markers  token_table  token_index  offsets  [relative_base]  seqs_of_names
//
//	num_syms       how many symbols there are; a pointer wide before 4.20, 4 bytes since
//	names          for each a length (two bytes from 128 on, low 7 bits first) and as many tokens
//	markers        where in names the symbols 0, 256, 512, ... are; as wide as num_syms
//	token_table    the 256 tokens, texts that end in NUL; a symbol's first letter is its type
//	token_index    where in token_table each is, 2 bytes
//	offsets        the addresses, one encoding of four
//	seqs_of_names  the order by name, 3 bytes a symbol, since 6.2 (and in some stable kernels)
//
// Nothing says where the arrays are, which order it is and which encoding. But
// the parts prove each other: the index must be that of the tokens, a walk over
// num_syms names must meet every marker and end where the markers begin, and the
// addresses must rise. No chance data passes.

// encoding is the form in which addresses are kept.
type encoding string

const (
	absolute      encoding = "absolute"       // addresses, before 4.6 and where CONFIG_KALLSYMS_BASE_RELATIVE is off
	baseRelative  encoding = "base-relative"  // 32 bits to be added to relative_base
	percpuMixed   encoding = "base-percpu"    // the same for negative ones, as base-1-offset; others are per-CPU offsets (x86-64 up to 6.14)
	placeRelative encoding = "place-relative" // 32 signed bits to be added to the place of the offset itself, since 7.0
)

// tables has the places where the arrays were found, as offsets in the window.
type tables struct {
	tokens    [256]string
	tokenAt   int // of token_table
	indexEnd  int // behind token_index
	names     int
	numAt     int // of num_syms
	n         int
	offsets   int
	encoding  encoding
	base      uint64
	addresses []uint64 // placeRelative: relative to the window
}

// window is a piece of memory that holds the arrays.
type window struct {
	b     []byte
	order binary.ByteOrder
	ptr   int // bytes of a pointer
	unit  int // the alignment of the arrays
	steps int // taken by the search for names: memory may be made to look like tables everywhere
}

const (
	minSymbols = 16 * 256 // a kernel with fewer has not been built; a proof needs some markers
	maxName    = 512      // KSYM_NAME_LEN, with the type
	maxToken   = 64
	maxSteps   = 1 << 26 // a real kernel takes one for each 8 bytes of names, and one for each name
)

var (
	errNoTables = errors.New("no kallsyms tables: no token table (kallsyms_token_table) with its index")
	errNoNames  = errors.New("a kallsyms token table, but no names (kallsyms_names) and markers below it that fit each other")
)

// digits are in every token table: the names of a kernel have all ten, so each keeps its own token,
// and "0" is the 48th.
var digits = []byte("0\x001\x002\x003\x004\x005\x006\x007\x008\x009\x00")

func (w *window) align(at int) int { return (at + w.unit - 1) &^ (w.unit - 1) }

// u reads size bytes; outside the window is 0.
func (w *window) u(at, size int) uint64 {
	if at < 0 || at+size > len(w.b) {
		return 0
	}
	switch size {
	case 2:
		return uint64(w.order.Uint16(w.b[at:]))
	case 4:
		return uint64(w.order.Uint32(w.b[at:]))
	}
	return w.order.Uint64(w.b[at:])
}

// findTokens reads the token table around the digits at z, and proves it with
// its index.
func (w *window) findTokens(z int) (*tables, error) {
	t := &tables{}
	end := z
	for range 256 - '0' { // the tokens from "0" on
		n := bytes.IndexByte(w.b[end:min(end+maxToken, len(w.b))], 0)
		if n < 0 {
			return nil, errNoTables
		}
		end += n + 1
	}
	index := w.align(end)
	t.indexEnd = index + 2*256
	t.tokenAt = z - int(w.u(index+2*'0', 2))
	if t.indexEnd > len(w.b) || t.tokenAt < 0 || t.tokenAt != w.align(t.tokenAt) {
		return nil, errNoTables
	}
	at := t.tokenAt
	for i := range t.tokens {
		n := bytes.IndexByte(w.b[at:end], 0)
		if n < 0 || at-t.tokenAt != int(w.u(index+2*i, 2)) {
			return nil, errNoTables
		}
		t.tokens[i] = string(w.b[at : at+n])
		at += n + 1
	}
	return t, nil
}

// findNames finds markers, names and num_syms below the token table.
func (w *window) findNames(t *tables) error {
	for p := t.tokenAt - w.unit; p > 0 && w.steps < maxSteps; p -= w.unit {
		for _, width := range []int{4, w.ptr} {
			if w.u(p, width) != 0 || !w.rising(p+width, 0, width) {
				continue
			}
			run := 1 // the bytes behind the markers may look like more of them
			for run < maxSymbols/256 && w.rising(p+run*width, w.u(p+(run-1)*width, width), width) {
				run++
			}
			if run >= minSymbols/256 && w.namesBefore(t, p, run, width) {
				return nil
			}
			if w.ptr == 4 {
				break
			}
		}
	}
	return errNoNames
}

// rising tells whether the marker at p can follow one of the value before: 256
// names have at least 2 bytes each.
func (w *window) rising(p int, before uint64, width int) bool {
	v := w.u(p, width)
	return v >= before+2*256 && v <= before+256*(maxName+2)
}

// namesBefore looks for the number of symbols whose names end at p, where up to
// run markers begin.
func (w *window) namesBefore(t *tables, p, run, width int) bool {
	highest := int(w.u(p+(run-1)*width, width)) + 256*(maxName+2)
	for k := p - w.unit; k >= 0 && p-k <= highest && w.steps < maxSteps; k -= w.unit {
		w.steps++
		n := int(w.u(k, width))
		count := (n + 255) / 256
		if n < minSymbols || n > maxSymbols || count > run {
			continue
		}
		names := w.align(k + 4)
		last := int(w.u(p+(count-1)*width, width))
		if names+last >= p || p-names-last > 256*(maxName+2) {
			continue
		}
		if w.walk(names, n, p, width) {
			t.names, t.numAt, t.n = names, k, n
			return true
		}
	}
	return false
}

// entry reads one name's length: where its tokens begin, and how many they are.
func (w *window) entry(at int) (start, length int) {
	length = int(w.b[at])
	at++
	if length&0x80 != 0 && at < len(w.b) {
		length = length&0x7f | int(w.b[at])<<7
		at++
	}
	return at, length
}

// walk goes over n names, which must agree with the markers at p and end there.
func (w *window) walk(names, n, p, width int) bool {
	at := names
	for i := range n {
		w.steps++
		if at >= p || i%256 == 0 && uint64(at-names) != w.u(p+i/256*width, width) {
			return false
		}
		start, length := w.entry(at)
		if length == 0 || length > maxName {
			return false
		}
		at = start + length
	}
	return w.align(at) == p
}

// findAddresses finds the addresses and their encoding. The proof is that kallsyms is sorted: read
// in a wrong way, the addresses are not.
func (w *window) findAddresses(t *tables) error {
	try := func(enc encoding, at int, base uint64) bool {
		size := 4
		if enc == absolute {
			size = w.ptr
		}
		if at < 0 || at+size*t.n > len(w.b) {
			return false
		}
		addrs := make([]uint64, t.n)
		negative := false
		for i := range addrs {
			v := w.u(at+size*i, size)
			signed := uint64(int64(int32(v)))
			switch {
			case enc == baseRelative:
				v += base
			case enc == percpuMixed && int32(v) < 0:
				v, negative = base-1-signed, true
			case enc == placeRelative:
				v, negative = uint64(at+size*i)+signed, negative || i == 0 && int32(v) < 0
			}
			if w.ptr == 4 {
				v = uint64(uint32(v))
			}
			addrs[i] = v
			sorted := i == 0 || addrs[i-1] <= v
			if enc == placeRelative { // the lowest are below the window: negative
				sorted = i == 0 || int64(addrs[i-1]) <= int64(v)
			}
			if !sorted {
				return false
			}
		}
		switch enc {
		case absolute: // of nothing but zeros anything can be made
			negative = addrs[t.n-1] != 0
		case baseRelative: // the base is the lowest address, of the first symbol
			negative = addrs[0] == base && addrs[t.n-1] != base
		}
		if !negative {
			return false
		}
		t.offsets, t.encoding, t.base, t.addresses = at, enc, base, addrs
		return true
	}
	// The two orders; of each, the array of 4-byte offsets has a base behind it.
	short := w.align(4 * t.n)
	before, behind := t.numAt-w.ptr-short, w.align(t.indexEnd)
	for _, at := range []int{before, behind} {
		base := w.u(at+short, w.ptr)
		if try(percpuMixed, at, base) || try(baseRelative, at, base) {
			return nil
		}
	}
	if try(absolute, behind, 0) || try(absolute, t.numAt-w.align(w.ptr*t.n), 0) || try(placeRelative, behind, 0) {
		return nil
	}
	return errors.New("kallsyms names, but no addresses (kallsyms_offsets) that rise, in any encoding that is known")
}

// symbols expands all names.
func (w *window) symbols(t *tables) ([]Symbol, error) {
	syms := make([]Symbol, t.n)
	var all strings.Builder // one string for all names
	ends := make([]int, t.n)
	at := t.names
	for i := range syms {
		start, length := w.entry(at)
		at = start + length
		before := all.Len()
		for _, token := range w.b[start:at] {
			all.WriteString(t.tokens[token])
		}
		if n := all.Len() - before; n < 2 || n > maxName {
			return nil, errors.New("kallsyms tables with a name that has no sense")
		}
		ends[i] = all.Len()
	}
	names, from := all.String(), 0
	for i, end := range ends {
		syms[i] = Symbol{Type: names[from], Name: names[from+1 : end], Addr: arch.Addr(t.addresses[i])}
		from = end
	}
	return syms, nil
}

// parse reads the tables around the digits at z. By its place alone a table may be aligned to more
// than it has to be, so the alignment is right with which all tables are found.
func (w *window) parse(z int) (t *tables, syms []Symbol, err error) {
	best := -1
	for _, unit := range []int{w.ptr, 4} {
		w.unit = unit
		got, gotSyms, step, e := w.parseAligned(z)
		if e == nil {
			return got, gotSyms, nil
		}
		if step > best { // the attempt that came farthest tells best what is missing
			best, err = step, e
		}
	}
	return nil, nil, err
}

func (w *window) parseAligned(z int) (t *tables, syms []Symbol, step int, err error) {
	if t, err = w.findTokens(z); err != nil {
		return nil, nil, 0, err
	}
	if err = w.findNames(t); err != nil {
		return nil, nil, 1, err
	}
	if err = w.findAddresses(t); err != nil {
		return nil, nil, 2, err
	}
	syms, err = w.symbols(t)
	return t, slices.Clip(syms), 3, err
}

// hasTokens tells whether there is a token table around the digits at z.
func (w *window) hasTokens(z int) bool {
	for _, w.unit = range []int{w.ptr, 4} {
		if _, err := w.findTokens(z); err == nil {
			return true
		}
	}
	return false
}
