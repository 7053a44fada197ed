package script

import (
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
	"kprobe/symbol"
)

// arm makes the probes of all attach points, and registers them in one stop.
func (r *Run) arm(programs *kprobe.Programs) error {
	if r.session != nil {
		if err := r.session.Refresh(); err != nil {
			return err
		}
	}
	for _, p := range r.s.plan.Probes {
		var program *kprobe.Program
		if p.Points[0].Inside() {
			var err error
			if program, err = programs.Program(p.Program.Name); err != nil {
				return err
			}
		}
		for _, pt := range p.Points {
			switch {
			case program != nil:
				if err := r.place(pt, p, program); err != nil {
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
	return r.takeOut()
}

// takeOut forgets the probes of patterns that could not be placed, and tells how many.
func (r *Run) takeOut() error {
	all := len(r.probes)
	var why error
	r.probes = slices.DeleteFunc(r.probes, func(p kprobe.Probe) bool {
		var refusal error
		switch p := p.(type) {
		case *kprobe.Kprobe:
			refusal = p.Refusal()
		case *kprobe.Kretprobe:
			refusal = p.Kp.Refusal()
		}
		if refusal != nil && why == nil {
			why = refusal
		}
		return refusal != nil
	})
	if why == nil {
		return nil
	}
	_, err := fmt.Fprintf(r.s.opts.Errors, "WARNING: %d functions that a pattern matches cannot be probed, the first for this: %v\n", all-len(r.probes), why)
	return err
}

// place makes the probes of one attach point.
func (r *Run) place(pt *compile.Point, p *compile.Probe, program *kprobe.Program) error {
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
	optional := hasGlob(pt.Function) || hasGlob(pt.Target)
	add := func(name string, offset uint64, addr arch.Addr, text string) {
		cookie := uint64(len(r.cookies))
		r.cookies = append(r.cookies, text)
		if p.Program.Kind == bpf.Kretprobe {
			rp := &kprobe.Kretprobe{Program: program, MaxActive: maxActive}
			rp.Kp.SymbolName, rp.Kp.Offset, rp.Kp.Addr, rp.Kp.Cookie, rp.Kp.Optional = name, offset, addr, cookie, optional
			r.probes = append(r.probes, rp)
			return
		}
		r.probes = append(r.probes, &kprobe.Kprobe{SymbolName: name, Offset: offset, Addr: addr, Cookie: cookie, Program: program, Optional: optional})
	}
	space := r.session.Symbols()
	module := r.module(pt.Target)
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
		for _, m := range r.modules(module) {
			for _, loc := range space.Match(m, pt.Function) {
				if loc.Func.Source == symbol.Plt || loc.Func.Kind == symbol.IFunc {
					continue
				}
				add("", 0, arch.Addr(loc.Addr), pt.Provider+":"+pt.Target+":"+loc.Func.Label())
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
