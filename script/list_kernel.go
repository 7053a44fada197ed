package script

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cilium/ebpf/btf"

	"kprobe"
	"kprobe/script/debug"
	"kprobe/script/point"
	"kprobe/script/syntax"
)

// Listed is a kernel whose attach points are listed.
type Listed struct {
	Session   *kprobe.Session
	Functions []string           // without a session
	Types     *btf.Spec          // nil where it has none
	Events    *point.TraceEvents // nil where they are not known
}

// kernelProviders are those that only a kernel has.
var kernelProviders = []string{"kprobe", "kretprobe", "fentry", "fexit", "tracepoint", "rawtracepoint"}

// List names a kernel's attach points that a pattern matches, such as "kprobe:vfs_*", "tracepoint:sched:*" or "*sleep*". With verbose,
// parameters and members of records that the kernel's types tell come behind each, a line each. Other providers are as the function List has them.
func (k Listed) List(pattern string, verbose bool) (all []string, err error) {
	if k.Types != nil && isStruct(pattern) {
		return listStructs(debug.OfKernel(k.Types), pattern, verbose)
	}
	all, err = k.list(pattern, verbose)
	provider, _, parted := strings.Cut(pattern, ":")
	if full, ok := syntax.Providers[provider]; ok {
		provider = full
	}
	if err == nil && len(all) == 0 && !slices.Contains(kernelProviders, provider) && parted {
		return List(pattern, verbose, 0)
	}
	return all, err
}

// list is List of what only a kernel has.
func (k Listed) list(pattern string, verbose bool) (all []string, err error) {
	provider, rest, parted := strings.Cut(pattern, ":")
	if full, ok := syntax.Providers[provider]; ok {
		provider = full
	}
	place := pattern
	if parted {
		place = rest
	}
	for _, name := range kernelProviders {
		if ok, _ := path.Match(provider, name); !ok && parted {
			continue
		}
		for _, one := range k.of(name) {
			matches := one.name
			if parted {
				_, matches, _ = strings.Cut(one.name, ":")
			}
			ok, err := path.Match(place, matches)
			if err != nil {
				return nil, err
			}
			if !ok && strings.Count(rest, ":") == 0 && name[0] == 'f' { // the module may be left out
				ok, _ = path.Match(place, matches[strings.LastIndexByte(matches, ':')+1:])
			}
			if ok || parted && rest == "" {
				all = append(all, one.name)
				if verbose {
					all = append(all, one.more()...)
				}
			}
		}
	}
	return all, nil
}

// listedPoint is an attach point, and what is known of its args.
type listedPoint struct {
	name string
	more func() []string
}

// of are all of a provider.
func (k Listed) of(provider string) (all []listedPoint) {
	var types *debug.Kernel
	if k.Types != nil {
		types = debug.OfKernel(k.Types)
	}
	add := func(name string, params func(*point.Point)) {
		all = append(all, listedPoint{provider + ":" + name, func() (lines []string) {
			if types == nil || params == nil {
				return nil
			}
			var pt point.Point
			params(&pt)
			members := map[string]string{}
			if pt.Event != nil && !pt.Raw {
				members = types.Members(pt.Event.Record)
			}
			for _, p := range pt.Params {
				line := members[p.Name]
				if line == "" {
					line = p.C + " " + p.Name
				}
				lines = append(lines, "    "+line)
			}
			return lines
		}})
	}
	switch provider {
	case "tracepoint":
		for _, t := range point.Tracepoints("*", "*") {
			all = append(all, listedPoint{t.Name, func() (lines []string) {
				for _, p := range t.Params {
					lines = append(lines, "    "+p.C+" "+p.Name)
				}
				return lines
			}})
		}
		for _, e := range k.events() {
			add(e.System+":"+e.Name, func(pt *point.Point) {
				pt.Event = e
				pt.Signatures(nil, types)
			})
		}
	case "rawtracepoint":
		for _, e := range k.events() {
			add(e.Name, func(pt *point.Point) {
				pt.Event, pt.Raw = e, true
				pt.Signatures(nil, types)
			})
		}
	default:
		for _, name := range k.functions() {
			if provider == "kprobe" || provider == "kretprobe" {
				add(name, nil)
				continue
			}
			if found, err := functionsOf(types, name); err == nil {
				add("vmlinux:"+name, func(pt *point.Point) { pt.Params = found[0].Params })
			}
		}
	}
	slices.SortFunc(all, func(a, b listedPoint) int { return strings.Compare(a.name, b.name) })
	return slices.CompactFunc(all, func(a, b listedPoint) bool { return a.name == b.name })
}

func functionsOf(types *debug.Kernel, name string) ([]point.Function, error) {
	if types == nil {
		return nil, fmt.Errorf("the kernel's types are not known")
	}
	return types.Functions("", point.Name{Pattern: name})
}

// events are the kernel's, but for those that are of system calls.
func (k Listed) events() []*point.Event {
	if k.Events == nil {
		return nil
	}
	return slices.DeleteFunc(k.Events.Match("*", "*"), func(e *point.Event) bool { return e.System == "raw_syscalls" })
}

// isStruct tells of a pattern of types: "struct path".
func isStruct(pattern string) bool {
	kind, _, ok := strings.Cut(pattern, " ")
	return ok && slices.Contains([]string{"struct", "union", "enum"}, kind)
}

// listStructs are the types of a kernel that a pattern matches, with verbose as C defines them.
func listStructs(types *debug.Kernel, pattern string, verbose bool) (all []string, err error) {
	kind, _, _ := strings.Cut(pattern, " ")
	if _, err := path.Match(pattern, ""); err != nil {
		return nil, err
	}
	names := types.Structs(kind, func(name string) bool { ok, _ := path.Match(pattern, name); return ok })
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if verbose {
			all = append(all, types.Definition(name)...)
		} else {
			all = append(all, name)
		}
	}
	return all, nil
}
