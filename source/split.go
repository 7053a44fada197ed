package source

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
)

// With -gsplit-dwarf the linker sees of each unit a skeleton: its code, its lines, the addresses that it names, and
// where the rest is: a .dwo file, or a package of these (.dwp). The rest is joined to the file's own sections here, as
// if it had never been apart. No entry moves within its unit, as references count from the unit's header: what the
// first entry has to say in addition is in its abbreviation, which has room for constants, and in what becomes free.

// The attributes of a skeleton, of DWARF 5, and of GNU before.
const (
	attrDwoName       dwarf.Attr = 0x76
	attrGNUDwoName    dwarf.Attr = 0x2130
	attrGNUDwoID      dwarf.Attr = 0x2131
	attrGNURangesBase dwarf.Attr = 0x2132
	attrPadding       dwarf.Attr = 0x3fff // of ours
)

// GNU's forms of before DWARF 5.
const (
	formGNUAddrIndex form = 0x1f01
	formGNUStrIndex  form = 0x1f02
)

// skeleton is what the linked file says of a unit.
type skeleton struct {
	*unit
	dir, name string // of the compilation, and of the file
	id        uint64
	ranges    uint64 // what the offsets of lists of ranges count from, before DWARF 5
}

// skeleton is a unit's, where it is one.
func (f *File) skeleton(u *unit) (skeleton, bool) {
	s := skeleton{unit: u}
	c := f.cursor(f.sec.info[:u.end], int(u.root))
	code := c.uleb()
	if code >= uint64(len(u.kinds)) {
		return s, false
	}
	for _, sp := range u.kinds[code].specs {
		switch sp.attr {
		case attrDwoName, attrGNUDwoName:
			s.name = f.name(c.text(f, u, sp.form))
		case dwarf.AttrCompDir:
			s.dir = f.name(c.text(f, u, sp.form))
		case attrGNUDwoID:
			s.id = c.number(u.width(sp.form))
		case attrGNURangesBase:
			s.ranges = c.number(u.width(sp.form))
		default:
			c.skip(u, sp.form)
		}
	}
	if u.version >= 5 && u.root >= 8 {
		id := f.cursor(f.sec.info, int(u.root-8))
		s.id = id.number(8)
	}
	return s, s.name != "" && !c.bad
}

// join adds what is split off to the sections, and notes what is not there. It returns each skeleton by the place of its
// joined unit, and the place of each type by its signature.
func (f *File) join(open func(dir, name string) (io.ReaderAt, error)) (joined map[uint64]skeleton, types map[uint64]uint64) {
	joined, types = map[uint64]skeleton{}, map[uint64]uint64{}
	files := map[[2]string]*split{}
	file := func(dir, name string) (*split, error) {
		key := [2]string{dir, name}
		if s, ok := files[key]; ok {
			return s, nil
		}
		s, err := readSplit(open, dir, name, f.cursor(nil, 0).order)
		if err == nil {
			files[key] = s
			f.addTypes(s, types)
		}
		return s, err
	}
	var all *split
	looked := false
	for _, u := range f.units {
		s, ok := f.skeleton(u)
		if !ok {
			continue
		}
		if !looked {
			all, _ = file("", "")
			looked = true
		}
		var err error
		at, found := uint64(0), false
		if all != nil {
			if p := all.find(s.id); p != nil {
				at, err = f.add(s, all, p)
				found = err == nil
			}
		}
		if !found {
			var one *split
			if one, err = file(s.dir, s.name); err == nil {
				if p := one.find(s.id); p != nil {
					at, err = f.add(s, one, p)
				} else {
					err = errors.New("it is of another compilation")
				}
			}
		}
		if err != nil {
			if f.lack == nil {
				f.lack = fmt.Errorf("%s: %w", s.name, err)
			}
			f.lacking++
			continue
		}
		joined[at] = s
	}
	return joined, types
}

// elsewhere says of functions and variables that they may be in files that could not be read, "" where all could.
func (f *File) elsewhere() string {
	if f.lacking == 0 {
		return ""
	}
	more := ""
	if f.lacking > 1 {
		more = fmt.Sprintf(", and %d more", f.lacking-1)
	}
	return fmt.Sprintf(": debug data is split off, and cannot be read: %v%s", f.lack, more)
}

// Unread returns an error where the debug data of a point is split off and could not be read.
func (f *File) Unread(p Point) error {
	if f.lacking == 0 || len(f.Frames(p.Addr)) > 0 {
		return nil
	}
	return notFound("no function of the source is there%s", f.elsewhere())
}

// split is a .dwo file, or a package of them.
type split struct {
	sec    map[string][]byte // by name, without .debug_ and .dwo
	order  binary.ByteOrder
	placed map[placed]uint64 // where parts of it are in the joined sections
}

type placed struct {
	section string
	at      uint64
}

// part is where a unit's share of each section is.
type part map[string][2]uint64

// The sections of a unit, by their numbers in the index of a package, GNU's and DWARF 5's.
var (
	columnsGNU = map[uint64]string{1: "info", 2: "types", 3: "abbrev", 5: "loc", 6: "str_offsets"}
	columns5   = map[uint64]string{1: "info", 3: "abbrev", 5: "loclists", 6: "str_offsets", 8: "rnglists"}
)

// readSplit reads a file; of no name, the package.
func readSplit(open func(dir, name string) (io.ReaderAt, error), dir, name string, order binary.ByteOrder) (*split, error) {
	r, err := open(dir, name)
	if err != nil {
		return nil, err
	}
	if c, ok := r.(io.Closer); ok {
		defer c.Close()
	}
	e, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	if e.ByteOrder != order {
		return nil, errors.New("it is of another machine")
	}
	s := &split{sec: map[string][]byte{}, order: order, placed: map[placed]uint64{}}
	for _, x := range e.Sections { // each type may have a section of its own, of the same name
		switch x.Name {
		case ".debug_info.dwo":
			s.sec["info"] = append(s.sec["info"], content(x, nil)...)
		case ".debug_types.dwo":
			s.sec["types"] = append(s.sec["types"], content(x, nil)...)
		}
	}
	for _, name := range []string{"abbrev", "str", "str_offsets", "loc", "loclists", "rnglists"} {
		s.sec[name] = sectionOf(e, nil, name+".dwo")
	}
	for _, name := range []string{"cu_index", "tu_index"} {
		s.sec[name] = sectionOf(e, nil, name)
	}
	return s, nil
}

func (s *split) cursor(b []byte, at uint64) cursor {
	if at > uint64(len(b)) {
		return cursor{b: b, pos: len(b), order: s.order, bad: true}
	}
	return cursor{b: b, pos: int(at), order: s.order}
}

// find is the share of the unit of a number; nil where it has none.
func (s *split) find(id uint64) part {
	if x := s.sec["cu_index"]; x != nil {
		return s.lookup(x, id)
	}
	info := s.sec["info"]
	for at := uint64(0); at < uint64(len(info)); {
		h, err := s.header("info", info, at)
		if err != nil {
			return nil
		}
		if h.compile && h.id == id {
			return s.alone("info", at, h.end)
		}
		at = h.end
	}
	return nil
}

// alone is the share of a unit in a file that is no package: its own entries, and all of the other sections.
func (s *split) alone(section string, at, end uint64) part {
	p := part{}
	for name, b := range s.sec {
		p[name] = [2]uint64{0, uint64(len(b))}
	}
	p[section] = [2]uint64{at, end - at}
	return p
}

// types are the shares of the units of types, each by the section that its entries are in.
func (s *split) types() (units []part, sections []string) {
	add := func(p part, section string) { units, sections = append(units, p), append(sections, section) }
	if x := s.sec["tu_index"]; x != nil {
		for _, row := range s.rows(x) {
			p := row()
			section := "info"
			if _, ok := p["types"]; ok {
				section = "types"
			}
			add(p, section)
		}
		return units, sections
	}
	for _, section := range []string{"info", "types"} {
		b := s.sec[section]
		for at := uint64(0); at < uint64(len(b)); {
			h, err := s.header(section, b, at)
			if err != nil {
				break
			}
			if !h.compile {
				add(s.alone(section, at, h.end), section)
			}
			at = h.end
		}
	}
	return units, sections
}

// lookup finds it in the index of a package.
func (s *split) lookup(b []byte, id uint64) part {
	for of, row := range s.rows(b) {
		if of == id {
			return row()
		}
	}
	return nil
}

// rows are the units of an index, by their numbers: it is a hash table, and a table of offsets and sizes.
func (s *split) rows(b []byte) iter.Seq2[uint64, func() part] {
	return func(yield func(uint64, func() part) bool) {
		c := s.cursor(b, 0)
		version := c.number(4) & 0xffff // of 2 bytes and padding, in DWARF 5
		if s.order == binary.BigEndian && version == 0 {
			version = 5
		}
		n, units, slots := c.number(4), c.number(4), c.number(4)
		if c.bad || n > 16 || units > 1<<24 || slots > 1<<26 || slots == 0 {
			return
		}
		columns := columns5
		if version == 2 {
			columns = columnsGNU
		}
		number := func(at uint64, size int) uint64 {
			c := s.cursor(b, at)
			return c.number(size)
		}
		rows := 16 + 8*slots
		table := rows + 4*slots
		for slot := range slots {
			row := number(rows+4*slot, 4)
			if row == 0 || row > units {
				continue
			}
			share := func() part {
				p := part{}
				for i := range n {
					if name := columns[number(table+4*i, 4)]; name != "" {
						p[name] = [2]uint64{number(table+4*(row*n+i), 4), number(table+4*((units+row)*n+i), 4)}
					}
				}
				return p
			}
			if !yield(number(16+8*slot, 8), share) {
				return
			}
		}
	}
}

// header is what stands before a split unit's entries.
type header struct {
	unit
	abbrev  uint64
	id      uint64
	compile bool
}

// header reads a unit's in a section, with its abbreviations' place; of one before DWARF 5 the number is in the first entry.
func (s *split) header(section string, info []byte, at uint64) (header, error) {
	c := s.cursor(info, at)
	n := c.number(4)
	h := header{unit: unit{off: at, end: at + 4 + n}}
	h.version = int(c.number(2))
	switch {
	case n == 0xffffffff:
		return h, errors.New("it has offsets of 64 bits, which are not read")
	case c.bad || h.end > uint64(len(info)) || h.version < 4 || h.version > 5:
		return h, errors.New("a unit's header makes no sense")
	case h.version == 5:
		typ := c.number(1)
		h.size = int(c.number(1))
		h.abbrev = c.number(4)
		h.id = c.number(8)
		h.compile = typ == 5
		if typ == 6 {
			h.signature, h.typed = h.id, c.number(4)
		}
		h.root = uint64(c.pos)
	default:
		h.abbrev = c.number(4)
		h.size = int(c.number(1))
		if section == "types" {
			h.signature, h.typed = c.number(8), c.number(4)
			h.root = uint64(c.pos)
			break
		}
		h.root = uint64(c.pos)
		h.compile = true
		if len(s.sec["cu_index"]) > 0 {
			break // its index knows
		}
		kinds, err := s.kinds(&h, s.sec["abbrev"])
		if err != nil {
			return h, err
		}
		if code := c.uleb(); code < uint64(len(kinds)) {
			for _, sp := range kinds[code].specs {
				if sp.attr == attrGNUDwoID {
					h.id = c.number(h.width(sp.form))
					break
				}
				c.skip(&h.unit, sp.form)
			}
		}
	}
	if c.bad || h.size != 4 && h.size != 8 {
		return h, errors.New("a unit's header makes no sense")
	}
	return h, nil
}

// kinds are a unit's abbreviations, with GNU's forms as DWARF 5's, which are the same.
func (s *split) kinds(h *header, abbrev []byte) ([]abbrev, error) {
	f := &File{sec: sections{abbrev: abbrev, little: s.order == binary.LittleEndian}}
	kinds, err := f.kinds(&h.unit, h.abbrev)
	for _, k := range kinds {
		for i, sp := range k.specs {
			switch sp.form {
			case formGNUAddrIndex:
				k.specs[i].form = formAddrx
			case formGNUStrIndex:
				k.specs[i].form = formStrx
			}
		}
	}
	return kinds, err
}

// share is a unit's part of a section.
func (s *split) share(p part, name string) []byte {
	b, at := s.sec[name], p[name]
	if at[0] > uint64(len(b)) || at[1] > uint64(len(b))-at[0] {
		return nil
	}
	return b[at[0] : at[0]+at[1]]
}

// put adds a part to a section, once, and tells where it is there.
func (s *split) put(to *[]byte, name string, at uint64, b []byte) uint64 {
	key := placed{name, at}
	base, ok := s.placed[key]
	if !ok {
		base = uint64(len(*to))
		*to = append(*to, b...)
		s.placed[key] = base
	}
	return base
}

// maxJoined bounds the joined sections: their offsets have 32 bits.
const maxJoined = 1<<32 - 1

// add joins a unit, and tells where its header is.
func (f *File) add(sk skeleton, s *split, p part) (uint64, error) {
	info := s.share(p, "info")
	h, err := s.header("info", info, 0)
	if err != nil {
		return 0, err
	}
	return f.addUnit(sk, s, p, info[:h.end], h)
}

// addTypes joins the units of types of a split file. A type whose signature is known is left out.
func (f *File) addTypes(s *split, types map[uint64]uint64) {
	units, sections := s.types()
	for i, p := range units {
		info := s.share(p, sections[i])
		h, err := s.header(sections[i], info, 0)
		if err != nil {
			continue
		}
		if _, known := types[h.signature]; known || h.typed == 0 || h.root >= h.end {
			continue
		}
		if at, err := f.addUnit(skeleton{unit: new(unit)}, s, p, info[:h.end], h); err == nil {
			types[h.signature] = at + h.typed
		}
	}
}

// addUnit joins a unit of a header, info, and tells where its header is then.
func (f *File) addUnit(sk skeleton, s *split, p part, info []byte, h header) (uint64, error) {
	kinds, err := s.kinds(&h, s.share(p, "abbrev"))
	if err != nil {
		return 0, err
	}
	for _, k := range kinds {
		if slices.ContainsFunc(k.specs, func(sp spec) bool { return sp.form == formRefAddr }) {
			return 0, errors.New("it refers to other units, which is not followed")
		}
	}
	var total uint64
	for _, b := range [][]byte{f.sec.info, f.sec.str, f.sec.strOffsets, f.sec.loc, f.sec.loclists, f.sec.rnglists, info,
		s.sec["str"], s.sec["str_offsets"], s.sec["loc"], s.sec["loclists"], s.sec["rnglists"]} {
		total = max(total, uint64(len(b)))
	}
	if total > maxJoined/2 {
		return 0, errors.New("all of it is too large")
	}
	c := s.cursor(info, h.root)
	code := c.uleb()
	if code >= uint64(len(kinds)) || kinds[code].tag != dwarf.TagCompileUnit && kinds[code].tag != dwarf.TagTypeUnit {
		return 0, errShort
	}

	strHeader, listHeader := uint64(8), uint64(12)
	list := uint64(0)
	if h.version < 5 {
		strHeader = 0
		list = s.put(&f.sec.loc, "loc", p["loc"][0], s.share(p, "loc"))
	} else {
		list = listHeader + s.put(&f.sec.loclists, "loclists", p["loclists"][0], s.share(p, "loclists"))
	}
	rnglists := listHeader + s.put(&f.sec.rnglists, "rnglists", p["rnglists"][0], s.share(p, "rnglists"))
	key := placed{"str_offsets", p["str_offsets"][0]}
	strOffsets, ok := s.placed[key]
	if !ok {
		str := s.put(&f.sec.str, "str", 0, s.sec["str"])
		b := slices.Clone(s.share(p, "str_offsets"))
		for at := strHeader; at+4 <= uint64(len(b)); at += 4 {
			s.order.PutUint32(b[at:], s.order.Uint32(b[at:])+uint32(str))
		}
		strOffsets = s.put(&f.sec.strOffsets, key.section, key.at, b)
	}

	addrBase := sk.addrBase
	if addrBase == 0 && sk.version >= 5 {
		addrBase = 8
	}
	// The first entry. Whoever reads it is to take the unit for one that was never split.
	root := kinds[code]
	specs := []outSpec{{attr: dwarf.AttrLowpc, form: formAddr},
		{attrStrOffsetsBase, formImplicit, int64(strOffsets + strHeader)}, {attrAddrBase, formImplicit, int64(addrBase)},
		{attrLoclistsBase, formImplicit, int64(list)}, {0x74, formImplicit, int64(rnglists)}}
	body := s.number(nil, sk.low, h.size)
	for _, sp := range root.specs {
		at := c.pos
		switch {
		case sp.attr == attrGNUDwoID || sp.attr == dwarf.AttrStmtList || sp.attr == dwarf.AttrLowpc || sp.attr == dwarf.AttrHighpc || sp.attr == dwarf.AttrRanges:
			c.skip(&h.unit, sp.form)
		case sp.attr == dwarf.AttrLanguage && h.width(sp.form) > 0:
			specs = append(specs, outSpec{sp.attr, formImplicit, int64(c.number(h.width(sp.form)))})
		case sp.form == formImplicit:
			// Its constant is of no use here.
		default:
			c.skip(&h.unit, sp.form)
			specs = append(specs, outSpec{sp.attr, sp.form, 0})
			body = append(body, info[at:c.pos]...)
		}
	}
	if c.bad {
		return 0, errShort
	}
	const newHeader = 12
	first := binary.AppendUvarint(nil, code)
	pad := c.pos - newHeader - len(first) - len(body)
	if pad < 0 || pad > 200 {
		return 0, errors.New("its first entry leaves no room")
	}
	if pad > 0 {
		specs = append(specs, outSpec{attr: attrPadding, form: formBlock1})
		body = append(body, byte(pad-1))
		body = append(body, make([]byte, pad-1)...)
	}

	own, err := s.abbrevs(s.share(p, "abbrev"), h, code, specs)
	if err != nil {
		return 0, err
	}
	at := uint64(len(f.sec.info))
	b := s.number(nil, h.end-h.off-4, 4)
	b = s.number(b, 5, 2)
	b = append(b, 1, byte(h.size))
	b = s.number(b, uint64(len(f.sec.abbrev)), 4)
	b = append(append(b, first...), body...)
	f.sec.info = append(append(f.sec.info, b...), info[c.pos:h.end]...)
	f.sec.abbrev = append(f.sec.abbrev, own...)
	return at, nil
}

func (s *split) number(b []byte, v uint64, n int) []byte {
	for i := range n {
		if s.order == binary.BigEndian {
			b = append(b, byte(v>>(8*(n-1-i))))
		} else {
			b = append(b, byte(v>>(8*i)))
		}
	}
	return b
}

// outSpec is an attribute of an abbreviation that is written.
type outSpec struct {
	attr  dwarf.Attr
	form  form
	value int64
}

// abbrevs is a copy of a table, with other attributes for the first entry, and GNU's forms as DWARF 5's.
func (s *split) abbrevs(b []byte, h header, root uint64, specs []outSpec) ([]byte, error) {
	c := s.cursor(b, h.abbrev)
	var out bytes.Buffer
	put := func(vs ...uint64) {
		for _, v := range vs {
			out.Write(binary.AppendUvarint(nil, v))
		}
	}
	for !c.bad {
		code := c.uleb()
		put(code)
		if code == 0 {
			break
		}
		put(c.uleb(), c.number(1))
		for !c.bad {
			attr, form := c.uleb(), c.form()
			end := attr == 0 && form == 0
			var value []byte
			if form == formImplicit {
				at := c.pos
				c.sleb()
				value = c.b[at:c.pos]
			}
			switch form {
			case formGNUAddrIndex:
				form = formAddrx
			case formGNUStrIndex:
				form = formStrx
			}
			if code == root && end {
				for _, sp := range specs {
					put(uint64(sp.attr), uint64(sp.form))
					if sp.form == formImplicit {
						out.Write(appendSleb(nil, sp.value))
					}
				}
			}
			if code != root || end {
				put(attr, uint64(form))
				out.Write(value)
			}
			if end {
				break
			}
		}
	}
	if c.bad {
		return nil, errShort
	}
	return out.Bytes(), nil
}

func appendSleb(b []byte, v int64) []byte {
	for {
		low := byte(v & 0x7f)
		v >>= 7
		if v == 0 && low&0x40 == 0 || v == -1 && low&0x40 != 0 {
			return append(b, low)
		}
		b = append(b, low|0x80)
	}
}

// rejoin tells the units that were joined what their skeletons know, and leaves these out.
func (f *File) rejoin(joined map[uint64]skeleton) {
	bare := map[uint64]bool{}
	for _, s := range joined {
		bare[s.off] = true
	}
	for _, u := range f.units {
		s, ok := joined[u.off]
		if !ok {
			continue
		}
		u.skeleton, u.low, u.gnu, u.rangesBase = s.root, s.low, s.version < 5, s.ranges
	}
	f.units = slices.DeleteFunc(f.units, func(u *unit) bool { return bare[u.off] })
}

// splitSpans reads a location list of a unit that was split before DWARF 5.
func (f *File) splitSpans(u *unit, off int64) ([]span, error) {
	c := f.cursor(f.sec.loc, int(u.locBase)+int(off))
	base := u.low
	var out []span
	index := func() uint64 {
		v, ok := f.addrx(u, c.uleb())
		if !ok {
			c.bad = true
		}
		return v
	}
	for !c.bad {
		var lo, hi uint64
		switch c.number(1) {
		case 0:
			return out, nil
		case 1:
			base = index()
			continue
		case 2:
			lo = index()
			hi = index()
		case 3:
			lo = index()
			n := c.number(4)
			if hi = lo + n; n >= 1<<31 {
				hi = lo // GCC 12 writes -1 where an entry is of one byte: where it holds is not known
			}
		case 4:
			lo = base + c.number(4)
			hi = base + c.number(4)
		default:
			return nil, errStack
		}
		out = append(out, span{lo, hi, c.take(int(c.number(2)))})
	}
	return nil, errStack
}

// threadOffset is where in its module's thread-local storage a variable is. For split units GCC has the linker write the
// variable's address in the file instead, which is in the segment that threads' storage is made from.
func (f *File) threadOffset(u *unit, n uint64) uint64 {
	if u.skeleton == 0 {
		return n
	}
	for _, p := range f.elf.Progs {
		if p.Type == elf.PT_TLS && n >= p.Memsz && n >= p.Vaddr && n < p.Vaddr+p.Memsz {
			return n - p.Vaddr
		}
	}
	return n
}

// splitRanges are the addresses of an entry of such a unit.
func (f *File) splitRanges(u *unit, e *dwarf.Entry) ([][2]uint64, bool) {
	off, ok := e.Val(dwarf.AttrRanges).(int64)
	if !ok || !u.gnu {
		return nil, false
	}
	c := f.cursor(f.sec.ranges, int(u.rangesBase)+int(off))
	base, highest := u.low, ^uint64(0)>>(64-8*uint(u.size))
	var out [][2]uint64
	for !c.bad {
		lo, hi := c.number(u.size), c.number(u.size)
		switch {
		case lo == 0 && hi == 0:
			return out, true
		case lo == highest:
			base = hi
		default:
			out = append(out, [2]uint64{base + lo, base + hi})
		}
	}
	return nil, true
}
