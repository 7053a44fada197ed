package script

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"kprobe/symbol"
)

// libraryFolders are where a library is looked for that is named without its path.
var libraryFolders = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// List names the attach points that a pattern such as "uprobe:libc:mall*" matches, in the
// files themselves: no process is needed. Errors: no such file; a provider whose places
// no file tells.
func List(pattern string) ([]string, error) {
	provider, rest, _ := strings.Cut(pattern, ":")
	switch provider {
	case "u", "uprobe":
		provider = "uprobe"
	case "ur", "uretprobe":
		provider = "uretprobe"
	default:
		return nil, fmt.Errorf("%s: only the places of uprobe and uretprobe can be listed yet", provider)
	}
	target, function, ok := strings.Cut(rest, ":")
	if !ok {
		function = "*"
	}
	path, err := findFile(target)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	file, err := symbol.Open(f, nil)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var all []string
	for _, sym := range file.Match(function) {
		if sym.Kind == symbol.Func {
			all = append(all, provider+":"+path+":"+sym.Name)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
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
