package point

import (
	"path"
	"slices"
	"strings"

	"kprobe/script/calls"
	"kprobe/script/machine"
	"kprobe/script/syntax"
)

// Tracepoints of system calls. In a process: probes at its system call instructions, and behind them. In a kernel:
// probes on the functions that do them, and at their returns.

// SystemCall is what such a function's name begins with; its one argument is a const struct pt_regs *.
// Source: Linux, arch/x86/include/asm/syscall_wrapper.h.
const SystemCall = "__x64_sys_"

// Syscall says which system calls a tracepoint is about.
type Syscall struct {
	Exit    bool  // behind the call
	Kernel  bool  // of all processes of a kernel
	Numbers []int // of the calls; nil for all
	Glob    bool  // the script has named a pattern: what probe tells depends on the call
}

// Wants tells whether the tracepoint is about a call.
func (s *Syscall) Wants(number int) bool {
	return s.Numbers == nil || slices.Contains(s.Numbers, number)
}

// Name is the name of the attach point at a call; "" for a number that has no name.
func (s *Syscall) Name(number int) string {
	if name := calls.Name(number); name != "" {
		return "tracepoint:syscalls:" + s.prefix() + name
	}
	return ""
}

func (s *Syscall) prefix() string {
	if s.Exit {
		return "sys_exit_"
	}
	return "sys_enter_"
}

// MaxSyscall is more than any system call's number.
const MaxSyscall = 512

// callRegs have a call's arguments.
var callRegs = []string{"rdi", "rsi", "rdx", "r10", "r8", "r9"}

// enterParams are those of a call's own tracepoint.
func enterParams(call calls.Call) []Param {
	all := []Param{{Name: "__syscall_nr", C: "int", Call: true}}
	for i, p := range call.Params {
		all = append(all, Param{Name: p.Name, C: p.C, Regs: callRegs[i : i+1]})
	}
	return all
}

// Params of the tracepoints that are alike for all calls.
var (
	exitParams    = []Param{{Name: "__syscall_nr", C: "int", Call: true}, {Name: "ret", C: "long", Regs: []string{"rax"}}}
	rawExitParams = []Param{{Name: "id", C: "long", Call: true}, {Name: "ret", C: "long", Regs: []string{"rax"}}}
	rawParams     = []Param{{Name: "id", C: "long", Call: true}, {Name: "args", C: "unsigned long[6]", Regs: callRegs}}
)

// Tracepoint is one that can be listed.
type Tracepoint struct {
	Name   string // "tracepoint:syscalls:sys_enter_openat"
	Params []Param
}

// Tracepoints are those that a pattern of category and name matches.
func Tracepoints(category, name string) (all []Tracepoint) {
	add := func(cat, event string, params []Param) {
		okC, _ := path.Match(category, cat)
		okN, _ := path.Match(name, event)
		if okC && okN {
			all = append(all, Tracepoint{"tracepoint:" + cat + ":" + event, params})
		}
	}
	add("raw_syscalls", "sys_enter", rawParams)
	add("raw_syscalls", "sys_exit", rawExitParams)
	for _, call := range calls.All() {
		add("syscalls", "sys_enter_"+call.Name, enterParams(call))
		add("syscalls", "sys_exit_"+call.Name, exitParams)
	}
	slices.SortFunc(all, func(a, b Tracepoint) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// tracepoint reads CATEGORY:EVENT.
func (r *Reader) tracepoint(at syntax.Point, pt *Point, args []string) *Point {
	if len(args) != 2 || args[0] == "" || args[1] == "" {
		r.Errorf(at, "tracepoint probe type requires 2 arguments, found %d", len(args))
		return nil
	}
	if r.Machine != machine.AMD64 {
		r.Errorf(at, "tracepoint probes are on programs of %s, and this one is of %s", machine.AMD64.Name, r.Machine.Name)
		return nil
	}
	pt.Target, pt.Function = args[0], args[1]
	if (r.Kernel || r.Program == "") && args[0] != "syscalls" && args[0] != "raw_syscalls" {
		return r.event(at, pt)
	}
	found := Tracepoints(args[0], args[1])
	if len(found) == 0 {
		if args[0] != "syscalls" && args[0] != "raw_syscalls" {
			r.Errorf(at, "tracepoint %s:%s: a process has those of its system calls: syscalls and raw_syscalls", args[0], args[1])
		} else {
			r.noProbes(at, "there is no such system call (-l lists them)")
		}
		return nil
	}
	// Of a pattern's calls those that are entered and left are two points: they have their own places.
	var points []*Point
	for _, exit := range []bool{false, true} {
		s := &Syscall{Exit: exit, Kernel: r.Kernel, Glob: HasGlob(args[1]) || HasGlob(args[0])}
		var params []Param
		n, raw := 0, false
		for _, f := range found {
			if strings.Contains(f.Name, ":sys_exit") != exit {
				continue
			}
			n++
			params = f.Params
			if strings.HasPrefix(f.Name, "tracepoint:raw_syscalls") {
				raw = true
			} else {
				s.Numbers = append(s.Numbers, numberOf(f.Name))
			}
		}
		if n == 0 {
			continue
		}
		if raw {
			s.Numbers, s.Glob = nil, false
		}
		if n > 1 && !exit {
			params = params[:0:0] // they differ
		}
		one := *pt
		one.Syscall, one.Params = s, params
		points = append(points, &one)
	}
	r.more = append(r.more, points[1:]...)
	return points[0]
}

// Each are the points of a pattern's calls, each with its own parameters; the point itself where it has one set of them.
func (p *Point) Each() (all []*Point) {
	s := p.Syscall
	if s == nil || s.Exit || len(s.Numbers) < 2 {
		return []*Point{p}
	}
	for _, call := range calls.All() {
		if !s.Wants(call.Number) {
			continue
		}
		one := *p
		one.Syscall = &Syscall{Kernel: s.Kernel, Numbers: []int{call.Number}}
		one.Text, one.Params = s.Name(call.Number), enterParams(call)
		all = append(all, &one)
	}
	return all
}

// numberOf is the number of a tracepoint's call.
func numberOf(name string) int {
	name = name[strings.LastIndexByte(name, ':')+1:]
	return calls.Number(strings.TrimPrefix(strings.TrimPrefix(name, "sys_enter_"), "sys_exit_"))
}
