package symbol

import (
	"cmp"
	"debug/elf"
	"slices"
	"sort"
)

// Every x86-64 program keeps .eh_frame however much it is stripped: unwinding needs it at run time.
// Here it serves for the bounds of functions and for whether exceptions pass through them;
// framerules.go reads its register rules.

// fde is one frame description entry: one function, or a cold part of one.
type fde struct {
	start, end uint64
	lsda       uint64 // language-specific data: landing pads; 0 for none
	cie        *cie
	rules      []byte // the call frame instructions
	uncalled   bool   // it begins without a return address
}

// cie holds the facts that the entries which refer to it share.
type cie struct {
	ptrEnc, lsdaEnc byte
	sized           bool   // "z": entries have augmentation data
	personality     uint64 // routine that reads the LSDA, or the slot that holds it
	persEnc         byte
	codeAlign       uint64
	dataAlign       int64
	returns         uint64 // the register, or its stand-in, that has the return address
	rules           []byte // the call frame instructions that all begin with
}

type frames struct {
	fdes []fde  // sorted by start
	cies []*cie // that an entry refers to
}

// Pointer encodings (Linux Standard Base, DWARF extensions): a format in the low four bits, the
// base that it is relative to in the next three.
const (
	encULEB, encU2, encU4, encU8 = 0x01, 0x02, 0x03, 0x04
	encSLEB, encS2, encS4, encS8 = 0x09, 0x0a, 0x0b, 0x0c
	encAbs, encPCRel, encDataRel = 0x00, 0x10, 0x30
	encIndirect, encOmit         = 0x80, 0xff
)

// cursor reads b, whose first byte is at address addr. After bad is set, all
// values read are 0.
type cursor struct {
	f    *File
	b    []byte
	addr uint64
	pos  uint64
	data uint64 // base of encDataRel
	bad  bool

	debug bool // it is .debug_frame, which names common entries otherwise
}

func (c *cursor) take(n uint64) []byte {
	if c.bad || n > uint64(len(c.b)) || c.pos > uint64(len(c.b))-n {
		c.bad = true
		return make([]byte, min(n, 8))
	}
	c.pos += n
	return c.b[c.pos-n : c.pos]
}

func (c *cursor) u8() byte    { return c.take(1)[0] }
func (c *cursor) u32() uint32 { return c.f.elf.ByteOrder.Uint32(c.take(4)) }
func (c *cursor) u64() uint64 { return c.f.elf.ByteOrder.Uint64(c.take(8)) }

// leb reads a LEB128 number.
func (c *cursor) leb(signed bool) uint64 {
	var v uint64
	for shift := uint(0); ; shift += 7 {
		b := c.u8()
		if shift < 64 {
			v |= uint64(b&0x7f) << shift
		}
		if b&0x80 == 0 {
			if signed && b&0x40 != 0 && shift+7 < 64 {
				v |= ^uint64(0) << (shift + 7)
			}
			return v
		}
	}
}

// cstring reads up to a zero byte.
func (c *cursor) cstring() string {
	start := c.pos
	for c.u8() != 0 {
	}
	if c.bad {
		return ""
	}
	return string(c.b[start : c.pos-1])
}

// pointer reads an encoded pointer. A null one is 0 whatever its base is.
func (c *cursor) pointer(enc byte) uint64 {
	if enc == encOmit {
		return 0
	}
	at := c.addr + c.pos
	v := c.value(enc)
	if v == 0 {
		return 0
	}
	switch enc & 0x70 {
	case encAbs:
	case encPCRel:
		v += at
	case encDataRel:
		v += c.data
	default:
		c.bad = true
	}
	if c.f.ptr == 4 {
		v = uint64(uint32(v))
	}
	return v
}

// value reads an encoded number, not relative to anything.
func (c *cursor) value(enc byte) uint64 {
	bo := c.f.elf.ByteOrder
	switch enc & 0x0f {
	case encAbs:
		return c.f.word(c.take(uint64(c.f.ptr)))
	case encULEB:
		return c.leb(false)
	case encSLEB:
		return c.leb(true)
	case encU2:
		return uint64(bo.Uint16(c.take(2)))
	case encS2:
		return uint64(int64(int16(bo.Uint16(c.take(2)))))
	case encU4:
		return uint64(c.u32())
	case encS4:
		return uint64(int64(int32(c.u32())))
	case encU8, encS8:
		return c.u64()
	}
	c.bad = true
	return 0
}

// readBounds is .eh_frame without its rules, which would keep all of it in memory.
func (f *File) readBounds() *frames {
	fr := f.readFrames()
	for i := range fr.fdes {
		e := &fr.fdes[i]
		e.uncalled, e.rules = e.beginsUncalled(), nil
	}
	for _, c := range fr.cies {
		c.rules = nil
	}
	return fr
}

// readFrames reads the whole of .eh_frame. The sorted index in .eh_frame_hdr
// has only the starts, and static programs may lack it.
func (f *File) readFrames() *frames {
	c := &cursor{f: f}
	s := f.section(".eh_frame")
	var err error
	if s != nil {
		c.addr = s.Addr
		c.b, err = f.sectionData(s)
	} else {
		c.addr = f.ehFrameFromHeader()
		c.b, err = f.restOf(c.addr, maxRead)
	}
	if err != nil || c.addr == 0 {
		return &frames{}
	}
	return c.entries(s != nil)
}

// entries reads a table. whole tells that it ends where c does, and not where it says so.
func (c *cursor) entries(whole bool) *frames {
	fr := &frames{}
	cies := map[uint64]*cie{}
	used := map[*cie]bool{}
	for c.pos+8 <= uint64(len(c.b)) {
		length := uint64(c.u32())
		if length == 0xffffffff {
			length = c.u64()
		}
		if length == 0 {
			// The end. The linker may have joined tables with their ends left
			// in; only a section says where the last one is.
			if whole {
				continue
			}
			break
		}
		idPos := c.pos
		if c.bad || length < 4 || length > uint64(len(c.b))-idPos {
			break
		}
		entry := *c
		entry.b = c.b[:idPos+length]
		c.pos = idPos + length
		at, ok := entry.common(idPos)
		if !ok {
			continue // a CIE: read when an entry refers to it
		}
		common, known := cies[at]
		if !known {
			common = c.readCIE(at)
			cies[at] = common
		}
		if common == nil {
			continue
		}
		if e, ok := entry.readFDE(common); ok {
			fr.fdes = append(fr.fdes, e)
			if !used[common] {
				used[common] = true
				fr.cies = append(fr.cies, common)
			}
		}
	}
	slices.SortStableFunc(fr.fdes, func(a, b fde) int { return cmp.Compare(a.start, b.start) })
	return fr
}

// common is the position of the common entry that the entry at a position belongs to; false where
// it is one itself.
func (c *cursor) common(idPos uint64) (at uint64, ok bool) {
	id := uint64(c.u32())
	if c.debug {
		return id, id != debugCIE
	}
	return idPos - id, id != 0 && id <= idPos
}

// debugCIE marks a common entry in .debug_frame.
const debugCIE = 0xffffffff

// ehFrameFromHeader finds .eh_frame by the program header that the unwinder
// uses. 0 for none.
func (f *File) ehFrameFromHeader() uint64 {
	for _, p := range f.elf.Progs {
		if p.Type != elf.PT_GNU_EH_FRAME {
			continue
		}
		b, err := f.read(p.Off, min(p.Filesz, 32))
		if err != nil {
			return 0
		}
		c := &cursor{f: f, b: b, addr: p.Vaddr, data: p.Vaddr}
		version, enc := c.u8(), c.u8()
		c.take(2) // encodings of the index
		addr := c.pointer(enc)
		if c.bad || version != 1 {
			return 0
		}
		return addr
	}
	return 0
}

// readCIE reads the common entry at pos; nil if it makes no sense.
func (c *cursor) readCIE(pos uint64) *cie {
	e := *c
	e.bad, e.pos = false, pos
	length := uint64(e.u32())
	if length == 0xffffffff {
		length = e.u64()
	}
	if e.bad || length > uint64(len(e.b))-e.pos {
		return nil
	}
	e.b = e.b[:e.pos+length]
	if id := e.u32(); id != 0 && !c.debug || id != debugCIE && c.debug {
		return nil // not a CIE
	}
	version := e.u8()
	augmentation := e.cstring()
	if augmentation == "eh" { // GCC 2
		e.take(uint64(e.f.ptr))
	}
	if c.debug && version >= 4 {
		e.take(2) // sizes of an address and of a segment
	}
	codeAlign, dataAlign := e.leb(false), int64(e.leb(true))
	common := &cie{lsdaEnc: encOmit, persEnc: encOmit, codeAlign: codeAlign, dataAlign: dataAlign}
	if version == 1 {
		common.returns = uint64(e.u8())
	} else {
		common.returns = e.leb(false)
	}
	behind := e.pos
	for _, a := range augmentation {
		switch a {
		case 'z':
			common.sized = true
			size := e.leb(false)
			behind = e.pos + size
		case 'L':
			common.lsdaEnc = e.u8()
		case 'P':
			common.persEnc = e.u8()
			common.personality = e.pointer(common.persEnc)
		case 'R':
			common.ptrEnc = e.u8()
		}
	}
	if !common.sized {
		behind = e.pos
	}
	if e.bad || behind < e.pos || behind > uint64(len(e.b)) {
		return nil
	}
	common.rules = e.b[behind:]
	return common
}

// readFDE reads the part of an entry behind its CIE pointer.
func (c *cursor) readFDE(common *cie) (fde, bool) {
	e := fde{cie: common}
	e.start = c.pointer(common.ptrEnc)
	size := c.value(common.ptrEnc)
	e.end = e.start + size
	if c.bad || size == 0 || e.end < e.start {
		return e, false
	}
	if common.sized {
		if size := c.leb(false); size > 0 {
			behind := c.pos + size
			e.lsda = c.pointer(common.lsdaEnc)
			c.take(max(behind, c.pos) - c.pos)
		}
	}
	e.rules = c.b[min(c.pos, uint64(len(c.b))):]
	return e, !c.bad
}

// frameAt finds the entry that covers a virtual address.
func (f *File) frameAt(vaddr uint64) (fde, bool) {
	fdes := f.frames().fdes
	i := sort.Search(len(fdes), func(i int) bool { return fdes[i].start > vaddr }) - 1
	if i < 0 || vaddr >= fdes[i].end {
		return fde{}, false
	}
	return fdes[i], true
}

// HasLSDA tells whether the function at a virtual address has landing pads: code
// that runs when an exception passes through (destructors, catch, defer).
func (f *File) HasLSDA(vaddr uint64) bool {
	e, ok := f.frameAt(vaddr)
	return ok && e.lsda != 0
}

// Uncalled tells whether the code at a virtual address begins without a return address, by its
// entry in .eh_frame: a program's start, the first code of a new thread or context. Such code is
// jumped or returned to, and the word on its stack, or in the link register, is no place that it
// came from.
func (f *File) Uncalled(vaddr uint64) bool {
	e, ok := f.frameAt(vaddr)
	return ok && e.start == vaddr && e.uncalled
}
