package point

import (
	"path"
	"slices"
	"strings"

	"kprobe/script/syntax"
	"kprobe/symbol"
)

// Static is a place in a file that its author has made to be probed.
type Static struct {
	File           string // as it is told
	Provider, Name string
	Vaddr          uint64 // of the instruction, in the file
	Semaphore      uint64 // of the 2 bytes that count who wants it; 0 for none
	Args           []symbol.StaticArg
}

// usdt reads PATH:NAME or PATH:PROVIDER:NAME, and finds the places in the files: each has its own arguments. Of a
// process the path may be a pattern, or be left out; an empty provider is any.
func (r *Reader) usdt(at syntax.Point, pt *Point, args []string) *Point {
	if len(args) == 1 && r.Program != "" {
		args = slices.Insert(args, 0, "")
	}
	if len(args) != 2 && len(args) != 3 {
		r.Errorf(at, "usdt probe type requires 2 or 3 arguments, found %d", len(args))
		return nil
	}
	provider, name := "", args[len(args)-1]
	if len(args) == 3 {
		provider = args[1]
	}
	switch {
	case name == "":
		r.Errorf(at, "usdt probe must have a target function or wildcard")
		return nil
	case args[0] == "" && r.Program == "":
		r.Errorf(at, "usdt probe must specify at least path or pid to probe. To target all paths/pids set the path to '*'.")
		return nil
	}
	pt.Target, pt.Function = args[0], name
	if r.Statics == nil {
		return pt
	}
	all, err := r.Statics(pt.Target)
	if err != nil {
		r.Errorf(at, "usdt: %v", err)
		return nil
	}
	var found []*Point
	for i := range all {
		if p := &all[i]; p.Match(provider, name) {
			one := *pt
			one.Static, one.Target, one.Function = p, p.File, p.Name
			one.Text = p.String()
			found = append(found, &one)
		}
	}
	if len(found) > 0 {
		r.more = found[:len(found)-1]
		return found[len(found)-1]
	}
	r.absent(at, func() {
		switch r.Missing {
		case "error":
			r.Errorf(at, "No matches for %s: there is no such static probe (-l lists them)", at.Text)
		case "warn":
			r.Warnf(at, "No matches for %s. Skipping.", at.Text)
		}
	})
	return nil
}

// Match tells whether patterns match the provider and the name; an empty one of a provider matches all.
func (s *Static) Match(provider, name string) bool {
	if provider != "" && provider != s.Provider {
		if ok, _ := path.Match(provider, s.Provider); !ok {
			return false
		}
	}
	ok, _ := path.Match(name, s.Name)
	return ok || name == s.Name
}

// String names the place as an attach point does.
func (s *Static) String() string {
	return strings.Join([]string{"usdt", s.File, s.Provider, s.Name}, ":")
}
