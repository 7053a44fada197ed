package source

import (
	"debug/dwarf"
	"errors"
)

// typ is the type of an entry, as debug/dwarf reads it. Of base types it knows those of C; characters of Unicode (Rust's
// char, C++'s char32_t) become the numbers that they are. f.mu is held.
func (f *File) typ(off dwarf.Offset) (dwarf.Type, error) {
	for {
		t, err := f.data.Type(off)
		var bad dwarf.DecodeError
		if err == nil || !errors.As(err, &bad) || !f.unicodeAsNumber(bad.Offset) {
			return t, err
		}
	}
}

const encUTF, encUnsigned = 0x10, 0x07 // DW_ATE_UTF, DW_ATE_unsigned

// unicodeAsNumber makes an entry that is a type of such characters one of numbers, in what we hold of the debug data; false
// where it is none. debug/dwarf keeps no type that it could not read, and reads the entry again. Of a mapped section our own
// copy of the page is written to; when the page has been given back, the entry is as it was, and this is done once more.
func (f *File) unicodeAsNumber(off dwarf.Offset) bool {
	u := f.unitAt(uint64(off))
	if u == nil {
		return false
	}
	c := f.cursor(f.sec.info[:u.end], int(off))
	code := c.uleb()
	if c.bad || code >= uint64(len(u.kinds)) || u.kinds[code].tag != dwarf.TagBaseType {
		return false
	}
	for _, s := range u.kinds[code].specs {
		at := c.pos
		if s.attr == dwarf.AttrEncoding && s.form == formData1 && at < len(c.b) && c.b[at] == encUTF {
			c.b[at] = encUnsigned
			return true
		}
		c.skip(u, s.form)
	}
	return false
}
