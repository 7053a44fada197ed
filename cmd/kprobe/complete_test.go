package main

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// offered is what a shell would offer for the last of words.
func offered(t *testing.T, words ...string) []string {
	t.Helper()
	r := run(t, append([]string{"__complete"}, words...)...)
	return slices.DeleteFunc(r.Lines, func(l string) bool { return strings.HasPrefix(l, ":") })
}

func TestCompletion(t *testing.T) {
	path := compiledSource(t, "gcc", "-O2", "-g", "list.c")
	if got, want := offered(t, "funcs", path, "tw"), []string{"twice"}; !slices.Equal(got, want) {
		t.Errorf("functions of a file: %q, want %q", got, want)
	}
	if got := offered(t, "lines", path, ""); !slices.Contains(got, "main") || !slices.Contains(got, "work") {
		t.Errorf("all functions of a file: %q", got)
	}
	p := testprog.Start(t, testprog.Build(t, "jumpers", "-O2"))
	pid := fmt.Sprint(p.Pid)
	if got := offered(t, "top", "-p", pid[:len(pid)-1]); !slices.ContainsFunc(got, func(l string) bool { return l == pid+"\tjumpers" }) {
		t.Errorf("processes: %q, which have no %s", got, pid)
	}
	for _, c := range []struct{ word, want string }{
		{"mai", "main"}, {"libc.so.6:mallo", "libc.so.6:malloc"}, {"libc.s", "libc.so.6:"}, {"p:ev mai", "p:ev main"},
	} {
		for _, verb := range []string{"trace", "top", "graph"} {
			if got := offered(t, verb, "-p", pid, c.word); !slices.Contains(got, c.want) {
				t.Errorf("%s %s: %q, want %s", verb, c.word, got, c.want)
			}
		}
	}
	if got := offered(t, "top", "-p", "999999999", "mai"); len(got) != 0 {
		t.Errorf("of a process that is not there: %q", got)
	}
}

// TestCompletionInBash has bash itself complete.
func TestCompletionInBash(t *testing.T) {
	path := compiledSource(t, "gcc", "-O2", "-g", "list.c")
	bin := testprog.Command(t, "kprobe/cmd/kprobe")
	script := `
_get_comp_words_by_ref() { cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" words=("${COMP_WORDS[@]}") cword=$COMP_CWORD; }
compopt() { :; }
__ltrim_colon_completions() { :; }
source <("$1" completion bash)
COMP_WORDS=("$1" vars "$2" tw) COMP_CWORD=3 COMP_LINE="$1 vars $2 tw" COMP_POINT=${#COMP_LINE} COMP_TYPE=9
__start_kprobe
printf '%s\n' "${COMPREPLY[@]}"`
	b, err := exec.Command("bash", "-c", script, "bash", bin, path).CombinedOutput()
	if err != nil || strings.TrimSpace(string(b)) != "twice" {
		t.Errorf("%v %q, want twice", err, b)
	}
}
