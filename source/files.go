package source

import (
	"debug/dwarf"
	"path"
	"strings"
)

// Units of one program name the same file in different ways: by the folder that the compiler ran in, or by that in which the
// program was linked. Each file gets one name here.

// lineReader reads a unit's line table; nil where there is none.
func (f *File) lineReader(u *unit) *dwarf.LineReader {
	r := f.plainReader(u)
	if r != nil {
		m := f.moved()
		for _, file := range r.Files() {
			if file != nil {
				file.Name = m.name(file.Name)
			}
		}
	}
	return r
}

// plainReader is lineReader with files as their units name them.
func (f *File) plainReader(u *unit) *dwarf.LineReader {
	e := f.linked(u)
	if e == nil || e.Tag != dwarf.TagCompileUnit && e.Tag != dwarf.TagSkeletonUnit {
		return nil
	}
	r, err := f.data.LineReader(e)
	if err != nil || r == nil { // the unit may name no table, as those of Go without a function do
		return nil
	}
	dir := f.ofUnit(u, dwarf.AttrCompDir)
	names := f.lineNames(u, e)
	for i, file := range r.Files() {
		switch {
		case file == nil:
		case i < len(names): // debug/dwarf puts folders before full names, too, and does so once where it takes two
			file.Name = fullName(dir, names[i])
		case path.IsAbs(dir):
			file.Name = fullName(dir, file.Name)
		default:
			file.Name = path.Clean(file.Name)
		}
	}
	return r
}

// lineNames are the names in a line table of version 5, full or from where the compiler ran on; none of others.
func (f *File) lineNames(u *unit, e *dwarf.Entry) (names []string) {
	at, ok := e.Val(dwarf.AttrStmtList).(int64)
	if !ok {
		return nil
	}
	c := f.cursor(f.sec.line, int(at))
	if c.number(4) == 0xffffffff {
		c.take(8)
	}
	if c.number(2) != 5 {
		return nil
	}
	c.take(2)
	c.take(u.offsetSize())
	const fixed = 5 // what stands before the number of opcodes
	c.take(fixed)
	c.take(int(c.number(1)) - 1)
	var dirs []string
	for name, dir := range f.lineEntries(&c, u) {
		switch {
		case len(dirs) == 0: // where the compiler ran
			name = ""
		case dir > 0 && dir < uint64(len(dirs)):
			name = joined(dirs[dir], name)
		}
		dirs = append(dirs, name)
	}
	for name, dir := range f.lineEntries(&c, u) {
		if dir >= uint64(len(dirs)) {
			return nil
		}
		names = append(names, joined(dirs[dir], name))
	}
	if c.bad {
		return nil
	}
	return names
}

// lineEntries reads one of the two lists of a line table's header: names, with the numbers of their folders.
func (f *File) lineEntries(c *cursor, u *unit) func(func(string, uint64) bool) {
	return func(yield func(string, uint64) bool) {
		const ofPath, ofFolder = 1, 2
		type field struct {
			kind uint64
			form form
		}
		fields := make([]field, c.number(1))
		for i := range fields {
			fields[i] = field{c.uleb(), c.form()}
		}
		for n := c.uleb(); n > 0 && !c.bad; n-- {
			name, dir := "", uint64(0)
			for _, fd := range fields {
				switch {
				case fd.kind == ofPath && fd.form == formString:
					name = string(c.cstring())
				case fd.kind == ofPath:
					name = f.name(c.text(f, u, fd.form))
				case fd.kind == ofFolder:
					dir = c.constant(u, spec{form: fd.form})
				default:
					c.skip(u, fd.form)
				}
			}
			if c.bad || !yield(name, dir) {
				return
			}
		}
	}
}

func joined(dir, name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join(dir, name)
}

// fullName is the name of a source file that a unit names, which was compiled in a folder.
func fullName(dir, name string) string { return path.Clean(joined(dir, name)) }

// files are the source files of a unit, by their numbers.
func (f *File) files(u *unit) []*dwarf.LineFile {
	f.mu.Lock()
	files, ok := f.fileTables.get(u)
	f.mu.Unlock()
	if ok {
		return files
	}
	if r := f.lineReader(u); r != nil {
		files = r.Files()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fileTables.put(u, files)
	return files
}

// ofUnit is a text that a unit has of itself; "" where it has none.
func (f *File) ofUnit(u *unit, attr dwarf.Attr) string {
	for _, root := range []*dwarf.Entry{f.root(u), f.linked(u)} {
		if root != nil {
			if text, ok := root.Val(attr).(string); ok {
				return text
			}
		}
	}
	return ""
}

// fileIs tells whether a file of the debug data is what a place names: its whole path,
// or the end of it.
func fileIs(full, want string) bool {
	full, want = path.Clean(full), path.Clean(want)
	return full == want || strings.HasSuffix(full, want) && full[len(full)-len(want)-1] == '/'
}

// move is a folder that units have two names for: most of them from, those that were made at the link to.
type move struct{ from, to string }

// name turns a file's name into that which units made at the link have for it.
func (m move) name(name string) string {
	switch rest, ok := strings.CutPrefix(name, m.from+"/"); {
	case m.to == "":
	case ok:
		return path.Join(m.to, rest)
	case m.from == "." && !path.IsAbs(name):
		return path.Join(m.to, name)
	}
	return name
}

// linkTime is the name of a unit that GCC makes when it links.
const linkTime = "<artificial>"

// readMove finds how the units that were made when the program was linked call the folder of the others. GCC's option
// -ffile-prefix-map, with which distributions hide where they have built, does not hold for the former before GCC 14.
func (f *File) readMove() move {
	const most = 64 // units of each sort that are looked at
	at, mains, files, seen := "", []string{}, map[string]bool{}, 0
	var dirs []string
	for u := range f.each() {
		dir, name := path.Clean(f.ofUnit(u, dwarf.AttrCompDir)), f.ofUnit(u, dwarf.AttrName)
		switch {
		case name == linkTime && seen < most:
			seen, at = seen+1, dir
			if r := f.plainReader(u); r != nil {
				for _, file := range r.Files() {
					if file != nil {
						files[file.Name] = true
					}
				}
			}
		case name != linkTime && len(mains) < most:
			mains, dirs = append(mains, fullName(dir, name)), append(dirs, dir)
		}
		if seen == most && len(mains) == most || seen == 0 && len(mains) == most {
			break
		}
	}
	for i := range dirs {
		m := apart(dirs[i], at)
		if m.from == m.to || seen == 0 {
			continue
		}
		for _, main := range mains {
			if name := m.name(main); name != main && files[name] && !files[main] {
				return m
			}
		}
	}
	return move{}
}

// apart strips two folders of the end that they have in common.
func apart(from, to string) move {
	for path.Base(from) == path.Base(to) && from != to && from != "." && from != "/" {
		from, to = path.Dir(from), path.Dir(to)
	}
	return move{from, to}
}
