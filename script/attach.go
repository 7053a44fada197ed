package script

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/symbol"
)

// arm makes the probes of all attach points that have none yet where the target has them, and registers them in one
// stop.
func (t *target) arm() error {
	t.arming.Lock()
	defer t.arming.Unlock()
	if err := t.session.Refresh(); err != nil {
		return err
	}
	t.fresh, t.sites = nil, nil
	for _, p := range t.r.s.plan.Probes {
		if !p.Points[0].Inside() {
			continue
		}
		var program, entry *kprobe.Program
		if !p.Points[0].Interpreted() {
			var err error
			if program, err = t.programs.Program(p.Program.Name); err == nil && p.Entry != nil {
				entry, err = t.programs.Program(p.Entry.Name)
			}
			if err != nil {
				return err
			}
		}
		t.matches = &matches{}
		for _, pt := range p.Points {
			var err error
			switch {
			case pt.Interpreted() && t.armed:
			case pt.Sample != nil:
				err = t.sample(pt, p)
			case pt.Interpreted():
				err = t.watch(pt, p)
			default:
				err = t.place(pt, p, program, entry)
			}
			if err != nil {
				return err
			}
		}
		if err := t.matched(); err != nil {
			return err
		}
	}
	t.armed = true
	slices.Reverse(t.fresh) // of those at one place the last runs first, and bpftrace's order is the script's
	t.forgetNotes()
	if len(t.fresh) == 0 {
		return nil
	}
	// First: a program may make a probe's arguments only while its semaphore is up, and pass the probe in any case.
	if err := t.session.RaiseSemaphores(t.semaphores...); err != nil {
		return err
	}
	err := t.session.Register(t.fresh...)
	var b *kprobe.BatchError
	if errors.As(err, &b) {
		if errors.Is(b.Err, syscall.EILSEQ) {
			return sentence(fmt.Sprintf("Possible attachment attempt in the middle of an instruction, try a different offset. (%v)", b.Err))
		}
		return fmt.Errorf("%s: %w", t.r.s.plan.Source.Name, b.Err)
	}
	if err != nil {
		return err
	}
	err = t.takeOut()
	t.probes = append(t.probes, t.fresh...)
	if err == nil {
		err = t.switchOn()
	}
	return err
}

// sentence is an error in bpftrace's words, which begin with a capital letter.
type sentence string

func (s sentence) Error() string { return string(s) }

// takeOut forgets the probes of patterns, and at system calls, that could not be placed, and tells how many.
func (t *target) takeOut() error {
	type left struct {
		n   int
		why error
	}
	var functions, calls left
	t.fresh = slices.DeleteFunc(t.fresh, func(p kprobe.Probe) bool {
		var refusal error
		switch p := p.(type) {
		case *kprobe.Kprobe:
			refusal = p.Refusal()
		case *kprobe.Kretprobe:
			refusal = p.Kp.Refusal()
		}
		if refusal == nil {
			return false
		}
		to := &functions
		if t.atCalls[p] {
			to = &calls
			delete(t.atCalls, p)
		}
		if to.n++; to.why == nil {
			to.why = refusal
		}
		return true
	})
	tell := func(l left, what string) error {
		if l.n == 0 {
			return nil
		}
		_, err := fmt.Fprintf(t.r.s.opts.Errors, "WARNING: %d %s cannot be probed, the first for this: %v\n", l.n, what, l.why)
		return err
	}
	what := "system call instructions"
	if t.r.s.opts.Kernel {
		what = "system calls"
	}
	return errors.Join(tell(functions, "functions that a pattern matches"), tell(calls, what))
}

func (t *target) add(p kprobe.Probe) { t.fresh = append(t.fresh, p) }

// missing does what the script's settings say of an attach point that has no probe. What is not there later, or in one of several
// processes, may be yet.
func (t *target) missing(pt *point.Point, err error) error {
	var elsewhere notMapped
	if t.armed || t.r.pool != nil && errors.As(err, &elsewhere) {
		return nil
	}
	if t.matches.keep(pt, err) {
		return nil
	}
	t.r.missed++
	switch t.r.s.plan.Settings.MissingProbes {
	case "ignore":
		return nil
	case "warn":
		fmt.Fprintf(t.r.s.opts.Errors, "WARNING: %v\nWARNING: Unable to attach probe: %s. Skipping.\n", err, pt.Text)
		return nil
	}
	fmt.Fprintf(t.r.s.opts.Errors, "ERROR: %v\n", err)
	return sentence(fmt.Sprintf("Unable to attach probe: %s. If this is expected, set the 'missing_probes' config variable to 'warn'.", pt.Text))
}

// notMapped is a file that a process has not.
type notMapped string

func (file notMapped) Error() string { return "the process has not mapped " + string(file) }

// spot is one place of an attach point: one that was found, or else by its name or address, which is looked for.
type spot struct {
	loc    symbol.Loc
	name   string
	offset uint64
	addr   arch.Addr
	text   string // what probe is there
}

// place makes the probes of one attach point, with the program at entries for those at returns.
func (t *target) place(pt *point.Point, p *plan.Probe, program, entry *kprobe.Program) error {
	if pt.Syscall != nil {
		if err := t.placeSyscall(pt, p, program, entry); err != nil {
			return t.missing(pt, err)
		}
		t.matches.found()
		return nil
	}
	spots, err := t.spots(pt)
	if err != nil {
		return t.missing(pt, err)
	}
	t.matches.found()
	optional := pt.Many() || hasGlob(pt.Target)
	for _, at := range spots {
		if !t.r.s.passes(at.text) {
			continue
		}
		if pt.OfFile() && pt.Numbered && at.loc.Module != nil && at.loc.Passing() != pt.Passing {
			err := sentence(fmt.Sprintf("The arguments of %s have no numbers here: not all of these functions are C's. Name its file", at.text))
			if err := t.missing(pt, err); err != nil {
				return err
			}
			continue
		}
		cookie := t.r.cookie(at.text)
		if !t.isNew(p.Program.Name, cookie, at.loc, at.addr, at.name) {
			continue
		}
		rp := &kprobe.Kretprobe{Program: program, EntryProgram: entry, DataSize: p.Kept, MaxActive: t.maxActive()}
		kp, probe := &rp.Kp, kprobe.Probe(rp)
		if p.Program.Kind != bpf.Kretprobe {
			kp = &kprobe.Kprobe{Program: program}
			probe = kp
		}
		kp.SymbolName, kp.Offset, kp.Addr, kp.Loc, kp.Cookie, kp.Optional = at.name, at.offset, at.addr, at.loc, cookie, optional
		kp.Patient = at.addr == 0 // its file may be unmapped, and mapped again
		t.add(probe)
		if pt.Static != nil {
			t.marks.add(p.Program.Name + at.text)
		}
	}
	return nil
}

// isNew tells whether a program is not at a place yet, and says that it is from now on.
func (t *target) isNew(program string, cookie uint64, loc symbol.Loc, addr arch.Addr, name string) bool {
	at := place{program: program, cookie: cookie, name: name, at: uint64(addr)}
	if loc.Module != nil {
		at.file, at.at = fileOf(loc.Module), loc.Module.InFile(loc.Addr)
	}
	if t.placed[at] {
		return false
	}
	if t.placed == nil {
		t.placed = map[place]bool{}
	}
	t.placed[at] = true
	return true
}

// spots finds the places of an attach point in what the target has mapped: each kind has its file.
func (t *target) spots(pt *point.Point) ([]spot, error) {
	module := t.module(pt.Target)
	switch {
	case pt.Event != nil:
		return atEvent(pt), nil
	case pt.Static != nil:
		return t.atStatic(pt, module)
	case pt.Watch != nil: // for execution
		return []spot{{name: pt.Function, addr: arch.Addr(pt.Address), text: pt.Text}}, nil
	case pt.HasAddr:
		return t.atAddress(pt, module)
	case pt.Many() || pt.Source || hasGlob(module):
		return t.atPattern(pt, module)
	}
	return t.atFunction(pt, module)
}

// inFile is the place of an attach point at an address of a mapped file.
func (t *target) inFile(pt *point.Point, m *symbol.Module, vaddr uint64) spot {
	loc, addr := located(t.session.Symbols(), m.InProcess(vaddr))
	return spot{loc: loc, addr: addr, text: pt.Text}
}

// located is a place that outlives the program, or where no function is known, an address.
func located(space *symbol.Space, at arch.Addr) (symbol.Loc, arch.Addr) {
	if loc, ok := space.At(at); ok {
		return loc, 0
	}
	return symbol.Loc{}, at
}

// maxActive is how many calls can be under way in a function whose return is probed: in a kernel of all tasks, in a process of each
// thread, and there as many as there is room for.
func (t *target) maxActive() int {
	const inKernel, inProcess = 128, 1 << 20
	if t.r.s.opts.Kernel {
		return inKernel
	}
	return inProcess
}

func hasGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

// module finds the mapped file that an attach point's target names: a path, a base name,
// a library by what stands before ".so", or a command on the PATH.
func (t *target) module(target string) string {
	if target == "" || hasGlob(target) {
		return target
	}
	space := t.session.Symbols()
	if strings.Contains(target, "/") {
		if abs, err := filepath.Abs(target); err == nil {
			if real, err := filepath.EvalSymlinks(abs); err == nil && len(space.ModulesNamed(real)) > 0 {
				return real
			}
			if m := t.linked(abs); m != "" && len(space.ModulesNamed(abs)) == 0 {
				return m
			}
			return abs
		}
		return target
	}
	if len(space.ModulesNamed(target)) > 0 {
		return target
	}
	for _, m := range space.Modules() {
		base := filepath.Base(m.Name)
		if strings.HasPrefix(base, target+".so") || strings.HasPrefix(base, target+"-") || strings.HasPrefix(base, "lib"+target+".so") {
			return m.Name
		}
	}
	if path, err := exec.LookPath(target); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil {
			return real
		}
	}
	return target
}

// linked is the name by which a process has mapped a file, where that is another than the file's own here; "" for none.
func (t *target) linked(file string) string {
	pid := t.r.pidOf(t)
	is, err := os.Stat(file)
	if err != nil || pid == 0 {
		return ""
	}
	for _, m := range t.session.Symbols().Modules() {
		if slices.ContainsFunc(m.Mappings, func(part symbol.Mapping) bool { return part.Path == m.Path && sameFile(pid, part, is) }) {
			return m.Path
		}
	}
	return ""
}

// modules are the mapped files that a glob names, or the one.
func (t *target) modules(pattern string) []string {
	if !hasGlob(pattern) {
		return []string{pattern}
	}
	var all []string
	for _, m := range t.session.Symbols().Modules() {
		if ok, _ := filepath.Match(pattern, m.Name); ok || pattern == "*" {
			if !slices.Contains(all, m.Name) {
				all = append(all, m.Name)
			}
		}
	}
	return all
}
