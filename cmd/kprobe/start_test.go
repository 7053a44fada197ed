package main

import (
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// The returns of all functions of a program that is started, be it from before its threads have storage of their own on: it ends as
// it does without them. What it begins with, and what ends a context, was not called, and has no return.
func TestReturnsFromTheStart(t *testing.T) {
	for _, build := range [][]string{
		{"contexts", "-O2"}, {"contexts", "-O2", "-static"}, {"jumpers", "-O2", "CC=musl-gcc"}, {"jumpers", "-O2", "CC=musl-gcc", "-static"}, {"goprog"},
	} {
		t.Run(strings.Join(build, " "), func(t *testing.T) {
			path := testprog.Build(t, build[0], build[1:]...)
			name := filepath.Base(path)
			ends := func(argv ...string) testprog.Result {
				p := testprog.Start(t, path)
				if len(argv) > 0 {
					p = testprog.StartCmd(t, tool(t, argv...))
				}
				p.Send("3")
				r := p.Result()
				r.Lines = slices.DeleteFunc(r.Lines, func(l string) bool { return strings.HasPrefix(l, "ns ") })
				return r
			}
			args := []string{"trace", "--no-summary", "-o", "/dev/null", "r " + name + ":*"}
			if build[0] == "goprog" && testing.Short() { // a stop for each return: not those that come by the thousand
				args = append(args[:len(args)-1], "r goprog:[!r]*", "r goprog:runtime.[gmr][cost0]*", "r goprog:runtime.sig*")
			}
			if runtime.GOARCH == "amd64" && len(build) == 2 {
				args = append(args, "r ld-linux-x86-64.so.2:*")
			}
			want, got := ends(), ends(append(args, "--", path)...)
			if got.Status != want.Status || !slices.Equal(got.Lines, want.Lines) {
				t.Errorf("%v, %q; want %v, %q\n%s", got.Status, got.Lines, want.Status, want.Lines, got.Stderr)
			}
			if !strings.Contains(got.Stderr, "is the program's start") {
				t.Errorf("the start is not refused:\n%s", got.Stderr)
			}
		})
	}
}
