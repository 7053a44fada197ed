package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// passedHead has a call that leaves nothing in registers that calls may change, and the ways in which functions are called.
const passedHead = `#include <stdio.h>
volatile long sink;
static int calls, until;
static void nothing(void) {}
static void (*volatile pause)(void) = nothing;
typedef long (*called)(int depth, long a, unsigned b, signed char c);
static __attribute__((noinline)) long through(called f, int depth, long a) { long r = f(depth, a, 5, -1); return r + f(depth, a + 1, 6, -2); }
`

// passedProgram writes a program of n functions that call each other in all ways with what they were passed and with what
// they make of that, and which give up their parameters. Each prints these when it is entered. lines are those on which they
// have given them up.
func passedProgram(n int, seed uint64, lines []int) string {
	r := rand.New(rand.NewPCG(seed, 24))
	var b strings.Builder
	line := 1
	write := func(format string, args ...any) {
		text := fmt.Sprintf(format, args...)
		line += strings.Count(text, "\n")
		b.WriteString(text)
	}
	one := func(of ...string) string { return of[r.IntN(len(of))] }
	write("%s", passedHead)
	write("static long cells[4], *last = cells;\n")
	write("static __attribute__((noinline)) void change(long a) { *last += a; cells[a & 3]++; }\n")
	write("static long other(long a) { sink += a; return a * 2; }\nstatic called table[%d];\nstatic called volatile late[%d];\n", n, n)
	for f := range n {
		write("long f%d(int depth, long a, unsigned b, signed char c);\n", f)
	}
	for f := range n {
		args := func() string {
			return fmt.Sprintf("depth - 1, %s, %s, %s", one("a", "a + 1", "a * 3", "-a", "b", "a > 3 ? a : c", "77", "c - b", "i", "r", "cells[1]", "*at", "box[0]", "*at + box[1]", "(long)at", "(long)box"),
				one("b", "b + 7", "b ^ depth", "depth", "5", "b % 7", "~b", "i * 9"), one("c", "c + 1", "-c", "depth", "-3", "b & 15", "c < 0 ? 1 : c"))
		}
		call := func() string {
			to := r.IntN(n)
			switch r.IntN(6) {
			case 0:
				return fmt.Sprintf("late[%d](%s)", to, args())
			case 1:
				return fmt.Sprintf("table[b %% %d](%s)", n, args())
			case 2:
				return fmt.Sprintf("through(f%d, depth - 1, %s)", to, one("a", "a + 2", "c", "12"))
			}
			return fmt.Sprintf("f%d(%s)", to, args())
		}
		write("__attribute__((noinline)) long f%d(int depth, long a, unsigned b, signed char c)\n{\n", f)
		box := one("box[2] = {a, b}", "*box = cells", "*box = cells") // one whose address others have keeps the function's frame
		write("\tlong %s, *at = &cells[c & 3], *before = last;\n\tint id = ++calls, i = 0;\n\tlong r = 0;\n\tprintf(\"f%d %%d depth=%%d a=%%ld b=%%u c=%%d\\n\", id, depth, a, b, c);\n", box, f)
		write("\tchange(a);\n\tlast = box;\n\tif (depth > 0 && calls < until)\n\t\tfor (; i < %d; i++)\n\t\t\tr += %s;\n\tlast = before;\n", 1+r.IntN(2), call())
		if r.IntN(2) == 0 {
			write("\tr = other(r) + %s;\n", one("1", "id"))
		}
		if r.IntN(3) == 0 { // it has no further use for what it was passed but to jump on
			write("\tpause();\n")
			lines[f] = line
			write("\tsink = id;\n\tif (id > until + 50)\n\t\treturn r;\n\treturn f%d(0, %s, %s, id);\n}\n", r.IntN(n), one("r", "id", "3"), one("id", "4"))
			continue
		}
		write("\tpause();\n")
		lines[f] = line
		write("\tsink = id;\n\tpause();\n\treturn sink + r;\n}\n")
	}
	write("int main(int argc, char **argv)\n{\n")
	for f := range n {
		write("\ttable[%d] = late[%d] = f%d;\n", f, f, f)
	}
	for f := range n {
		write("\tuntil = calls + 100;\n\tf%d(4, argc + %d, %d * argc, -%d);\n", f, r.IntN(100), r.IntN(100), r.IntN(100))
	}
	write("\treturn 0;\n}\n")
	return b.String()
}

// comparePassed compares what kprobe says that functions were passed with what the program prints, and gives how many values were
// compared and how many of them are known.
func comparePassed(t *testing.T, seed uint64, flags ...string) (all, known int) {
	const n = 12
	dir := t.TempDir()
	path, written := filepath.Join(dir, "passed"), filepath.Join(dir, "events")
	lines := make([]int, n)
	text := passedProgram(n, seed, lines)
	testprog.CompileText(t, path, append(flags, "-g"), "passed.c", text)
	args := []string{"trace", "--no-summary", "-o", written}
	for f, line := range lines {
		args = append(args, fmt.Sprintf("p:ev%d passed.c:%d id $arg*", f, line))
	}
	res := run(t, append(args, "--", path)...)
	events, err := os.ReadFile(written)
	if err != nil {
		t.Fatalf("%v, %v", err, res)
	}
	want := valuesOf(`(?m)^(f\d+ \d+) (.*)$`, strings.Join(res.Lines, "\n"))
	for _, m := range regexp.MustCompile(`(?m) ev(\d+): \(.*?\) id=(\d+) (.*)$`).FindAllStringSubmatch(string(events), -1) {
		call := fmt.Sprintf("f%s %s", m[1], m[2])
		if len(want[call]) != 1 {
			t.Fatalf("%v, seed %d: the program prints %q of %s\n%.3000v", flags, seed, want[call], call, res)
		}
		is := strings.Fields(want[call][0])
		for _, have := range strings.Fields(strings.NewReplacer(`"<optimized out>"`, "()", "optimized out", "").Replace(m[3])) {
			all++
			switch {
			case slices.Contains(is, have):
				known++
			case !strings.HasSuffix(have, "=()"):
				t.Errorf("%v, seed %d: %s: %q, and the program has %q", flags, seed, call, m[3], is)
			}
		}
	}
	return all, known
}

// TestPassed holds that what functions were passed, and have given up since, is what the program prints, or is said to be
// optimized out.
func TestPassed(t *testing.T) {
	ways, seeds := [][]string{{"gcc", "-O2"}, {"clang", "-O2"}}, []int{3} // of this one clang tells values that were not passed
	if !testing.Short() {
		seeds = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
		ways = append(ways, []string{"gcc", "-O1"}, []string{"gcc", "-O3", "-fno-omit-frame-pointer"}, []string{"gcc", "-Os"}, []string{"gcc", "-O2", "-gdwarf-4"},
			[]string{"clang", "-Os"}, []string{"gcc", "-O2", "-flto"})
	}
	for _, way := range ways {
		all, known := 0, 0
		for _, seed := range seeds {
			a, k := comparePassed(t, uint64(seed), way...)
			all, known = all+a, known+k
		}
		t.Logf("%v: %d of %d values are known", way, known, all)
		if known < all/6 || all < 500 {
			t.Errorf("%v: only %d of %d values are known", way, known, all)
		}
	}
}
