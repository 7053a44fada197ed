package script

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"kprobe/script/debug"
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/symbol"
)

// libraryFolders are where a library is looked for that is named without its path.
var libraryFolders = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// timers are what a pattern of intervals lists.
var timerUnits = []string{"hz", "ms", "s", "us"}

// List names the attach points that a pattern such as "uprobe:libc:mall*" matches, in the
// files themselves: no process is needed. Errors: no such file; a provider whose places
// no file tells.
// With verbose, arguments that are known come behind each, a line each. With the pid of a
// process, not 0, files are those that it has mapped; patterns may then go without.
func List(pattern string, verbose bool, pid int) ([]string, error) {
	if isStruct(pattern) { // of the system's kernel
		types, err := (&kernelTypes{file: os.Getenv("BPFTRACE_BTF")}).known()
		if err != nil {
			return nil, err
		}
		return listStructs(types, pattern, verbose)
	}
	provider, rest, _ := strings.Cut(pattern, ":")
	if strings.ContainsAny(provider, "*?[") {
		return listProviders(provider, rest, verbose, pid)
	}
	switch provider {
	case "u", "uprobe":
		provider = "uprobe"
	case "ur", "uretprobe":
		provider = "uretprobe"
	case "U", "usdt":
		return listStatics(rest, pid)
	case "i", "interval", "p", "profile":
		name := map[byte]string{'i': "interval", 'p': "profile"}[provider[0]]
		var all []string
		for _, unit := range timerUnits {
			if ok, _ := path.Match(strings.TrimSuffix(rest, ":"), unit); ok || rest == "" {
				all = append(all, name+":"+unit+":")
			}
		}
		return all, nil
	case "s", "software", "h", "hardware":
		name := syntax.Providers[provider]
		var all []string
		for _, event := range point.Events(name) {
			if ok, _ := path.Match(strings.TrimSuffix(rest, ":"), event); ok || rest == "" {
				all = append(all, name+":"+event+":")
			}
		}
		return all, nil
	case "begin", "BEGIN", "end", "END":
		return []string{strings.ToLower(provider)}, nil
	case "self":
		if ok, _ := path.Match(strings.TrimSuffix(rest, ":*"), "signal"); !ok && rest != "" && rest != "signal:SIGUSR1" {
			return nil, nil
		}
		return []string{"self:signal:SIGUSR1"}, nil
	case "t", "tracepoint":
		category, name, _ := strings.Cut(rest, ":")
		return listTracepoints(category, name, verbose), nil
	case "k", "kprobe", "kr", "kretprobe", "f", "fentry", "kfunc", "fr", "fexit", "kretfunc":
		kernel, err := systemKernel()
		if err != nil {
			return nil, err
		}
		return kernel.List(pattern, verbose)
	case "test", "bench":
		return []string{pattern}, nil // of a script
	default:
		return nil, fmt.Errorf("%s: its places cannot be listed without a kernel that is named (-k)", provider)
	}
	target, name := rest, point.Name{Pattern: "*"}
	parts := syntax.SplitParts(rest)
	switch {
	case len(parts) > 1:
		target, name = parts[0].Text, point.NameOf(parts[1:])
	case pid != 0:
		target, name = "*", point.NameOf(parts)
	default:
		target = parts[0].Text
	}
	paths, err := filesOf(target, pid)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, path := range paths {
		some, err := listFunctions(provider, path, name, verbose && provider == "uprobe")
		if err != nil && len(paths) == 1 {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// listFunctions are those of a target's file that a pattern matches; with their parameters, as far as debug data tells
// them, where these are asked for.
func listFunctions(provider string, target targetFile, name point.Name, parameters bool) (all []string, err error) {
	told := map[string][]string{} // of each name
	err = target.read(func(file *symbol.File) {
		path := target.told
		for _, sym := range debug.Match(file, name) {
			if sym.Kind == symbol.Func {
				told[provider+":"+path+":"+debug.Told(sym, name)] = nil
			}
		}
		if !parameters {
			return
		}
		for _, f := range debug.Of(file).Functions(name) {
			var lines []string
			for _, p := range f.Params {
				lines = append(lines, "    "+p.C+" "+p.Name)
			}
			if len(lines) > 0 { // of a name's versions some may have none
				told[provider+":"+path+":"+f.Name] = lines
			}
		}
	})
	for _, name := range slices.Sorted(maps.Keys(told)) {
		all = append(append(all, name), told[name]...)
	}
	return all, err
}

// listProviders lists the places of the providers that a pattern matches: those of a process or of a file that the rest
// names, or else those that need none.
func listProviders(provider, rest string, verbose bool, pid int) (all []string, err error) {
	of := []string{"begin", "end", "self", "interval", "profile", "software", "hardware", "tracepoint"}
	if pid != 0 || strings.Contains(rest, "/") {
		of = []string{"uprobe", "uretprobe", "usdt"}
		if provider == "*" {
			of = []string{"uprobe", "usdt"} // each function is listed once
		}
		if rest == "" {
			rest = "*"
		}
	}
	for _, name := range of {
		if ok, _ := path.Match(provider, name); !ok {
			continue
		}
		if rest != "" && (name == "begin" || name == "end") && strings.Trim(rest, "*:") != "" {
			continue
		}
		some, err := List(name+":"+rest, verbose, pid)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	if len(of) > 3 { // of no files
		k, err := systemKernel()
		if err != nil {
			return all, nil // it does not show them to everybody
		}
		pattern := provider
		if rest != "" {
			pattern += ":" + rest
		}
		some, err := k.list(pattern, verbose)
		if err != nil {
			return nil, err
		}
		there := map[string]bool{}
		for _, name := range all {
			there[name] = true
		}
		all = append(all, slices.DeleteFunc(some, func(name string) bool { return there[name] })...)
	}
	return all, nil
}

// listTracepoints are those of system calls.
func listTracepoints(category, name string, verbose bool) (all []string) {
	if category == "" {
		category = "*"
	}
	if name == "" {
		name = "*"
	}
	for _, t := range point.Tracepoints(category, name) {
		all = append(all, t.Name)
		for _, p := range t.Params {
			if verbose {
				all = append(all, "    "+p.C+" "+p.Name)
			}
		}
	}
	return all
}

// findFile finds the file of an attach point's target: a path, a command, or a library by
// its name up to ".so".
func findFile(target string) (string, error) {
	if strings.Contains(target, "/") {
		return filepath.Abs(target)
	}
	for _, dir := range libraryFolders {
		for _, name := range []string{target, target + ".so.*", "lib" + target + ".so.*", target + ".so"} {
			if found, err := filepath.Glob(filepath.Join(dir, name)); err == nil && len(found) > 0 {
				return found[0], nil
			}
		}
	}
	path, err := exec.LookPath(target)
	if err != nil {
		return "", fmt.Errorf("no program or library %q", target)
	}
	return path, nil
}
