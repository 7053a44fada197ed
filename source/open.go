package source

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// ErrNone says that a file has no debug data.
var ErrNone = errors.New("it has no debug data (compile with -g, or install its debug symbols)")

// File is the debug data of one ELF file.
type File struct {
	Machine elf.Machine

	elf  *elf.File // what is loaded: its unwind tables hold
	data *dwarf.Data
	sec  sections
	alt  *File // what dwz moved to a file of its own

	shared bool // it is such a file: entries of others refer to its own

	lack    error // why a file of split debug data could not be read
	lacking int   // of so many units

	mu     sync.Mutex // of what follows, and of data's reader
	units  []*unit
	scan   func() *index
	types  func() *index
	ranges func() []unitRange
	frames func() frames
	moved  func() move
	goType func() map[uint64]string
	parts  func() map[uint64]bool // the rests of split functions, by address
	trees  map[dwarf.Offset]*scope
	bounds map[*unit][]funcRange

	tables     recent[table]
	fileTables recent[[]*dwarf.LineFile]

	entries map[dwarf.Type]dwarf.Offset // what types come from
	signs   map[*dwarf.EnumType]bool    // whether they have a sign
	classes map[*dwarf.StructType]*class
}

// sections are those that are read here, besides what debug/dwarf reads.
type sections struct {
	info, abbrev, str, lineStr, strOffsets []byte
	addr, loc, loclists                    []byte
	line, ranges, rnglists                 []byte
	frame                                  []byte // .debug_frame
	little                                 bool
}

// Options tell where else debug data may be.
type Options struct {
	// Debug is the separate debug file; nil for none.
	Debug io.ReaderAt

	// Alternate opens what .gnu_debugaltlink names, of the build ID; nil: it is not found.
	Alternate func(name string, buildID []byte) (io.ReaderAt, error)

	// Split opens a .dwo file, by the name and the directory that the compilation gave; of no name, the package of
	// them all (.dwp). nil: there are none. What it gives is closed, if it can be.
	Split func(dir, name string) (io.ReaderAt, error)
}

// Open reads the sections of a file's debug data: of the file itself, or of the separate
// debug file where that is in Options. The readers must stay readable.
//
// Errors: ErrNone, wrapped; else what is wrong with the data.
func Open(r io.ReaderAt, opt Options) (*File, error) {
	main, err := elf.NewFile(r)
	if err != nil {
		return nil, err
	}
	from := main
	if !hasInfo(main) && opt.Debug != nil {
		r = opt.Debug
		if from, err = elf.NewFile(r); err != nil {
			return nil, fmt.Errorf("debug file: %w", err)
		}
	}
	f, err := read(from, r, opt)
	if err != nil {
		return nil, err
	}
	f.elf = main
	return f, nil
}

func hasInfo(e *elf.File) bool {
	for _, s := range e.Sections {
		if (s.Name == ".debug_info" || s.Name == ".zdebug_info") && s.Type != elf.SHT_NOBITS && s.Size > 0 {
			return true
		}
	}
	return false
}

// read reads the debug data of e, which r is.
func read(e *elf.File, r io.ReaderAt, opt Options) (*File, error) {
	if !hasInfo(e) {
		return nil, ErrNone
	}
	s := readSections(e, r, "info", "abbrev", "str", "line_str", "str_offsets", "addr", "loc", "loclists", "frame", "line", "ranges", "rnglists", "types")
	f := &File{Machine: e.Machine, elf: e, trees: map[dwarf.Offset]*scope{}, bounds: map[*unit][]funcRange{},
		entries: map[dwarf.Type]dwarf.Offset{}, signs: map[*dwarf.EnumType]bool{}, classes: map[*dwarf.StructType]*class{}}
	f.sec = sections{
		info: s["info"], abbrev: s["abbrev"], str: s["str"], lineStr: s["line_str"], strOffsets: s["str_offsets"],
		addr: s["addr"], loc: s["loc"], loclists: s["loclists"], frame: s["frame"],
		line: s["line"], ranges: s["ranges"], rnglists: s["rnglists"],
		little: e.ByteOrder.String() == "LittleEndian",
	}
	var err error
	if f.units, err = f.readUnits(); err != nil {
		return nil, fmt.Errorf("debug data: %w", err)
	}
	if opt.Split == nil {
		opt.Split = func(dir, name string) (io.ReaderAt, error) { return nil, fs.ErrNotExist }
	}
	joined, types := f.join(opt.Split)
	if len(joined) > 0 {
		if f.units, err = f.readUnits(); err != nil {
			return nil, fmt.Errorf("debug data: %w", err)
		}
	}
	some, err := f.joinTypes(s["types"], types)
	if err == nil && some {
		f.units, err = f.readUnits()
	}
	if err != nil {
		return nil, fmt.Errorf("debug data: %w", err)
	}
	f.rejoin(joined)
	data, err := dwarf.New(f.sec.abbrev, nil, nil, f.sec.info, f.sec.line, nil, f.sec.ranges, f.sec.str)
	if err != nil {
		return nil, fmt.Errorf("debug data: %w", err)
	}
	for name, b := range map[string][]byte{"addr": f.sec.addr, "line_str": f.sec.lineStr, "rnglists": f.sec.rnglists, "str_offsets": f.sec.strOffsets} {
		if b == nil {
			continue
		}
		if err := data.AddSection(".debug_"+name, b); err != nil {
			return nil, fmt.Errorf("debug data: %w", err)
		}
	}
	forget(f.sec.info)
	f.data = data
	f.scan = sync.OnceValue(f.readIndex)
	f.types = sync.OnceValue(func() *index { return f.readChunks(keepTypes) })
	f.ranges = sync.OnceValue(f.readRanges)
	f.frames = sync.OnceValue(f.readFrames)
	f.moved = sync.OnceValue(f.readMove)
	f.goType = sync.OnceValue(func() map[uint64]string { return f.readGoTypes(e) })
	f.parts = sync.OnceValue(func() map[uint64]bool { return readParts(e) })
	f.alt = alternate(e, opt)
	return f, nil
}

// alternate opens the file that dwz has put what several files share in.
func alternate(e *elf.File, opt Options) *File {
	s := e.Section(".gnu_debugaltlink")
	if s == nil || opt.Alternate == nil || s.Size > 1<<16 {
		return nil
	}
	b, err := s.Data()
	i := bytes.IndexByte(b, 0)
	if err != nil || i < 0 {
		return nil
	}
	r, err := opt.Alternate(string(b[:i]), b[i+1:])
	if err != nil || r == nil {
		return nil
	}
	a, err := elf.NewFile(r)
	if err != nil {
		return nil
	}
	f, err := read(a, r, Options{})
	if err != nil {
		return nil
	}
	f.shared = true
	return f
}
