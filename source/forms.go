package source

import (
	"debug/dwarf"
	"encoding/binary"
	"errors"
	"slices"
)

// The pass over all entries reads names, references and whether there is code, and
// skips everything else. What it finds is read again in full by debug/dwarf.

// form is how an attribute is encoded (DWARF 5, 7.5.6; and GNU's own).
type form = uint32

const (
	formAddr        form = 0x01
	formBlock2      form = 0x03
	formBlock4      form = 0x04
	formData2       form = 0x05
	formData4       form = 0x06
	formData8       form = 0x07
	formString      form = 0x08
	formBlock       form = 0x09
	formBlock1      form = 0x0a
	formData1       form = 0x0b
	formFlag        form = 0x0c
	formSdata       form = 0x0d
	formStrp        form = 0x0e
	formUdata       form = 0x0f
	formRefAddr     form = 0x10
	formRef1        form = 0x11
	formRef2        form = 0x12
	formRef4        form = 0x13
	formRef8        form = 0x14
	formRefUdata    form = 0x15
	formIndirect    form = 0x16
	formSecOffset   form = 0x17
	formExprloc     form = 0x18
	formFlagPresent form = 0x19
	formStrx        form = 0x1a
	formAddrx       form = 0x1b
	formRefSup4     form = 0x1c
	formStrpSup     form = 0x1d
	formData16      form = 0x1e
	formLineStrp    form = 0x1f
	formRefSig8     form = 0x20
	formImplicit    form = 0x21
	formLoclistx    form = 0x22
	formRnglistx    form = 0x23
	formRefSup8     form = 0x24
	formStrx1       form = 0x25
	formStrx2       form = 0x26
	formStrx3       form = 0x27
	formStrx4       form = 0x28
	formAddrx1      form = 0x29
	formAddrx2      form = 0x2a
	formAddrx3      form = 0x2b
	formAddrx4      form = 0x2c
	formGNURefAlt   form = 0x1f20
	formGNUStrpAlt  form = 0x1f21
)

// spec is an attribute of an abbreviation.
type spec struct {
	value int64 // of a constant that is in the abbreviation
	attr  dwarf.Attr
	form  form
}

// abbrev is a kind of entry.
type abbrev struct {
	tag      dwarf.Tag
	children bool
	specs    []spec
	sibling  bool // it says where the next one of its level is
	fixed    int  // bytes of the attributes; -1 where that varies
}

// unit is a compilation unit, or a partial one.
type unit struct {
	off, end uint64 // in .debug_info, header included
	root     uint64 // its first entry
	version  int
	size     int // bytes of an address
	is64     bool
	kinds    []abbrev // by code
	strBase  uint64
	addrBase uint64
	locBase  uint64
	low      uint64 // what its location lists count from
	abbrevs  uint64 // where its abbreviations are

	// Of a type's unit.
	signature uint64
	typed     uint64 // where the type is, from off on; 0 of other units

	// Of a unit that was split.
	skeleton   uint64 // the first entry of what the linked file has of it; 0 of others
	gnu        bool   // before DWARF 5: its lists are of other forms
	rangesBase uint64
}

var errShort = errors.New("an entry ends too early")

// cursor reads bytes. After bad is set, all values read are 0.
type cursor struct {
	b     []byte
	pos   int
	order binary.ByteOrder
	bad   bool
}

func (c *cursor) take(n int) []byte {
	if c.bad || n < 0 || n > len(c.b)-c.pos {
		c.bad = true
		c.pos = len(c.b)
		return make([]byte, max(0, min(n, 8)))
	}
	c.pos += n
	return c.b[c.pos-n : c.pos]
}

func (c *cursor) number(n int) uint64 {
	b := c.take(n)
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(c.order.Uint16(b))
	case 3:
		if c.order == binary.BigEndian {
			return uint64(b[0])<<16 | uint64(b[1])<<8 | uint64(b[2])
		}
		return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
	case 4:
		return uint64(c.order.Uint32(b))
	case 8:
		return c.order.Uint64(b)
	}
	c.bad = true
	return 0
}

func (c *cursor) uleb() uint64 {
	var v uint64
	for shift := uint(0); c.pos < len(c.b) && !c.bad; shift += 7 {
		b := c.b[c.pos]
		c.pos++
		if shift < 64 {
			v |= uint64(b&0x7f) << shift
		}
		if b < 0x80 {
			return v
		}
	}
	c.bad = true
	return 0
}

// form reads a form. None is so large that it does not fit.
func (c *cursor) form() form { return form(min(c.uleb(), 1<<31)) }

func (c *cursor) sleb() int64 {
	var v int64
	for shift := uint(0); c.pos < len(c.b) && !c.bad; {
		b := c.b[c.pos]
		c.pos++
		if shift < 64 {
			v |= int64(b&0x7f) << shift
		}
		shift += 7
		if b < 0x80 {
			if b&0x40 != 0 && shift < 64 {
				v |= -1 << shift
			}
			return v
		}
	}
	c.bad = true
	return 0
}

func (c *cursor) cstring() []byte {
	start := c.pos
	for c.pos < len(c.b) {
		if c.b[c.pos] == 0 {
			c.pos++
			return c.b[start : c.pos-1]
		}
		c.pos++
	}
	c.bad = true
	return nil
}

func (u *unit) offsetSize() int {
	if u.is64 {
		return 8
	}
	return 4
}

// width is how many bytes a form takes; -1 where it varies.
func (u *unit) width(f form) int {
	switch f {
	case formFlagPresent, formImplicit:
		return 0
	case formData1, formFlag, formRef1, formStrx1, formAddrx1:
		return 1
	case formData2, formRef2, formStrx2, formAddrx2:
		return 2
	case formStrx3, formAddrx3:
		return 3
	case formData4, formRef4, formRefSup4, formStrx4, formAddrx4:
		return 4
	case formData8, formRef8, formRefSig8, formRefSup8:
		return 8
	case formData16:
		return 16
	case formAddr:
		return u.size
	case formRefAddr:
		if u.version == 2 {
			return u.size
		}
		return u.offsetSize()
	case formStrp, formSecOffset, formLineStrp, formStrpSup, formGNURefAlt, formGNUStrpAlt:
		return u.offsetSize()
	}
	return -1
}

// skip passes over an attribute.
func (c *cursor) skip(u *unit, f form) {
	if n := u.width(f); n >= 0 {
		c.take(n)
		return
	}
	switch f {
	case formString:
		c.cstring()
	case formBlock1:
		c.take(int(c.number(1)))
	case formBlock2:
		c.take(int(c.number(2)))
	case formBlock4:
		c.take(int(c.number(4)))
	case formBlock, formExprloc:
		c.take(int(min(c.uleb(), 1<<31)))
	case formSdata, formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx:
		c.uleb()
	case formIndirect:
		c.skip(u, c.form())
	default:
		c.bad = true
	}
}

// constant reads an attribute that is a number, and not below 0; 0 for others.
func (c *cursor) constant(u *unit, s spec) uint64 {
	switch s.form {
	case formImplicit:
		return uint64(max(s.value, 0))
	case formData1, formData2, formData4, formData8:
		return c.number(u.width(s.form))
	case formUdata:
		return c.uleb()
	case formSdata:
		return uint64(max(c.sleb(), 0))
	}
	c.skip(u, s.form)
	return 0
}

// reference reads where an attribute refers to in .debug_info; alt: in the alternate file's.
func (c *cursor) reference(u *unit, f form) (off uint64, alt bool) {
	switch f {
	case formRef1, formRef2, formRef4, formRef8: // modulo 2^32, see typeunits.go
		return uint64(dwarf.Offset(u.off + c.number(u.width(f)))), false
	case formRefUdata:
		return u.off + c.uleb(), false
	case formRefAddr:
		return c.number(u.width(f)), false
	case formGNURefAlt, formRefSup4, formRefSup8:
		return c.number(u.width(f)), true
	}
	c.skip(u, f)
	return 0, false
}

// Where a name is: a section, and the offset in it. Names that stand among the entries have a digest, too (see inEntries).
const (
	inStr uint64 = (iota + 1) << 60 // 0 is none
	inLineStr
	inInfo
	inAlt
	sectionMask uint64 = 0xf << 60
)

// text reads where an attribute's text is; 0 for nowhere.
func (c *cursor) text(f *File, u *unit, form form) uint64 {
	switch form {
	case formString:
		at := c.pos
		return inEntries(at, c.cstring())
	case formStrp:
		return inStr | c.number(u.offsetSize())
	case formLineStrp:
		return inLineStr | c.number(u.offsetSize())
	case formGNUStrpAlt, formStrpSup:
		return inAlt | c.number(u.offsetSize())
	case formStrx1, formStrx2, formStrx3, formStrx4:
		return f.strx(u, c.number(u.width(form)))
	case formStrx:
		return f.strx(u, c.uleb())
	}
	c.skip(u, form)
	return 0
}

// inEntries is a name that stands at an offset of .debug_info. Its digest tells most others apart without a look there:
// to look at each would read all of the section.
func inEntries(at int, text []byte) uint64 {
	return inInfo | digest(text)<<32 | uint64(at)
}

// digest is one of 28 bits (FNV-1a).
func digest[T string | []byte](text T) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 0x100000001b3
	}
	return h >> 36
}

// strx is the text of an index.
func (f *File) strx(u *unit, i uint64) uint64 {
	n := uint64(u.offsetSize())
	base := u.strBase
	if base == 0 && u.version >= 5 && !u.gnu {
		base = 2 * n // behind the header: 8 bytes, or 16
	}
	at := base + i*n
	if at > uint64(len(f.sec.strOffsets)) {
		return 0
	}
	c := f.cursor(f.sec.strOffsets, int(at))
	return inStr | c.number(int(n))
}

func (f *File) cursor(b []byte, pos int) cursor {
	var order binary.ByteOrder = binary.LittleEndian
	if !f.sec.little {
		order = binary.BigEndian
	}
	if pos < 0 || pos > len(b) {
		return cursor{b: b, pos: len(b), order: order, bad: true}
	}
	return cursor{b: b, pos: pos, order: order}
}

// bytesAt are those of a name, with what follows them.
func (f *File) bytesAt(name uint64) []byte {
	b, at := f.sec.str, name&0xffffffff
	switch name & sectionMask {
	case inLineStr:
		b = f.sec.lineStr
	case inInfo:
		b = f.sec.info
	case inAlt:
		if f.alt == nil {
			return nil
		}
		b = f.alt.sec.str
	}
	if name == 0 || at >= uint64(len(b)) {
		return nil
	}
	return b[at:]
}

// nameIs compares without making a string.
func (f *File) nameIs(name uint64, want string) bool {
	b := f.bytesAt(name)
	return len(b) > len(want) && b[len(want)] == 0 && string(b[:len(want)]) == want
}

func (f *File) name(name uint64) string {
	c := cursor{b: f.bytesAt(name)}
	return string(c.cstring())
}

// kinds reads an abbreviation table.
func (f *File) kinds(u *unit, off uint64) ([]abbrev, error) {
	if off > uint64(len(f.sec.abbrev)) {
		return nil, errShort
	}
	c := f.cursor(f.sec.abbrev, int(off))
	var out []abbrev
	var specs []spec
	for {
		code := c.uleb()
		if code == 0 || c.bad {
			break
		}
		a := abbrev{tag: dwarf.Tag(c.uleb()), children: c.number(1) != 0}
		specs = specs[:0]
		for !c.bad {
			at, form := dwarf.Attr(c.uleb()), c.form()
			if at == 0 && form == 0 {
				break
			}
			value := int64(0)
			if form == formImplicit {
				value = c.sleb()
			}
			specs = append(specs, spec{value, at, form})
			a.sibling = a.sibling || at == dwarf.AttrSibling
			if n := u.width(form); n < 0 || a.fixed < 0 {
				a.fixed = -1
			} else {
				a.fixed += n
			}
		}
		if code > 1<<20 {
			return nil, errors.New("an abbreviation's number is too large")
		}
		a.specs = slices.Clone(specs)
		if uint64(len(out)) <= code {
			out = append(out, make([]abbrev, code+1-uint64(len(out)))...)
		}
		out[code] = a
	}
	if c.bad {
		return nil, errShort
	}
	return out, nil
}

// readUnits reads the headers of all units.
func (f *File) readUnits() ([]*unit, error) {
	type key struct {
		off     uint64
		version int
		size    int
		is64    bool
	}
	tables := map[key][]abbrev{}
	var units []*unit
	c := f.cursor(f.sec.info, 0)
	read := 0
	for c.pos < len(c.b) {
		if c.pos-read > chunkSize {
			forget(f.sec.info[read:c.pos]) // a header is some bytes, and may bring a megabyte with it
			read = c.pos
		}
		u, err := c.header(false)
		if err != nil {
			return nil, err
		}
		if u == nil {
			break // padding
		}
		u.root = uint64(skipZeros(c.b, c.pos, int(u.end)))
		k := key{u.abbrevs, u.version, u.size, u.is64}
		if tables[k] == nil {
			kinds, err := f.kinds(u, u.abbrevs)
			if err != nil {
				return nil, err
			}
			tables[k] = kinds
		}
		u.kinds = tables[k]
		f.readRoot(u)
		units = append(units, u)
		c.pos = int(u.end)
	}
	return units, nil
}

// header reads the header of a unit: nil where the section has no more. typed tells that a type's signature and
// place follow it, as they do in .debug_types; in DWARF 5 it says so itself. Errors: what it says makes no sense.
func (c *cursor) header(typed bool) (*unit, error) {
	u := &unit{off: uint64(c.pos)}
	n := c.number(4)
	if n == 0xffffffff {
		u.is64 = true
		n = c.number(8)
	}
	if n == 0 || n > uint64(len(c.b)-c.pos) {
		return nil, nil
	}
	u.end = uint64(c.pos) + n
	u.version = int(c.number(2))
	id := false
	if u.version >= 5 {
		typ := c.number(1)
		typed = typed || typ == 2 || typ == 6
		id = typ == 4 || typ == 5 // a skeleton's, a split unit's: the same in both
		u.size = int(c.number(1))
		u.abbrevs = c.number(u.offsetSize())
	} else {
		u.abbrevs = c.number(u.offsetSize())
		u.size = int(c.number(1))
	}
	switch {
	case id:
		c.take(8)
	case typed:
		u.signature = c.number(8)
		u.typed = c.number(u.offsetSize())
	}
	if c.bad || u.version < 2 || u.version > 5 || u.size != 4 && u.size != 8 {
		return nil, errors.New("a unit's header makes no sense")
	}
	return u, nil
}

// Attributes that debug/dwarf has no names for.
const (
	attrStrOffsetsBase dwarf.Attr = 0x72
	attrAddrBase       dwarf.Attr = 0x73
	attrLoclistsBase   dwarf.Attr = 0x8c
	attrGNUAddrBase    dwarf.Attr = 0x2133
)

// readRoot reads what a unit's first entry says of all others.
func (f *File) readRoot(u *unit) {
	c := f.cursor(f.sec.info[:u.end], int(u.root))
	code := c.uleb()
	if code >= uint64(len(u.kinds)) {
		return
	}
	lowx := -1
	for _, s := range u.kinds[code].specs {
		switch s.attr {
		case attrStrOffsetsBase, attrAddrBase, attrLoclistsBase, attrGNUAddrBase:
			v := uint64(s.value)
			if s.form != formImplicit {
				if u.width(s.form) < 1 {
					c.skip(u, s.form)
					continue
				}
				v = c.number(u.width(s.form))
			}
			switch s.attr {
			case attrStrOffsetsBase:
				u.strBase = v
			case attrLoclistsBase:
				u.locBase = v
			default:
				u.addrBase = v
			}
		case dwarf.AttrLowpc:
			switch s.form {
			case formAddr:
				u.low = c.number(u.size)
			case formAddrx:
				lowx = int(min(c.uleb(), 1<<31))
			case formAddrx1, formAddrx2, formAddrx3, formAddrx4:
				lowx = int(c.number(u.width(s.form)))
			default:
				c.skip(u, s.form)
			}
		default:
			c.skip(u, s.form)
		}
	}
	if lowx >= 0 {
		u.low, _ = f.addrx(u, uint64(lowx))
	}
}

// addrx is the address of an index.
func (f *File) addrx(u *unit, i uint64) (uint64, bool) {
	base := u.addrBase
	if base == 0 && u.version >= 5 && !u.gnu {
		base = 8
	}
	at := base + i*uint64(u.size)
	if i > 1<<32 || at > uint64(len(f.sec.addr)) {
		return 0, false
	}
	c := f.cursor(f.sec.addr, int(at))
	v := c.number(u.size)
	return v, !c.bad
}

// unitAt is the unit of an entry.
func (f *File) unitAt(off uint64) *unit {
	lo, hi := 0, len(f.units)
	for lo < hi {
		if m := (lo + hi) / 2; f.units[m].end <= off {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo < len(f.units) && f.units[lo].off <= off {
		return f.units[lo]
	}
	return nil
}
