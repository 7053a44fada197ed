package script

import (
	"bytes"
	"errors"
	"fmt"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/isa"
	"kprobe/internal/isa/amd64"
	"kprobe/script/calls"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/symbol"
)

// System call instructions in the files that a process has mapped. What is made at run time has no file, and is
// not seen.

// callSite is one of them.
type callSite struct {
	addr   arch.Addr
	number int       // of the call, where the code says it; else -1
	behind arch.Addr // the next instruction; 0 where the function has none there
}

// call is a probe at an address of a site.
func (t *target) call(at arch.Addr, cookie uint64, program *kprobe.Program) *kprobe.Kprobe {
	loc, addr := located(t.session.Symbols(), at)
	return &kprobe.Kprobe{Loc: loc, Addr: addr, Cookie: cookie, Program: program, Optional: true, Patient: loc.Module != nil}
}

// findCallSites finds those of all files that were not there yet.
func (t *target) findCallSites() error {
	if a := t.session.Target().Arch(); a.Name != arch.AMD64.Name {
		return fmt.Errorf("tracepoints of system calls are those of programs of %s, and this one is of %s", arch.AMD64.Name, a.Name)
	}
	for _, m := range t.session.Symbols().Modules() {
		if m.File == nil || t.read[fileOf(m)] {
			continue
		}
		if t.read == nil {
			t.read = map[file]bool{}
		}
		t.read[fileOf(m)] = true
		for _, mapping := range m.Mappings {
			if !mapping.Exec || mapping.Path == "" || mapping.Path[0] != '/' {
				continue
			}
			code := make([]byte, mapping.End-mapping.Start)
			if err := t.session.ReadMem(mapping.Start, code); err != nil {
				continue // a file that was cut short
			}
			t.sites = append(t.sites, sitesIn(t.session.Symbols(), mapping.Start, code)...)
		}
	}
	return nil
}

// sitesIn finds those of a piece of code: only what is an instruction when its function is read from its start.
func sitesIn(space *symbol.Space, base arch.Addr, code []byte) (all []callSite) {
	var end arch.Addr // of the function that was read last
	for from := 0; ; {
		i := bytes.Index(code[from:], []byte{0x0f, 0x05})
		if i < 0 {
			return all
		}
		at := base + arch.Addr(from+i)
		from += i + 1
		if at < end {
			continue
		}
		loc, ok := space.At(at)
		if !ok || loc.Size == 0 || loc.Start() < base || loc.End() > base+arch.Addr(len(code)) {
			continue
		}
		end = loc.End()
		all = append(all, sitesOf(code[loc.Start()-base:loc.End()-base], loc.Start())...)
	}
}

// makesThread are clone, fork, vfork and clone3: what is behind such a call, the new thread runs too.
var makesThread = map[int]bool{56: true, 57: true, 58: true, 435: true}

// insn is one instruction of a function.
type insn struct {
	isa.Insn
	addr  arch.Addr
	code  []byte
	joins bool // others may lead here
}

// sitesOf reads a function.
func sitesOf(code []byte, start arch.Addr) (all []callSite) {
	machine := amd64.New(arch.AMD64)
	var insns []insn
	index := map[arch.Addr]int{}
	computed := false // jumps whose targets are not known
	for off := 0; off < len(code); {
		at := start + arch.Addr(off)
		in, err := machine.Decode(code[off:], at)
		if err != nil {
			break // data, or what the decoder does not know: nothing behind it is sure
		}
		index[at] = len(insns)
		insns = append(insns, insn{Insn: in, addr: at, code: code[off : off+in.Len]})
		computed = computed || in.Flow == isa.IndirectJump
		off += in.Len
	}
	for _, in := range insns {
		if in.Flow == isa.Jump || in.Flow == isa.CondJump {
			if to, ok := index[in.Target]; ok {
				insns[to].joins = true
			}
		}
	}
	born := false // a call above makes a thread, which goes on here with nothing of its own yet
	for i, in := range insns {
		if born || in.Flow != isa.Syscall || in.Len != 2 || in.code[0] != 0x0f || in.code[1] != 0x05 {
			continue
		}
		site := callSite{addr: in.addr, number: -1}
		if !computed {
			site.number = numberBefore(insns[:i+1])
		}
		if born = makesThread[site.number]; !born && i+1 < len(insns) {
			site.behind = insns[i+1].addr
		}
		all = append(all, site)
	}
	return all
}

// numberBefore is the constant that is in EAX at the last instruction; -1 where that is not sure.
func numberBefore(insns []insn) int {
	for i := len(insns) - 1; i > 0; i-- {
		if insns[i].joins {
			return -1
		}
		in := insns[i-1]
		switch c := in.code; {
		case len(c) == 5 && c[0] == 0xb8: // mov $n, %eax
			return int(c[1]) | int(c[2])<<8 | int(c[3])<<16
		case len(c) == 7 && c[0] == 0x48 && c[1] == 0xc7 && c[2] == 0xc0: // mov $n, %rax
			return int(c[3]) | int(c[4])<<8 | int(c[5])<<16
		case len(c) == 2 && (c[0] == 0x31 || c[0] == 0x33) && c[1] == 0xc0: // xor %eax, %eax
			return 0
		}
		if in.Flow != isa.Next && in.Flow != isa.CondJump {
			return -1
		}
		details, err := amd64.Decode(in.code, 64)
		if err != nil || details.Uses(in.code).Writes.Has(arch.AX) {
			return -1
		}
	}
	return -1
}

// placeSyscall makes the probes of a tracepoint: at the instructions that may make one of its calls, or behind
// them.
func (t *target) placeSyscall(pt *point.Point, p *plan.Probe, program, entry *kprobe.Program) error {
	if pt.Syscall.Kernel {
		return t.placeInKernel(pt, program, entry, p.Kept)
	}
	if err := t.findCallSites(); err != nil {
		return err
	}
	if len(t.sites) == 0 && !t.armed {
		return errors.New("no system call instruction was found in the files of the process")
	}
	base := t.r.callCookies(pt)
	for _, site := range t.sites {
		if site.number >= 0 && !pt.Syscall.Wants(site.number) {
			continue
		}
		if site.number == rtSigreturn && len(pt.Syscall.Numbers) != 1 {
			continue // it never can be probed: unwinders know signal frames by its bytes
		}
		addr, cookie := site.addr, base
		if pt.Syscall.Exit {
			if addr = site.behind; addr == 0 {
				continue // it does not come back here
			}
			if site.number >= 0 {
				cookie |= uint64(site.number+1) << 32
			} else if err := t.note(site); err != nil {
				return err
			}
		}
		if kp := t.call(addr, cookie, program); t.isNew(p.Program.Name, cookie, kp.Loc, kp.Addr, "") {
			t.addSite(kp)
		}
	}
	return nil
}

// callCookies are what probe is at a tracepoint: of a pattern, the first of those of all calls.
func (r *Run) callCookies(pt *point.Point) uint64 {
	if !pt.Syscall.Glob {
		return r.cookie(pt.Text)
	}
	var all []string
	for n := range point.MaxSyscall {
		all = append(all, pt.Syscall.Name(n))
	}
	return r.cookie(all...)
}

// placeInKernel makes the probes of a tracepoint of a kernel: on the functions that do its calls, or at their returns.
func (t *target) placeInKernel(pt *point.Point, program, entry *kprobe.Program, kept int) error {
	if a := t.session.Target().Arch(); a.Name != arch.AMD64.Name {
		return fmt.Errorf("tracepoints of system calls are those of kernels of %s, and this one is of %s", arch.AMD64.Name, a.Name)
	}
	base, found := t.r.callCookies(pt), false
	for n := range point.MaxSyscall {
		name := calls.Name(int(n))
		if name == "" || !pt.Syscall.Wants(n) {
			continue
		}
		if _, err := t.session.Lookup(point.SystemCall + name); err != nil {
			continue // the kernel was built without it
		}
		found = true
		rp := &kprobe.Kretprobe{Program: program, EntryProgram: entry, DataSize: kept, MaxActive: t.maxActive()}
		at, p := &rp.Kp, kprobe.Probe(rp)
		if !pt.Syscall.Exit {
			at = &kprobe.Kprobe{Program: program}
			p = at
		}
		at.SymbolName, at.Cookie, at.Optional = point.SystemCall+name, base|uint64(n)<<32, len(pt.Syscall.Numbers) != 1
		t.addSite(p)
	}
	if !found {
		return fmt.Errorf("the kernel has none of its system calls: no function %s*", point.SystemCall)
	}
	return nil
}

// rtSigreturn is the call at the end of a signal's handler.
const rtSigreturn = 15

func (t *target) addSite(p kprobe.Probe) {
	if t.atCalls == nil {
		t.atCalls = map[kprobe.Probe]bool{}
	}
	t.add(p)
	t.atCalls[p] = true
}

// note has the number of a call written down where it is made, for the tracepoints behind it.
func (t *target) note(site callSite) error {
	program, err := t.programs.Program(plan.NoterName)
	if err != nil {
		return err
	}
	const forget = 1
	if kp := t.call(site.addr, 0, program); t.isNew(plan.NoterName, 0, kp.Loc, kp.Addr, "") {
		t.addSite(kp)
		t.forget = append(t.forget, t.call(site.behind, forget, program))
	}
	return nil
}

// forgetNotes is for when all tracepoints have been placed: of the probes at an instruction those that were
// registered first run last.
func (t *target) forgetNotes() {
	all := t.fresh
	t.fresh = nil
	for _, p := range t.forget {
		t.addSite(p)
	}
	t.fresh, t.forget = append(t.fresh, all...), nil
}
