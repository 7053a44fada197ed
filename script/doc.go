// Package script runs scripts in bpftrace's language on sessions of package kprobe, and
// without any target those that need none.
//
//	text to a tree                        script/syntax
//	macros put in where they are called   script/macro
//	types, refusals, programs, maps       script/compile
//	what that comes to                    script/plan
//	instructions and jumps                script/asm
//	values to text or JSON                script/output
//	where the probes go, and running      here
//
// Probes on functions run inside the target; begin, end and intervals run in the
// controller, by the interpreter, on the same maps.
package script

import (
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"kprobe/arch"
	"kprobe/bpf/verify"
	"kprobe/script/builtin"
	"kprobe/script/compile"
	"kprobe/script/machine"
	"kprobe/script/output"
	"kprobe/script/plan"
	"kprobe/script/point"
	"kprobe/script/syntax"
)

// Options are what a script is compiled and run with.
type Options struct {
	Name      string   // of the script in messages: "stdin" unless said
	Params    []string // $1, $2, ...; and --name=value, which getopt asks for
	Unsafe    bool     // system() and override() may be used
	CPID      int      // of the process that was started for the script; 0 for none
	PID       int      // of the process that it is for; 0 for none
	Kernel    bool     // it is for a kernel
	Several   bool     // it is for several processes, which Join it: one set of maps
	Newcomers bool     // of which some may come later

	Machine *arch.Arch // of what it is for; nil: x86-64

	Suite  Suite  // run the script's test or bench probes, and attach nothing
	Filter string // a regular expression: of these probes those whose attach point it matches; "" for all
	Told   bool   // reads that fail, and keys that are not there, are told of

	Ready func() // unless it is nil, called when the probes are there, before anything that the script prints

	Verbose bool // each attach point is told of
	Dry     bool // probes are attached, and none is run

	JSON       bool      // events as objects, one a line
	Output     io.Writer // what the script prints
	Errors     io.Writer // what is told about it: probes attached, events lost, warnings
	NoWarnings bool      // warnings about the script are not told
	Quiet      bool      // the number of probes is not told; what is lost is, all the same

	// Include are headers that the script has as if it began with their #include lines; IncludeFolders are where headers lie, too.
	Include, IncludeFolders []string

	// KernelTypes are those of the kernel that the script is for; nil: by BPFTRACE_BTF, or of the system's own.
	KernelTypes *btf.Spec

	// Events are the trace events of the kernel that it is for.
	Events func() (*point.TraceEvents, error)

	// CPUs are how many processors the kernel has that it is for.
	CPUs func() (int, error)

	// KernelSymbol is the address of a symbol of the kernel that it is for; nil: of the one that the controller runs on.
	KernelSymbol func(name string) (uint64, error)

	// Settings are those of the environment, by their names in a config block. They
	// come before the script's own.
	Settings map[string]string
}

// Suite is which of a script's own probes are run in place of all others.
type Suite string

// The suites: none, test probes, and bench probes.
const (
	NoSuite Suite = ""
	Tests   Suite = "test"
	Benches Suite = "bench"
)

// Script is one that was compiled.
type Script struct {
	plan   *plan.Plan
	opts   Options
	filter *regexp.Regexp
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
	debug := newFiles(o.PID)
	defer debug.close()
	known := &kernelTypes{spec: o.KernelTypes, file: o.Settings["btf"]}
	symbolOf := o.KernelSymbol
	if symbolOf == nil && !o.Kernel {
		symbolOf = kernelSymbol
	}
	plan, err := compile.Compile(&syntax.Source{Name: o.Name, Text: text}, builtin.Library(),
		compile.Options{Params: params, Named: named, Unsafe: o.Unsafe, CPID: o.CPID, Kernel: o.Kernel, Several: o.Several, Told: o.Told, Headers: o.included(), Header: o.header, Target: machine.Of(o.Machine), Settings: o.Settings, Debug: debug, Types: known,
			Import: imported, Variable: debug.variable, Events: o.Events, Lines: debug.lines, Inlined: debug.inlined, CPUs: o.CPUs, KernelSymbol: symbolOf,
			Program: programOf(o.PID),
			Statics: func(target string) ([]point.Static, error) { return statics(target, o.PID) }})
	if err != nil {
		return nil, err
	}
	for _, w := range plan.Warnings {
		if o.NoWarnings {
			break
		}
		fmt.Fprintln(o.Errors, w)
	}
	s := &Script{plan: plan, opts: o}
	if o.Filter != "" {
		if s.filter, err = regexp.Compile(o.Filter); err != nil {
			return nil, err
		}
		if err := s.sift(); err != nil {
			return nil, err
		}
	}
	return s, nil
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

// Errno is an error of the system in C's words.
func Errno(err error) string { return output.Errno(err) }

// Unasked are the options, --name=value, that the script does not ask for.
func (s *Script) Unasked() (names []string) {
	_, named := arguments(s.opts.Params)
	for name := range named {
		if _, asked := s.plan.Asked[name]; !asked {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Help lists the options that the script asks for, where --help is given and none of them.
func (s *Script) Help() (text string, asked bool) {
	_, named := arguments(s.opts.Params)
	_, given := named["help"]
	if _, own := s.plan.Asked["help"]; !given || own {
		return "", false
	}
	text = "OPTIONS:\n"
	for _, name := range slices.Sorted(maps.Keys(s.plan.Asked)) {
		o := s.plan.Asked[name]
		text += strings.TrimRight(fmt.Sprintf("    %-24s %s", "--"+name+"="+o.Default, o.Help), " ") + "\n"
	}
	return text, true
}

// Format is the script in its one form.
func Format(name, text string) (string, error) {
	f, err := syntax.Parse(&syntax.Source{Name: name, Text: text})
	if err != nil {
		return "", err
	}
	return syntax.Format(f), nil
}

// Patterns are the attach points of a script, as List takes them: without the numbers of timers and samples.
func Patterns(name, text string) (all []string, err error) {
	f, err := syntax.Parse(&syntax.Source{Name: name, Text: text})
	if err != nil {
		return nil, err
	}
	for _, it := range f.Items {
		if p, ok := it.(*syntax.Probe); ok {
			for _, pt := range p.Points {
				provider, rest, _ := strings.Cut(pt.Text, ":")
				switch syntax.Providers[provider] {
				case "interval", "profile", "software", "hardware":
					rest, _, _ = strings.Cut(rest, ":")
				}
				all = append(all, strings.TrimSuffix(provider+":"+rest, ":"))
			}
		}
	}
	return all, nil
}

// Verify holds that every program of the script is one that may run.
func (s *Script) Verify() error {
	for _, p := range s.plan.Probes {
		for _, program := range p.Programs() {
			if _, err := verify.Program(program); err != nil {
				return refusal(err)
			}
		}
	}
	return nil
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
