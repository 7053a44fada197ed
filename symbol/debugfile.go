package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/ulikunitz/xz"
)

// Distributions strip the files that they ship and put the symbols elsewhere: Debian in files found
// by build ID or debug link, Fedora (also) as an xz-compressed ELF file in section .gnu_debugdata,
// with the functions that .dynsym lacks.

// findDebug opens the separate debug file, else the MiniDebugInfo.
func (f *File) findDebug() (symbolFile, Source) {
	if d := f.openDebug(); d != nil {
		return symbolFile{d, f}, DebugFile
	}
	if d := f.openMiniDebug(); d != nil {
		return symbolFile{d, f}, MiniDebug
	}
	return symbolFile{}, ""
}

// Reader reads the file.
func (f *File) Reader() io.ReaderAt { return f.r }

// DebugReader reads its separate debug file; nil where there is none.
func (f *File) DebugReader() io.ReaderAt {
	if d := f.openDebug(); d != nil {
		return d.r
	}
	return nil
}

func (f *File) openDebug() *File {
	if f.opt.Debug == nil {
		return nil
	}
	id := f.buildID()
	link, crc := f.debugLink()
	if id == nil && link == "" {
		return nil
	}
	if link != "" {
		link = filepath.Join(filepath.Dir(f.opt.Path), link)
	}
	r, err := f.opt.Debug(id, link, crc)
	if err != nil || r == nil {
		return nil
	}
	d, err := Open(r, nil)
	if err != nil || d.Machine() != f.Machine() || d.Class() != f.Class() {
		return nil
	}
	return d
}

// debugLink reads .gnu_debuglink: a file name, padded to four bytes, and the
// CRC-32 of that file.
func (f *File) debugLink() (name string, crc uint32) {
	b, err := f.sectionData(f.section(".gnu_debuglink"))
	if err != nil {
		return "", 0
	}
	i := bytes.IndexByte(b, 0)
	at := (i + 4) &^ 3
	if i <= 0 || at+4 > len(b) || bytes.IndexByte(b[:i], '/') >= 0 {
		return "", 0 // a name with a slash could lead anywhere
	}
	return string(b[:i]), f.elf.ByteOrder.Uint32(b[at:])
}

// maxMiniDebug bounds what .gnu_debugdata may unpack to. That of a large
// program is a few megabytes.
const maxMiniDebug = 256 << 20

func (f *File) openMiniDebug() *File {
	packed, err := f.sectionData(f.section(".gnu_debugdata"))
	if err != nil || !sensibleXZ(packed) {
		return nil
	}
	x, err := xz.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil
	}
	plain, err := io.ReadAll(io.LimitReader(x, maxMiniDebug))
	if err != nil {
		return nil
	}
	d, err := Open(bytes.NewReader(plain), nil)
	if err != nil || d.Machine() != f.Machine() || d.Class() != f.Class() {
		return nil
	}
	return d
}

// sensibleXZ looks at the dictionary size in the first block's header, because
// the reader allocates it before it has seen any data. xz -9 uses 64 MiB.
func sensibleXZ(b []byte) bool {
	// Stream header (12 bytes), block header size, flags, then, with neither
	// size field, the LZMA2 filter: ID 0x21, one property byte.
	const maxDict = 28 // 64 MiB: (2 | bit 0) << (bits/2 + 11)
	if len(b) < 12+5 {
		return false
	}
	block := b[12:]
	at := 2
	for _, present := range []byte{0x40, 0x80} { // compressed, uncompressed size
		if block[1]&present != 0 {
			for at < len(block) && block[at]&0x80 != 0 {
				at++
			}
			at++
		}
	}
	return at+2 < len(block) && block[1]&3 == 0 && block[at] == 0x21 && block[at+1] == 1 && block[at+2] <= maxDict
}

// debugRoot is the folder where distributions install debug files.
const debugRoot = "/usr/lib/debug"

// MoreDebug are debug files, and folders that have such files as /usr/lib/debug has them, or by
// their names alone. A program that is given them sets it before it opens files.
var MoreDebug []string

var errNoDebugFile = errors.New("no debug file")

// DebugFinder finds debug files below root, the root directory of the target's
// file system ("" or "/": our own), where GDB looks for them:
//
//	/usr/lib/debug/.build-id/xx/yyyy.debug    by build ID
//	DIR/NAME, DIR/.debug/NAME, /usr/lib/debug/DIR/NAME    by debug link
//
// A file counts if its build ID is the same or, where there is none, if it has
// the CRC of the debug link. DIR is relative to root as well. The result is for
// Options.Debug. MoreDebug is looked at first.
func DebugFinder(root string) func(buildID []byte, debuglink string, crc uint32) (io.ReaderAt, error) {
	return func(buildID []byte, debuglink string, crc uint32) (io.ReaderAt, error) {
		var paths []string
		dir, name := filepath.Split(debuglink)
		byID := ""
		if len(buildID) > 1 {
			id := hex.EncodeToString(buildID)
			byID = filepath.Join(".build-id", id[:2], id[2:]+".debug")
		}
		for _, more := range MoreDebug {
			paths = append(paths, more, filepath.Join(more, byID), filepath.Join(more, dir, name), filepath.Join(more, name))
		}
		if byID != "" {
			paths = append(paths, filepath.Join(root, debugRoot, byID))
		}
		if debuglink != "" {
			paths = append(paths,
				filepath.Join(root, dir, name),
				filepath.Join(root, dir, ".debug", name),
				filepath.Join(root, debugRoot, dir, name))
			// With /lib a link to /usr/lib, the package may have used either.
			if rest, ok := strings.CutPrefix(dir, "/usr/"); ok {
				paths = append(paths, filepath.Join(root, debugRoot, rest, name))
			}
		}
		for _, path := range paths {
			if r, ok := openDebugFile(path, buildID, crc); ok {
				return r, nil
			}
		}
		return nil, errNoDebugFile
	}
}

// openDebugFile opens path if it is the debug file asked for. The caller's reader keeps it open; it
// is closed when nothing refers to it any more.
func openDebugFile(path string, buildID []byte, crc uint32) (io.ReaderAt, bool) {
	// Opening something else than a regular file could wait for ever.
	if fi, err := os.Stat(path); err != nil || !fi.Mode().IsRegular() {
		return nil, false
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, false
	}
	if isDebugFile(file, buildID, crc) {
		return file, true
	}
	file.Close()
	return nil, false
}

func isDebugFile(file *os.File, buildID []byte, crc uint32) bool {
	d, err := Open(file, nil)
	if err != nil {
		return false
	}
	// A debug link may name the stripped file itself, in its own directory.
	hasSymbols := false
	for _, s := range d.elf.Sections {
		hasSymbols = hasSymbols || s.Type == elf.SHT_SYMTAB
	}
	if !hasSymbols {
		return false
	}
	if id := d.buildID(); id != nil && buildID != nil {
		return bytes.Equal(id, buildID)
	}
	sum := crc32.NewIEEE()
	if _, err := io.Copy(sum, io.NewSectionReader(file, 0, 1<<62)); err != nil {
		return false
	}
	return sum.Sum32() == crc
}
