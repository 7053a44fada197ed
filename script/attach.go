package script

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"kprobe"
	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/script/compile"
	"kprobe/script/point"
	"kprobe/symbol"
)

// arm makes the probes of all attach points, and registers them in one stop.
func (r *Run) arm(programs *kprobe.Programs) error {
	if r.session != nil {
		if err := r.session.Refresh(); err != nil {
			return err
		}
	}
	r.programs = programs
	for _, p := range r.s.plan.Probes {
		var program, entry *kprobe.Program
		if p.Points[0].Inside() && !p.Points[0].Interpreted() {
			var err error
			if program, err = programs.Program(p.Program.Name); err == nil && p.Entry != nil {
				entry, err = programs.Program(p.Entry.Name)
			}
			if err != nil {
				return err
			}
		}
		for _, pt := range p.Points {
			switch {
			case pt.Interpreted():
				if err := r.watch(pt, p); err != nil {
					return err
				}
			case program != nil:
				if err := r.place(pt, p, program, entry); err != nil {
					return err
				}
			case pt.Provider == "interval" || pt.Provider == "profile":
				vm, err := r.vm(p)
				if err != nil {
					return err
				}
				r.cookies = append(r.cookies, pt.Text)
				r.timers = append(r.timers, &timer{vm: vm, period: time.Duration(pt.Period), cookie: uint64(len(r.cookies) - 1)})
			}
		}
	}
	r.forgetNotes()
	if r.s.opts.Verbose {
		for _, text := range r.cookies {
			fmt.Fprintf(r.s.opts.Errors, "Attaching %s\n", text)
		}
	}
	if len(r.probes) == 0 {
		return nil
	}
	err := r.session.Register(r.probes...)
	var b *kprobe.BatchError
	if errors.As(err, &b) {
		return fmt.Errorf("%s: %w", r.s.plan.Source.Name, b.Err)
	}
	if err != nil {
		r.probes = nil
		return err
	}
	if len(r.semaphores) > 0 {
		if err := r.count(1); err != nil {
			return err
		}
	}
	return r.takeOut()
}

// count tells the target's static probes that there is one more, or one less, who wants them.
func (r *Run) count(by int) error {
	for _, at := range r.semaphores {
		var b [2]byte
		if err := r.session.ReadMem(at, b[:]); err != nil {
			return err
		}
		binary.LittleEndian.PutUint16(b[:], binary.LittleEndian.Uint16(b[:])+uint16(by))
		if err := r.session.Target().WriteAt(at, b[:]); err != nil {
			return err
		}
	}
	return nil
}

// takeOut forgets the probes of patterns, and at system calls, that could not be placed, and tells how many.
func (r *Run) takeOut() error {
	type left struct {
		n   int
		why error
	}
	var functions, calls left
	r.probes = slices.DeleteFunc(r.probes, func(p kprobe.Probe) bool {
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
		if r.atCalls[p] {
			to = &calls
			delete(r.atCalls, p)
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
		_, err := fmt.Fprintf(r.s.opts.Errors, "WARNING: %d %s cannot be probed, the first for this: %v\n", l.n, what, l.why)
		return err
	}
	what := "system call instructions"
	if r.s.opts.Kernel {
		what = "system calls"
	}
	return errors.Join(tell(functions, "functions that a pattern matches"), tell(calls, what))
}

func (r *Run) add(p kprobe.Probe) { r.probes = append(r.probes, p) }

// place makes the probes of one attach point, with the program at entries for those at returns.
func (r *Run) place(pt *point.Point, p *compile.Probe, program, entry *kprobe.Program) error {
	missing := func(err error) error {
		switch r.s.plan.Settings.MissingProbes {
		case "ignore":
			return nil
		case "warn":
			fmt.Fprintf(r.s.opts.Errors, "WARNING: Unable to attach probe: %s: %v\n", pt.Text, err)
			return nil
		}
		return fmt.Errorf("unable to attach probe: %s: %w. If this is expected, set the 'missing_probes' config variable to 'warn'", pt.Text, err)
	}
	if pt.Syscall != nil {
		if err := r.placeSyscall(pt, program, entry, p.Kept); err != nil {
			return missing(err)
		}
		return nil
	}
	optional := hasGlob(pt.Function) || hasGlob(pt.Target)
	add := func(name string, offset uint64, addr arch.Addr, text string) {
		cookie := uint64(len(r.cookies))
		r.cookies = append(r.cookies, text)
		if p.Program.Kind == bpf.Kretprobe {
			rp := &kprobe.Kretprobe{Program: program, EntryProgram: entry, DataSize: p.Kept, MaxActive: maxActive}
			rp.Kp.SymbolName, rp.Kp.Offset, rp.Kp.Addr, rp.Kp.Cookie, rp.Kp.Optional = name, offset, addr, cookie, optional
			r.add(rp)
			return
		}
		r.add(&kprobe.Kprobe{SymbolName: name, Offset: offset, Addr: addr, Cookie: cookie, Program: program, Optional: optional})
	}
	space := r.session.Symbols()
	module := r.module(pt.Target)
	if pt.Static != nil {
		found := false
		for _, m := range space.ModulesNamed(module) {
			add("", 0, arch.Addr(pt.Static.Vaddr+m.Bias), pt.Text)
			if at := arch.Addr(pt.Static.Semaphore + m.Bias); pt.Static.Semaphore != 0 && !slices.Contains(r.semaphores, at) {
				r.semaphores = append(r.semaphores, at)
			}
			found = true
		}
		if !found {
			return missing(fmt.Errorf("%s is not mapped", module))
		}
		return nil
	}
	if pt.Watch != nil { // for execution
		add(pt.Function, 0, arch.Addr(pt.Address), pt.Text)
		return nil
	}
	if pt.Virtual && pt.HasAddr {
		found := false
		for _, m := range space.ModulesNamed(module) {
			if m.File != nil && slices.ContainsFunc(m.File.Text(), func(t symbol.Range) bool { return t.Contains(pt.Address) }) {
				add("", 0, arch.Addr(pt.Address+m.Bias), pt.Text)
				found = true
			}
		}
		if found {
			return nil
		}
	}
	if pt.HasAddr {
		locs := space.AtFileOffset(module, pt.Address)
		if len(locs) == 0 {
			return missing(errors.New("no code is mapped at this address"))
		}
		for _, loc := range locs {
			add("", 0, arch.Addr(loc.Addr), pt.Text)
		}
		return nil
	}
	full := pt.Function
	if module != "" {
		full = module + ":" + full
	}
	if hasGlob(pt.Function) || hasGlob(module) {
		n := 0
		at := []string{pt.Provider}
		if pt.Target != "" {
			at = append(at, pt.Target)
		}
		for _, m := range r.modules(module) {
			for _, loc := range space.Match(m, pt.Function) {
				if loc.Func.Source == symbol.Plt || loc.Func.Kind == symbol.IFunc {
					continue
				}
				add("", 0, arch.Addr(loc.Addr), strings.Join(append(at, loc.Func.Label()), ":"))
				n++
			}
		}
		if n == 0 {
			return missing(errors.New("no function matches"))
		}
		return nil
	}
	var absent *symbol.NoModuleError
	if _, err := r.session.Lookup(full); err != nil && !errors.As(err, &absent) {
		return missing(err)
	}
	add(full, pt.Offset, 0, pt.Text)
	return nil
}

// maxActive is how many calls a thread can have under way in a function whose return is probed.
const maxActive = 128

func hasGlob(s string) bool { return strings.ContainsAny(s, "*?[") }

// module finds the mapped file that an attach point's target names: a path, a base name,
// a library by what stands before ".so", or a command on the PATH.
func (r *Run) module(target string) string {
	if target == "" || hasGlob(target) {
		return target
	}
	space := r.session.Symbols()
	if strings.Contains(target, "/") {
		if abs, err := filepath.Abs(target); err == nil {
			if real, err := filepath.EvalSymlinks(abs); err == nil && len(space.ModulesNamed(real)) > 0 {
				return real
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

// modules are the mapped files that a glob names, or the one.
func (r *Run) modules(pattern string) []string {
	if !hasGlob(pattern) {
		return []string{pattern}
	}
	var all []string
	for _, m := range r.session.Symbols().Modules() {
		if ok, _ := filepath.Match(pattern, m.Name); ok || pattern == "*" {
			if !slices.Contains(all, m.Name) {
				all = append(all, m.Name)
			}
		}
	}
	return all
}

// userName is a user's name, or the number where there is none.
func userName(id uint32) string {
	text := strconv.FormatUint(uint64(id), 10)
	u, err := user.LookupId(text)
	if err != nil {
		if os.IsNotExist(err) {
			return text
		}
		return text
	}
	return u.Username
}
