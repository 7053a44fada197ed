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

	"kprobe/internal/proc"
	"kprobe/script/debug"
	"kprobe/script/point"
	"kprobe/symbol"
)

// libraryFolders are where a library is looked for that is named without its path.
var libraryFolders = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// timers are what a pattern of intervals lists.
var timerUnits = []string{"hz", "ms", "s", "us"}

// List names the attach points that a pattern such as "uprobe:libc:mall*" matches, in the
// files themselves: no process is needed. Errors: no such file; a provider whose places
// no file tells.
// With verbose, arguments that are known come behind each, a line each.
func List(pattern string, verbose bool) ([]string, error) {
	provider, rest, _ := strings.Cut(pattern, ":")
	if strings.ContainsAny(provider, "*?[") {
		return listProviders(provider, rest, verbose)
	}
	switch provider {
	case "u", "uprobe":
		provider = "uprobe"
	case "ur", "uretprobe":
		provider = "uretprobe"
	case "U", "usdt":
		return listStatics(rest)
	case "i", "interval", "p", "profile":
		name := map[byte]string{'i': "interval", 'p': "profile"}[provider[0]]
		var all []string
		for _, unit := range timerUnits {
			if ok, _ := path.Match(strings.TrimSuffix(rest, ":"), unit); ok || rest == "" {
				all = append(all, name+":"+unit+":")
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
	case "test", "bench":
		return []string{pattern}, nil // of a script
	default:
		return nil, fmt.Errorf("%s: only the places of uprobe, uretprobe, usdt, self, interval and profile can be listed yet", provider)
	}
	target, function, ok := strings.Cut(rest, ":")
	if !ok {
		function = "*"
	}
	return listFunctions(provider, target, function, verbose && provider == "uprobe")
}

// listFunctions are those of a target's file that a pattern matches; with their parameters, as far as debug data tells
// them, where these are asked for.
func listFunctions(provider, target, pattern string, parameters bool) (all []string, err error) {
	told := map[string][]string{} // of each name
	err = withFile(target, func(file *symbol.File, path string) {
		for _, sym := range file.Match(pattern) {
			if sym.Kind == symbol.Func {
				told[provider+":"+path+":"+sym.Name] = nil
			}
		}
		if !parameters {
			return
		}
		for _, f := range debug.Of(file).Functions(pattern) {
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

// listProviders lists the places that need no file, of the providers that a pattern matches.
func listProviders(provider, rest string, verbose bool) (all []string, err error) {
	for _, name := range []string{"begin", "end", "self", "interval", "profile", "tracepoint"} {
		if ok, _ := path.Match(provider, name); !ok {
			continue
		}
		if rest != "" && (name == "begin" || name == "end") && strings.Trim(rest, "*:") != "" {
			continue
		}
		some, err := List(name+":"+rest, verbose)
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
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

// withFile reads the file of an attach point's target.
func withFile(target string, use func(file *symbol.File, path string)) error {
	path, err := findFile(target)
	if err != nil {
		return err
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	file, err := symbol.Open(f, &symbol.Options{Path: path, Debug: symbol.DebugFinder("/")})
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	use(file, path)
	return nil
}

// statics are the static probes of a target's file: where the process has it, if there is one.
func statics(target string, pid int) (all []point.Static, err error) {
	read := func(file *symbol.File, _ string) {
		for _, p := range file.StaticProbes() {
			s := point.Static{Provider: p.Provider, Name: p.Name, Vaddr: p.Vaddr, Semaphore: p.Semaphore}
			args, _ := symbol.StaticArgs(p.Args) // up to the first that cannot be read
			for _, a := range args {
				s.Args = append(s.Args, point.StaticArg{Size: a.Size, Signed: a.Signed, Memory: a.Memory, Value: a.Value, Base: a.Base, Index: a.Index, Scale: a.Scale})
			}
			all = append(all, s)
		}
	}
	if pid != 0 && strings.HasPrefix(target, "/") {
		inside := proc.Process(pid).File("root" + target)
		if err := withFile(inside, read); err == nil {
			return all, nil
		}
	}
	err = withFile(target, read)
	return all, err
}

// listStatics are those that PATH[:PROVIDER]:NAME matches.
func listStatics(pattern string) ([]string, error) {
	parts := strings.Split(pattern, ":")
	if len(parts) < 2 {
		parts = append(parts, "*")
	}
	provider, name := "*", parts[len(parts)-1]
	if len(parts) > 2 {
		provider = parts[1]
	}
	var all []string
	err := withFile(parts[0], func(file *symbol.File, full string) {
		for _, p := range file.StaticProbes() {
			okP, _ := path.Match(provider, p.Provider)
			okN, _ := path.Match(name, p.Name)
			if okP && okN {
				all = append(all, "usdt:"+full+":"+p.Provider+":"+p.Name)
			}
		}
	})
	slices.Sort(all)
	return slices.Compact(all), err
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
