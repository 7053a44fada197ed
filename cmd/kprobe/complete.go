package main

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kprobe/internal/proc"
	"kprobe/source/bind"
	"kprobe/symbol"
)

// What a shell completes (kprobe completion bash|zsh|fish): functions and source files of what is probed.

// maxCompleted bounds what a shell is offered: whoever has so many types on.
const maxCompleted = 2000

// completed are the candidates that a word begins.
func completed(all []string, word string) []string {
	out := slices.DeleteFunc(slices.Clone(all), func(s string) bool { return !strings.HasPrefix(s, word) })
	slices.Sort(out)
	out = slices.Compact(out)
	return out[:min(len(out), maxCompleted)]
}

// completePIDs offers processes that are not the kernel's own threads, with their names.
func completePIDs(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	const only = cobra.ShellCompDirectiveNoFileComp
	all, err := os.ReadDir("/proc")
	if err != nil {
		return nil, only
	}
	var out []string
	for _, e := range all {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || !strings.HasPrefix(e.Name(), word) {
			continue
		}
		name, err := proc.Process(pid).Name()
		exe, failed := proc.Process(pid).Readlink("exe")
		if err == nil && failed == nil && exe != "" { // one that may be looked at
			out = append(out, e.Name()+"\t"+strings.Map(printable, strings.TrimSpace(name)))
		}
	}
	return out, only
}

// completePlaces offers functions of the process of -p: those of the program, of MODULE: those of a module, and modules.
// In a definition ("p:name fu") it is the last word that is completed.
func (r *request) completePlaces(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
	const only = cobra.ShellCompDirectiveNoFileComp
	before := word[:strings.LastIndexByte(word, ' ')+1]
	word = word[len(before):]
	switch {
	case r.remote():
		return nil, only
	case len(r.pids) == 0:
		return nil, cobra.ShellCompDirectiveDefault // files, among them programs
	}
	s, err := look(r.pids[0])
	if err != nil {
		return nil, only
	}
	defer s.Close()
	var all []string
	modules := s.Symbols().Modules()
	module := ""
	if m, rest, ok := strings.Cut(word, ":"); ok && !strings.HasPrefix(rest, ":") {
		module = m
	}
	for i, m := range modules {
		if m.File == nil || m.Special {
			continue
		}
		prefix := m.Name + ":"
		if module == "" && i > 0 {
			all = append(all, prefix)
			continue
		}
		if module == "" {
			prefix = ""
		} else if m.Name != module {
			continue
		}
		for _, f := range m.File.Funcs() {
			if f.Name != "" && f.Source != symbol.Plt {
				all = append(all, prefix+symbol.Readable(f.Name))
			}
		}
	}
	out := completed(all, word)
	directive := only
	if len(out) == 1 && strings.HasSuffix(out[0], ":") {
		directive |= cobra.ShellCompDirectiveNoSpace
	}
	for i := range out {
		out[i] = before + out[i]
	}
	return out, directive
}

// completeSource offers a file first, then the functions of its source.
func completeSource(_ *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return nil, cobra.ShellCompDirectiveDefault
	case 1:
		bind.Elsewhere = nil // nobody waits for servers
		if d, err := openSource(args[0]); err == nil {
			return completed(d.Functions(), word), cobra.ShellCompDirectiveNoFileComp
		}
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
