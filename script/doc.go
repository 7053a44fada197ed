// Package script runs scripts in bpftrace's language on sessions of package kprobe, and
// without any target those that need none.
//
//	text to a tree                        script/syntax
//	types, refusals, programs, maps       script/compile
//	values to text or JSON                script/output
//	where the probes go, and running      here
//
// Probes on functions run inside the target; begin, end and intervals run in the
// controller, by the interpreter, on the same maps.
package script

import (
	"fmt"
	"io"
	"strings"

	"kprobe/script/compile"
	"kprobe/script/syntax"
)

// Options are what a script is compiled and run with.
type Options struct {
	Name   string   // of the script in messages: "stdin" unless said
	Params []string // $1, $2, ...; and --name=value, which getopt asks for
	Unsafe bool     // system() and override() may be used
	CPID   int      // of the process that was started for the script; 0 for none
	Kernel bool     // it is for a kernel

	JSON   bool      // events as objects, one a line
	Output io.Writer // what the script prints
	Errors io.Writer // what is told about it: probes attached, events lost, warnings
	Quiet  bool      // the number of probes is not told; what is lost is, all the same

	// Settings are those of a config block by their names there; the script's own
	// come after them.
	Settings map[string]string
}

// Script is one that was compiled.
type Script struct {
	plan *compile.Plan
	opts Options
}

// Compile reads and checks a script and makes its programs. An error is a syntax.Errors,
// each with its place.
func Compile(text string, o Options) (*Script, error) {
	if o.Name == "" {
		o.Name = "stdin"
	}
	if o.Output == nil {
		o.Output = io.Discard
	}
	if o.Errors == nil {
		o.Errors = io.Discard
	}
	params, named := arguments(o.Params)
	plan, err := compile.Compile(&syntax.Source{Name: o.Name, Text: text},
		compile.Options{Params: params, Named: named, Unsafe: o.Unsafe, CPID: o.CPID, Kernel: o.Kernel, Settings: o.Settings})
	if err != nil {
		return nil, err
	}
	for _, w := range plan.Warnings {
		fmt.Fprintln(o.Errors, w)
	}
	return &Script{plan: plan, opts: o}, nil
}

// arguments tells options, --name=value, from parameters.
func arguments(all []string) (params []string, named map[string]string) {
	named = map[string]string{}
	for _, a := range all {
		if name, ok := strings.CutPrefix(a, "--"); ok && name != "" {
			name, value, _ := strings.Cut(name, "=")
			named[name] = value
			continue
		}
		params = append(params, a)
	}
	return params, named
}

// Format is the script in its one form.
func Format(name, text string) (string, error) {
	f, err := syntax.Parse(&syntax.Source{Name: name, Text: text})
	if err != nil {
		return "", err
	}
	return syntax.Format(f), nil
}

// Points counts the attach points, and tells how many of them are in a target.
func (s *Script) Points() (all, inside int) {
	for _, p := range s.plan.Probes {
		for _, pt := range p.Points {
			all++
			if pt.Inside() {
				inside++
			}
		}
	}
	return all, inside
}

// Code is the programs' instructions.
func (s *Script) Code() string {
	var b strings.Builder
	for _, p := range s.plan.Probes {
		fmt.Fprintf(&b, "%s:\n", p.Points[0].Text)
		second := false
		for i, in := range p.Program.Insns {
			for _, l := range p.Program.Lines {
				if l.Insn == i {
					fmt.Fprintf(&b, "; %s\n", l.Text)
				}
			}
			if !second {
				fmt.Fprintf(&b, "%5d  %v\n", i, in)
			}
			second = in.Wide()
		}
	}
	return b.String()
}
