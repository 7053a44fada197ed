//go:build linux

package guardian

import (
	"debug/elf"
	"encoding/binary"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// task is the initialisation of one package, as Go's linker writes it down and its runtime carries
// it out (runtime.initTask; cmd/link/internal/ld/inittask.go): a state, and the functions to call,
// in this order.
type task struct {
	at        uint64 // linked address
	pkg       string
	functions uint32
}

// head is the beginning of one in memory; the functions' addresses follow.
type head struct{ state, functions uint32 }

const headSize = 8

// taskDone is the state of a task that the runtime has nothing to do for. All begin at 0.
const taskDone = 2

func (t task) head() head { return head{functions: t.functions} }

func (h head) put(b []byte) {
	binary.NativeEndian.PutUint32(b, h.state)
	binary.NativeEndian.PutUint32(b[4:], h.functions)
}

// lastModule is the runtime's description of the program, unless plugins were loaded: then it is
// the last one's. So it is read before that could be.
var lastModule = lastmoduledatap

//go:linkname lastmoduledatap runtime.lastmoduledatap
var lastmoduledatap unsafe.Pointer

// tasksOf finds the tasks of this program, in the runtime's description of it. Where they are in
// there differs from one Go to the next, so it is looked for: the list whose every element is a
// task, with functions that are called like a package's initialisation. Errors: EOPNOTSUPP, there
// is none.
func tasksOf(f *elf.File) ([]task, error) {
	m, err := memoryOf(f)
	if err != nil {
		return nil, err
	}
	const most = 128 // words of the description
	at := uint64(uintptr(lastModule))
	for i := range uint64(most) {
		list := m.word(at + i*wordSize)
		n, capacity := m.word(at+(i+1)*wordSize), m.word(at+(i+2)*wordSize)
		if n == 0 || n != capacity || n > maxTasks {
			continue
		}
		if tasks, ok := m.tasks(list, n); ok {
			return tasks, nil
		}
	}
	return nil, unknown("its packages' initialisation is not where it is in Go programs")
}

const (
	wordSize = uint64(unsafe.Sizeof(uintptr(0)))
	maxTasks = 1 << 20
)

// memory reads this process's own, as far as it is the program's: elsewhere is nothing.
type memory struct {
	f    *elf.File
	bias uint64 // from linked addresses to those in memory
}

// memoryOf asks the kernel where it has put the program (getauxval(3), AT_ENTRY).
func memoryOf(f *elf.File) (*memory, error) {
	const atEntry = 9
	all, err := unix.Auxv()
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		if v[0] == atEntry {
			return &memory{f, uint64(v[1]) - f.Entry}, nil
		}
	}
	return nil, unknown("the kernel does not say where it is")
}

// has tells whether n bytes there are the program's.
func (m *memory) has(at, n uint64) bool {
	at -= m.bias
	for _, p := range m.f.Progs {
		if p.Type == elf.PT_LOAD && at >= p.Vaddr && n <= p.Memsz && at-p.Vaddr <= p.Memsz-n {
			return true
		}
	}
	return false
}

func (m *memory) word(at uint64) uint64 {
	if at%wordSize != 0 || !m.has(at, wordSize) {
		return 0
	}
	return uint64(*(*uintptr)(pointer(at)))
}

func (m *memory) head(at uint64) (head, bool) {
	if at%wordSize != 0 || !m.has(at, headSize) {
		return head{}, false
	}
	return *(*head)(pointer(at)), true
}

// pointer is a pointer to memory that the linker has placed: no collector moves it.
func pointer(at uint64) unsafe.Pointer {
	p := uintptr(at)
	return *(*unsafe.Pointer)(unsafe.Pointer(&p))
}

// tasks reads a list of tasks, if it is one.
func (m *memory) tasks(list, n uint64) ([]task, bool) {
	if !m.has(list, n*wordSize) {
		return nil, false
	}
	all := make([]task, 0, n)
	for i := range n {
		at := m.word(list + i*wordSize)
		h, ok := m.head(at)
		if !ok || h.state > taskDone || h.functions == 0 {
			return nil, false
		}
		pkg, ok := initialised(m.word(at + headSize))
		if !ok {
			return nil, false
		}
		all = append(all, task{at - m.bias, pkg, h.functions})
	}
	return all, true
}

// initName matches Go's names of functions that initialise a package: one for its variables, and
// one for each init that it declares.
var initName = regexp.MustCompile(`^([^()]+)\.init(\.\d+)?$`)

// initialised is the package that a function at pc initialises.
func initialised(pc uint64) (string, bool) {
	f := runtime.FuncForPC(uintptr(pc))
	if f == nil || uint64(f.Entry()) != pc {
		return "", false
	}
	m := initName.FindStringSubmatch(f.Name())
	if m == nil {
		return "", false
	}
	// Dots in the last element of a path are escaped, so that the one before a name is the first.
	return strings.ReplaceAll(m[1], "%2e", "."), true
}

// foreignModules are the modules of this program that are not ours.
var foreignModules = sync.OnceValue(func() (all []string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return nil
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != "" {
			all = append(all, m.Path)
		}
	}
	return all
})
