// Package traced is what the kernel does not do for a process that is traced. A process has one tracer at a time, and that is us: before
// another member of a family can trace it, it must be let go. And while an ordinary user traces a process, a program that it executes
// gets no rights that the process has not.
//
//	traced.go  the calls by which that is asked for, and who is let go
//	raw.go     where they are made without libc's functions
package traced

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/mem"
	"kprobe/internal/proc"
	"kprobe/internal/rights"
	"kprobe/symbol"
)

// asked is one of libc's functions that is watched.
type asked struct {
	function string
	number   byte // of its system call on x86-64; 0 for those that make another one's
	executes bool
	file     int // which of its arguments names the file that is executed
}

// Programs ask for a tracer by ptrace(request, pid, ...); the others are execve(path, ...), execveat(folder, path, ...) and fexecve(file, ...).
var (
	tracers   = []asked{{function: "ptrace", number: 101}}
	executers = []asked{{function: "execve", number: 59, executes: true}, {function: "execveat", executes: true, file: 1}, {function: "fexecve", executes: true}}
)

// Search remembers what has been looked through, for a process may look each time that a library comes.
type Search struct{ modules []*symbol.Module }

// Places are where those functions are mapped that matter, and where others ask without them; none where nothing has changed since they were
// asked for. follows tells that there is a family.
func (s *Search) Places(space *symbol.Space, set isa.ISA, follows bool) (all []symbol.Loc) {
	modules := space.Modules()
	if slices.Equal(modules, s.modules) {
		return nil
	}
	var watched []asked
	if follows {
		watched = append(watched, tracers...)
	}
	if !rights.Given() {
		watched = append(watched, executers...)
	}
	if len(watched) == 0 {
		return nil
	}
	s.modules = modules
	for _, a := range watched {
		defining := space.Defining(a.function)
		for _, m := range defining {
			locs, err := space.Resolve(symbol.Query{Module: m.Path, Symbol: a.function, Kind: symbol.Func})
			if err == nil {
				all = append(all, locs[0])
			}
		}
		for _, m := range modules {
			// Of those that execute without libc, Go's are what there is.
			if a.number != 0 && !slices.Contains(defining, m) && (!a.executes || m.File != nil && m.File.IsGo()) {
				all = append(all, raw(space, m, set, a.number)...)
			}
		}
	}
	slices.SortFunc(all, func(a, b symbol.Loc) int { return cmp.Compare(a.Addr, b.Addr) })
	return slices.CompactFunc(all, func(a, b symbol.Loc) bool { return a.Addr == b.Addr })
}

// Requests of ptrace(2) that make a tracer.
const (
	requestTraceMe = 0
	requestAttach  = 16
	requestSeize   = 0x4206
)

// Call is a call at one of the Places.
type Call struct {
	asked
	arg func(n int) (uint64, error)
	mem arch.Reader
}

// Asked lets the process go that a call is about, and then has the call made; it answers at once, and false where
// that concerns nobody. A caller that is no member, a vfork child, is let go with its parent, by self.
func (f *Family) Asked(c Call, caller int, self func(why string), then func()) bool {
	who, why := c.concerns(caller)
	if who == 0 {
		return false
	}
	go func() {
		if who != caller {
			f.await(who)
		}
		if !f.letGo(who, why) && who == caller {
			self("has a child in its memory (vfork) that " + why)
		}
		then()
	}()
	return true
}

// concerns tells which process must not be traced when the call is made, and why; 0 for none. caller is the process that calls.
func (c Call) concerns(caller int) (who int, why string) {
	first, err := c.arg(0)
	second, err2 := c.arg(1)
	switch {
	case err != nil || err2 != nil:
		return 0, ""
	case !c.executes:
		if who, ok := subject(first, second, caller); ok {
			return who, "shall be traced by another one"
		}
		return 0, ""
	}
	var f *rights.File
	name := proc.Thread(caller).File(fmt.Sprintf("fd/%d", int32(first)))
	if c.function == "fexecve" {
		f, err = rights.Look(name)
	} else if name, err = mem.Text(c.mem, arch.Addr([]uint64{first, second}[c.file]), longestPath); err == nil {
		f, err = rights.LookAs(caller, name)
	}
	if err != nil {
		return 0, ""
	}
	gains := f.Gains(caller)
	if gains == "" {
		return 0, ""
	}
	return caller, fmt.Sprintf("executes %s, and would not get the rights that this file gives (%s) while an ordinary user traces it", name, gains)
}

// longestPath is PATH_MAX.
const longestPath = 4096

// subject tells which process is to have a tracer when a call of Function is done; false for none. caller is the process
// that calls. One that was started by this very program asks in vain, as under any tracer: we would have to be its debugger.
func subject(request, pid uint64, caller int) (int, bool) {
	switch uint32(request) {
	case requestTraceMe:
		return caller, field(caller, "PPid") != os.Getpid()
	case requestAttach, requestSeize:
		who := field(int(int32(pid)), "Tgid")
		return who, who > 0
	}
	return 0, false
}

// field reads a number of a task's status; 0 where there is none.
func field(tid int, name string) int {
	line, _ := proc.Thread(tid).Status(name)
	n, _ := strconv.Atoi(line)
	return n
}

// Family is the processes that are followed.
type Family struct {
	mu      sync.Mutex
	members map[int]*member
}

type member struct {
	ready chan struct{} // closed when letGo is known
	letGo func(string)  // nil: it is nobody's
}

// With is the family that a process with a session is in: of nil a new one, of which it is the first.
func (f *Family) With(pid int, letGo func(why string)) *Family {
	if f != nil {
		return f // it was expected, and will be a member
	}
	f = &Family{members: make(map[int]*member)}
	f.Expect(pid)
	f.Join(pid, letGo)
	return f
}

// Expect notes a child that is about to be a member: who wants to trace it waits until it is known how to let it go.
func (f *Family) Expect(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.members[pid] = &member{ready: make(chan struct{})}
}

// Join makes a child that was expected a member. Where letGo is nil it is not followed after all, and is no member any more.
func (f *Family) Join(pid int, letGo func(why string)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if m := f.members[pid]; m != nil {
		m.letGo = letGo
		close(m.ready)
		if letGo == nil {
			delete(f.members, pid)
		}
	}
}

// Leave forgets a member: it has ended, or was let go.
func (f *Family) Leave(pid int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.members, pid)
}

// await returns when a process is a member, if it is on its way to that: a child of vfork has executed its program, and its parent
// goes on, before anybody is told.
func (f *Family) await(pid int) {
	for end := time.Now().Add(longestWay); time.Now().Before(end) && field(field(pid, "TracerPid"), "Tgid") == os.Getpid(); time.Sleep(time.Millisecond) {
		f.mu.Lock()
		m := f.members[pid]
		f.mu.Unlock()
		if m != nil {
			return
		}
	}
}

// longestWay is enough on a busy machine. A vfork child that executes nothing stays what it is.
const longestWay = 5 * time.Second

// letGo lets a process go, and returns when it is; false where it is none of the family.
func (f *Family) letGo(pid int, why string) bool {
	f.mu.Lock()
	m := f.members[pid]
	f.mu.Unlock()
	if m == nil {
		return false
	}
	<-m.ready
	if m.letGo != nil {
		m.letGo(why)
	}
	return true
}
