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

	lack    error // why a file of split debug data could not be read
	lacking int   // of so many units

	mu     sync.Mutex // of what follows, and of data's reader
	units  []*unit
	scan   func() *index
	ranges func() []unitRange
	frames func() frames
	goType func() map[uint64]string
	trees  map[dwarf.Offset]*scope
	bounds map[*unit][]funcRange

	entries map[dwarf.Type]dwarf.Offset // what types come from
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
		if from, err = elf.NewFile(opt.Debug); err != nil {
			return nil, fmt.Errorf("debug file: %w", err)
		}
	}
	f, err := read(from, opt)
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

// sectionOf is what a section of debug data holds, unpacked; nil where there is none.
func sectionOf(e *elf.File, name string) []byte {
	s := e.Section(".debug_" + name)
	if s == nil {
		s = e.Section(".zdebug_" + name)
	}
	return content(s)
}

func content(s *elf.Section) []byte {
	if s == nil || s.Type == elf.SHT_NOBITS || s.Size > maxSection {
		return nil
	}
	b, err := s.Data() // which unpacks zlib's and zstd's
	if err != nil {
		return nil
	}
	return b
}

// maxSection bounds what a compressed section may claim to be.
const maxSection = 4 << 30

func read(e *elf.File, opt Options) (*File, error) {
	if !hasInfo(e) {
		return nil, ErrNone
	}
	get := func(name string) []byte { return sectionOf(e, name) }
	f := &File{Machine: e.Machine, elf: e, trees: map[dwarf.Offset]*scope{}, bounds: map[*unit][]funcRange{},
		entries: map[dwarf.Type]dwarf.Offset{}, classes: map[*dwarf.StructType]*class{}}
	f.sec = sections{
		info: get("info"), abbrev: get("abbrev"), str: get("str"), lineStr: get("line_str"), strOffsets: get("str_offsets"),
		addr: get("addr"), loc: get("loc"), loclists: get("loclists"), frame: get("frame"),
		line: get("line"), ranges: get("ranges"), rnglists: get("rnglists"),
		little: e.ByteOrder.String() == "LittleEndian",
	}
	var err error
	if f.units, err = f.readUnits(); err != nil {
		return nil, fmt.Errorf("debug data: %w", err)
	}
	if opt.Split == nil {
		opt.Split = func(dir, name string) (io.ReaderAt, error) { return nil, fs.ErrNotExist }
	}
	if joined := f.join(opt.Split); len(joined) > 0 {
		if f.units, err = f.readUnits(); err != nil {
			return nil, fmt.Errorf("debug data: %w", err)
		}
		f.rejoin(joined)
	}
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
	if types := get("types"); types != nil {
		if err := data.AddTypes("types", types); err != nil {
			return nil, fmt.Errorf("debug data: %w", err)
		}
	}
	f.data = data
	f.scan = sync.OnceValue(f.readIndex)
	f.ranges = sync.OnceValue(f.readRanges)
	f.frames = sync.OnceValue(f.readFrames)
	f.goType = sync.OnceValue(func() map[uint64]string { return f.readGoTypes(e) })
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
	f, err := read(a, Options{})
	if err != nil {
		return nil
	}
	return f
}
