package script

import (
	"os"
	"slices"
	"strings"
	"sync"

	"kprobe/symbol"
)

// traceable has the functions that the kernel's own tracers take, for root.
const traceable = "/sys/kernel/tracing/available_filter_functions"

// systemKernel is the kernel that runs, as far as it shows its functions and types. Its functions can be listed; to be probed a
// kernel has to be behind a stub. It is read once: that takes a while.
var systemKernel = sync.OnceValues(readSystemKernel)

func readSystemKernel() (Listed, error) {
	k := Listed{}
	if text, err := os.ReadFile(traceable); err == nil {
		for line := range strings.Lines(string(text)) {
			name, _, _ := strings.Cut(strings.TrimSpace(line), " ") // a module's name may follow
			k.Functions = append(k.Functions, name)
		}
	} else if text, err = os.ReadFile("/proc/kallsyms"); err == nil {
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 2 && strings.ContainsAny(fields[1], "tTwW") {
				k.Functions = append(k.Functions, fields[2])
			}
		}
	} else {
		return k, err
	}
	slices.Sort(k.Functions)
	k.Functions = slices.Compact(k.Functions)
	types := &kernelTypes{file: os.Getenv("BPFTRACE_BTF")}
	if _, err := types.known(); err == nil {
		k.Types = types.spec
	}
	return k, nil
}

// functions are the kernel's, by their names.
func (k Listed) functions() []string {
	if k.Session == nil {
		return k.Functions
	}
	var names []string
	for _, loc := range k.Session.Symbols().Match("", "*") {
		if loc.Func.Kind == symbol.Func {
			names = append(names, loc.Func.Name)
		}
	}
	return names
}
