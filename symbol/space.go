package symbol

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"sync"

	"kprobe/arch"
)

// Module is one ELF file as it is mapped in a process: a program, a library, or
// the kernel's vdso. A file that is loaded twice is two modules; so is a file of which
// the program has mapped some code a second time, somewhere else.
type Module struct {
	Path       string    // as mapped: "/usr/lib/x86_64-linux-gnu/libc.so.6", "[vdso]"
	Name       string    // its last element: "libc.so.6"
	Bias       uint64    // address in the process minus virtual address in the file, modulo 2^64
	Start, End arch.Addr // all that the loader reserved for it, .bss included
	File       *File     // nil if it could not be read
	Err        error     // why File is nil
	Mappings   []Mapping // as they were when the module was first seen
	Special    bool      // made by the kernel: "[vdso]"

	in         *Space // that has found it, in the round came, and missed it in the round gone
	came, gone uint64

	// A part of a file that the program has mapped once more, as V8 maps node's built-in
	// functions near the code that it compiles. It has no other place than its mappings.
	partial bool
}

// Range is Start to End.
func (m *Module) Range() arch.Range { return arch.Range{Start: m.Start, End: m.End} }

// InProcess is the address in the process of one in the file.
func (m *Module) InProcess(vaddr uint64) arch.Addr { return arch.Addr(vaddr + m.Bias) }

// InFile is the address in the file of one in the process.
func (m *Module) InFile(at arch.Addr) (vaddr uint64) { return uint64(at) - m.Bias }

// Space is the modules that are mapped in one process now. It is safe for
// concurrent use.
type Space struct {
	// Realpath, if set before use, resolves symbolic links in a path as the
	// target sees it. It lets a module be named by any path that leads to it:
	// /lib/x86_64-linux-gnu/libc.so.6 where maps say /usr/lib/.... "" means
	// that there is no such file.
	Realpath func(path string) string

	open func(Mapping) (*File, error)

	mu      sync.RWMutex
	round   uint64    // of Update
	modules []*Module // sorted by Start, disjoint
	maps    []Mapping // that they were found in
}

// NewSpace makes an empty space. open opens the file behind a mapping; the
// mapping says which (device, inode, path, deleted or not), and for "[vdso]" the
// memory from Start to End is the file. Files are opened once for all their
// mappings and kept as long as one of them is there.
func NewSpace(open func(Mapping) (*File, error)) *Space {
	return &Space{open: open}
}

// fileID identifies a file among mapped ones: no two that are mapped at the same
// time share it.
type fileID struct {
	dev   string
	inode uint64
	path  string // of special mappings, which have neither
}

func idOf(m *Mapping) fileID {
	if m.special() {
		return fileID{path: m.Path}
	}
	return fileID{dev: m.Dev, inode: m.Inode}
}

// opened is a file, or why it cannot be read.
type opened struct {
	file *File
	err  error
}

// Update makes the space what maps says, and returns the modules that came and went. A module that
// stays, which is one of the same file at the same address, stays the same *Module, with its file
// open and its symbols read. The list is the space's from then on.
func (s *Space) Update(maps []Mapping) (added, removed []*Module) {
	s.mu.Lock()
	defer s.mu.Unlock()

	unread := func(m *Module) bool { return m.File == nil }
	if slices.Equal(maps, s.maps) && !slices.ContainsFunc(s.modules, unread) {
		return nil, nil
	}
	s.maps = maps
	s.round++

	// A file is forgotten with its last module: an inode number that is free
	// may come back as another file.
	files := map[fileID]opened{}
	tried := map[fileID]bool{}
	old := map[fileID][]*Module{}
	for _, m := range s.modules {
		id := idOf(&m.Mappings[0])
		old[id] = append(old[id], m)
		files[id] = opened{m.File, m.Err}
	}
	var now []*Module
	for _, found := range groupModules(maps, func(m Mapping) opened {
		id := idOf(&m)
		o, ok := files[id]
		if !ok || o.file == nil && !tried[id] { // a file that failed last time may work now
			o.file, o.err = s.open(m)
			files[id], tried[id] = o, true
		}
		return o
	}) {
		id := idOf(&found.Mappings[0])
		i := slices.IndexFunc(old[id], func(m *Module) bool { return m.sameAs(found) })
		if i < 0 {
			found.in, found.came = s, s.round
			now = append(now, found)
			added = append(added, found)
			continue
		}
		kept := old[id][i]
		old[id] = slices.Delete(old[id], i, i+1)
		now = append(now, kept)
	}
	for _, gone := range old {
		for _, m := range gone {
			m.gone = s.round
		}
		removed = append(removed, gone...)
	}
	byStart := func(a, b *Module) int { return cmp.Compare(a.Start, b.Start) }
	slices.SortFunc(now, byStart)
	slices.SortFunc(removed, byStart)
	s.modules = now
	return added, removed
}

// sameAs tells whether two modules of one file are the same.
func (m *Module) sameAs(o *Module) bool {
	return m.Start == o.Start && m.Bias == o.Bias && (m.File == nil) == (o.File == nil)
}

// Modules are the modules mapped now, sorted by address.
func (s *Space) Modules() []*Module {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return slices.Clone(s.modules)
}

// modulesAfter lists the modules that a place of a module may come back in: all of them, or, where
// the module was unmapped, those that came later. Another copy of its file that stays is not among
// them.
func (s *Space) modulesAfter(was *Module) []*Module {
	s.mu.RLock()
	defer s.mu.RUnlock()
	modules := slices.Clone(s.modules)
	if was == nil || was.in != s {
		return modules
	}
	return slices.DeleteFunc(modules, func(m *Module) bool { return m != was && m.came < was.gone })
}

// ModuleAt is the module whose memory contains an address; nil for none.
func (s *Space) ModuleAt(addr arch.Addr) *Module {
	s.mu.RLock()
	defer s.mu.RUnlock()
	i := sort.Search(len(s.modules), func(i int) bool { return s.modules[i].Start > addr }) - 1
	if i < 0 || !s.modules[i].contains(addr) {
		return nil
	}
	return s.modules[i]
}

// ModulesNamed finds modules by, in this order: the full path ("/usr/bin/nginx",
// or one that leads there: see Realpath), the last element of the path
// ("libc.so.6"), the SONAME, a program's name that leads there ("python3" is a link
// to python3.11), or the last element or SONAME up to its version
// ("libc.so", "libc"). The first that finds anything answers. Several results
// are one file that is loaded several times, or files of one name; nothing is
// found by a name without version that several files share.
func (s *Space) ModulesNamed(name string) []*Module { return s.named(s.Modules(), name) }

func (s *Space) named(modules []*Module, name string) []*Module {
	pick := func(match func(*Module) bool) []*Module {
		var found []*Module
		for _, m := range modules {
			if match(m) {
				found = append(found, m)
			}
		}
		return found
	}
	if found := pick(func(m *Module) bool { return m.Path == name }); found != nil {
		return found
	}
	at := func(path string) []*Module {
		if s.Realpath == nil {
			return nil
		}
		real := s.Realpath(path)
		return pick(func(m *Module) bool { return m.Path == real })
	}
	if strings.HasPrefix(name, "/") {
		return at(name)
	}
	if found := pick(func(m *Module) bool { return m.Name == name }); found != nil {
		return found
	}
	if found := pick(func(m *Module) bool { return m.soname() == name && name != "" }); found != nil {
		return found
	}
	stem := strings.TrimSuffix(name, ".so")
	if stem == "" {
		return nil
	}
	if stemOf(name) == "" { // a library is no program
		for _, folder := range programFolders {
			if found := at(folder + name); found != nil {
				return found
			}
		}
	}
	found := pick(func(m *Module) bool { return stemOf(m.Name) == stem || stemOf(m.soname()) == stem })
	for _, m := range found {
		if m.Path != found[0].Path {
			return nil
		}
	}
	return found
}

// programFolders are the folders where a program without a path is looked for.
var programFolders = []string{"/usr/local/sbin/", "/usr/local/bin/", "/usr/sbin/", "/usr/bin/", "/sbin/", "/bin/"}

func (m *Module) soname() string {
	if m.File == nil {
		return ""
	}
	return m.File.Soname()
}

// stemOf is a library's name without ".so" and version: "libc" of "libc.so.6". It is "" for a file
// that is no library, so that no program is found by half its name.
func stemOf(name string) string {
	if i := strings.Index(name, ".so"); i > 0 && (len(name) == i+3 || name[i+3] == '.') {
		return name[:i]
	}
	return ""
}

// MappingAt finds the mapping that an address is in, among those of a process in order
// of address; nil for none.
func MappingAt(maps []Mapping, addr arch.Addr) *Mapping {
	i, _ := slices.BinarySearchFunc(maps, addr, func(m Mapping, at arch.Addr) int {
		return cmp.Compare(m.End, at+1) // the first that ends behind it
	})
	if i == len(maps) || maps[i].Start > addr {
		return nil
	}
	return &maps[i]
}

// Copies tells whether modules of the same name are mapped beside one, and whether of the same path.
func (s *Space) Copies(of *Module) (name, path bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, m := range s.modules {
		if m != of && m.Name == of.Name && !m.partial && !of.partial && !m.Special {
			name, path = true, path || m.Path == of.Path
		}
	}
	return name, path
}

// Defining lists the modules that have a function of a name themselves.
func (s *Space) Defining(function string) (ms []*Module) {
	isFunc := func(sym Symbol) bool { return sym.Kind == Func && sym.Addr != 0 }
	for _, m := range s.Modules() {
		if m.File != nil && slices.ContainsFunc(m.File.Lookup(function), isFunc) {
			ms = append(ms, m)
		}
	}
	return ms
}
