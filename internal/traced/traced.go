// Package traced is what the processes of a family that is followed ask the kernel for when they want to trace
// each other. A process has one tracer at a time, and that is us: who shall have another one must be let go first.
package traced

import (
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"kprobe/internal/isa"
	"kprobe/internal/proc"
	"kprobe/symbol"
)

// Function is the one of libc that programs ask with, as ptrace(request, pid, ...).
const Function = "ptrace"

// Search remembers what has been looked through, for a process may look each time that a library comes.
type Search struct{ modules []*symbol.Module }

// Places are where it is mapped, and where others ask without it; none where nothing has changed since they were asked for.
func (s *Search) Places(space *symbol.Space, set isa.ISA) (all []symbol.Loc) {
	modules := space.Modules()
	if slices.Equal(modules, s.modules) {
		return nil
	}
	s.modules = modules
	defining := space.Defining(Function)
	for _, m := range defining {
		locs, err := space.Resolve(symbol.Query{Module: m.Path, Symbol: Function, Kind: symbol.Func})
		if err == nil {
			all = append(all, locs[0])
		}
	}
	for _, m := range modules {
		if !slices.Contains(defining, m) {
			all = append(all, raw(space, m, set)...)
		}
	}
	return all
}

// Requests of ptrace(2) that make a tracer.
const (
	requestTraceMe = 0
	requestAttach  = 16
	requestSeize   = 0x4206
)

// Asked lets the process go that a call of Function wants to be traced, and then has the call made; it answers at once, and false where
// that concerns nobody. arg are the call's arguments. A caller that is no member, a vfork child, is let go with its parent, by self.
func (f *Family) Asked(arg func(n int) (uint64, error), caller int, self, then func()) bool {
	request, err := arg(0)
	pid, err2 := arg(1)
	who, ok := subject(request, pid, caller)
	ok = ok && err == nil && err2 == nil
	if !ok {
		return false
	}
	go func() {
		if who != caller {
			f.await(who)
		}
		if !f.letGo(who) && who == caller {
			self()
		}
		then()
	}()
	return true
}

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
	letGo func()        // nil: it is nobody's
}

// With is the family that a process with a session is in: of nil a new one, of which it is the first.
func (f *Family) With(pid int, letGo func()) *Family {
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

// Join makes a child that was expected a member; letGo nil is one that is not followed after all.
func (f *Family) Join(pid int, letGo func()) {
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
func (f *Family) letGo(pid int) bool {
	f.mu.Lock()
	m := f.members[pid]
	f.mu.Unlock()
	if m == nil {
		return false
	}
	<-m.ready
	if m.letGo != nil {
		m.letGo()
	}
	return true
}
