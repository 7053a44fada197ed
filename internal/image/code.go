package image

import (
	"slices"

	"kprobe/arch"
	"kprobe/internal/returns"
	"kprobe/symbol"
	"kprobe/target"
)

// codes has the places where code is mapped, for any goroutine at any time.
type codes struct {
	files []arch.Range // of files, when the image was last looked at
	all   []arch.Range // all that may be executed, when that was last asked for
}

// Files are the ranges where code of files is mapped, in order of address, as of the last Look. Any
// goroutine may ask at any time.
func (im *Image) Files() []arch.Range {
	if c := im.codes.Load(); c != nil {
		return c.files
	}
	return nil
}

// lookAtCode is a part of Look.
func (im *Image) lookAtCode() {
	_, kernel := im.t.(target.Machine)
	of := func(m symbol.Mapping) bool { return m.Exec && (kernel || m.Inode != 0 || m.Path == "[vdso]") }
	im.codes.Store(&codes{files: ranges(im.maps, of)})
}

func ranges(maps []symbol.Mapping, of func(symbol.Mapping) bool) (rs []arch.Range) {
	for _, m := range maps {
		if of(m) {
			rs = append(rs, m.Range())
		}
	}
	return rs
}

// Origin tells where calls come from. It may be asked at any time; that of a program holds until
// the program executes another.
func (im *Image) Origin() *returns.Origin {
	in := func(rs []arch.Range, a arch.Addr) bool {
		return slices.ContainsFunc(rs, func(r arch.Range) bool { return r.Contains(a) })
	}
	o := &returns.Origin{ISA: im.ISA, Read: im.own.ReadAt}
	o.File = func(a arch.Addr) bool { return in(im.Files(), a) }
	o.Code = func(a arch.Addr) bool {
		c := im.codes.Load()
		if c == nil || in(c.files, a) || in(c.all, a) {
			return true
		}
		// Code that was made since; or none, which is seldom: so the mappings are read then.
		maps, err := im.t.Maps()
		if err != nil {
			return false
		}
		all := ranges(maps, func(m symbol.Mapping) bool { return m.Exec })
		im.codes.CompareAndSwap(c, &codes{c.files, all})
		return in(all, a)
	}
	if _, kernel := im.t.(target.Machine); kernel {
		o.Code = func(arch.Addr) bool { return true } // code that a kernel compiles as it runs (BPF) is in no list
	}
	return o
}
