package source

import (
	"bytes"
	"debug/dwarf"
	"errors"
	"slices"
)

// With -fdebug-types-section each type has a unit of its own, which the linker keeps once. Others name it by a signature
// of 8 bytes. Before DWARF 5 these units are in a section of their own, .debug_types. They are joined to the other units
// here, and signatures become the references that they stand for, which have as many bytes.

// joinTypes joins units of types to the others: those of .debug_types (own), and those of .debug_info. types has the places
// of types that were split off. It tells whether there are any types in units of their own.
func (f *File) joinTypes(own []byte, types map[uint64]uint64) (bool, error) {
	joined := &File{sec: f.sec, units: f.units}
	if len(own) > 0 {
		all := scratch(len(f.sec.info) + len(own))
		copy(all, f.sec.info)
		joined.sec.info = all
		if err := joined.appendTypes(len(f.sec.info), own); err != nil {
			return false, err
		}
	}
	for _, u := range joined.units {
		if u.typed != 0 {
			types[u.signature] = u.off + u.typed
		}
	}
	if len(types) == 0 {
		return false, nil
	}
	if len(own) == 0 {
		joined.sec.info = scratch(len(f.sec.info))
		copy(joined.sec.info, f.sec.info)
	}
	joined.sec.abbrev = slices.Clone(f.sec.abbrev)
	for u := range joined.each() {
		if err := joined.resolve(u, types); err != nil {
			return false, err
		}
	}
	seen := map[uint64]bool{}
	for _, u := range joined.units {
		if !seen[u.abbrevs] {
			seen[u.abbrevs] = true
			joined.withoutSignatures(u.abbrevs)
		}
	}
	f.sec = joined.sec
	return true, nil
}

// appendTypes puts units of .debug_types behind the first n bytes of .debug_info. Their headers are longer than those of
// other units. The end of each becomes zeros, which between entries stand for nothing.
func (f *File) appendTypes(n int, own []byte) error {
	copy(f.sec.info[n:], own)
	for at := n; at < len(f.sec.info); {
		c := f.cursor(f.sec.info, at)
		u, err := c.header(true)
		if err != nil {
			return err
		}
		if u == nil {
			break // padding
		}
		u.root = uint64(c.pos)
		if u.version != 4 || u.root > u.end || u.typed >= u.end-u.off {
			return errors.New("the header of a type's unit makes no sense")
		}
		clear(f.sec.info[c.pos-8-u.offsetSize() : c.pos])
		if u.kinds, err = f.kinds(u, u.abbrevs); err != nil {
			return err
		}
		f.units = append(f.units, u)
		at = int(u.end)
	}
	return nil
}

// resolve makes references of a unit's signatures. What is declared with a signature stands for the type, too.
func (f *File) resolve(u *unit, types map[uint64]uint64) error {
	stand := map[uint64]uint64{} // where the type of a declaration is
	type use struct {
		at   int
		form form
		of   uint64
	}
	var uses []use
	c := f.cursor(f.sec.info[:u.end], int(u.root))
	for c.pos < len(c.b) {
		entry := uint64(c.pos)
		code := c.uleb()
		if code == 0 {
			continue
		}
		if code >= uint64(len(u.kinds)) || u.kinds[code].tag == 0 {
			return errShort
		}
		for _, s := range u.kinds[code].specs {
			at := c.pos
			switch {
			case s.form == formRefSig8:
				signature := c.number(8)
				to, ok := types[signature]
				if !ok {
					to = nowhere
				}
				if !c.bad {
					c.order.PutUint64(c.b[at:], to-u.off)
				}
				if ok && s.attr == dwarf.AttrSignature {
					stand[entry] = to
				}
			case s.attr == dwarf.AttrType && (s.form == formRef4 || s.form == formRef8):
				to, _ := c.reference(u, s.form)
				uses = append(uses, use{at, s.form, to})
			default:
				c.skip(u, s.form)
			}
		}
		if c.bad {
			return errShort
		}
	}
	for _, use := range uses {
		to, ok := stand[use.of]
		switch {
		case !ok:
		case use.form == formRef4:
			c.order.PutUint32(c.b[use.at:], uint32(to-u.off))
		default:
			c.order.PutUint64(c.b[use.at:], to-u.off)
		}
	}
	return nil
}

// nowhere is the offset of no entry.
const nowhere = 1<<32 - 1

// withoutSignatures has a table of abbreviations say that signatures are references within the unit: from its header, and
// wherever that leads.
func (f *File) withoutSignatures(at uint64) {
	c := f.cursor(f.sec.abbrev, int(min(at, 1<<40)))
	for !c.bad && c.uleb() != 0 {
		c.uleb()
		c.number(1)
		for !c.bad {
			attr, at := c.uleb(), c.pos
			form := c.form()
			if form == formImplicit {
				c.sleb()
			}
			if form == formRefSig8 && c.pos == at+1 {
				c.b[at] = byte(formRef8)
			}
			if attr == 0 && form == 0 {
				break
			}
		}
	}
}

// skipZeros finds a unit's first entry: units that came from .debug_types have zeros before it.
func skipZeros(b []byte, at, end int) int {
	if at > end {
		return at
	}
	return at + len(b[at:end]) - len(bytes.TrimLeft(b[at:end], "\x00"))
}
