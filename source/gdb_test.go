package source

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// gdb's answer to commands, without running the program.
func gdb(t *testing.T, path string, commands ...string) string {
	t.Helper()
	args := []string{"-nx", "-batch", "-iex", "set debuginfod enabled off", "-iex", "set width 0"}
	for _, c := range commands {
		args = append(args, "-ex", c)
	}
	return run(t, "gdb", append(args, path)...)
}

var breakpoint = regexp.MustCompile(`(?m)^(\d+)\b.*\s(0x[0-9a-f]{6,})\s+in `)

// places are the addresses where gdb would set breakpoints, of each place that it is asked for.
func places(t *testing.T, path string, at []string) [][]uint64 {
	t.Helper()
	var commands []string
	for _, p := range at {
		commands = append(commands, "break "+p)
	}
	out := make([][]uint64, len(at))
	for _, m := range breakpoint.FindAllStringSubmatch(gdb(t, path, append(commands, "info breakpoints")...), -1) {
		k, _ := strconv.Atoi(m[1])
		n, _ := strconv.ParseUint(m[2], 0, 64)
		out[k-1] = append(out[k-1], n)
	}
	for _, as := range out {
		slices.Sort(as)
	}
	return out
}

// optimized tells the builds whose code says for each instruction where variables are. gdb skips clang's
// prologues all the same, as it was told where they end; we need not.
func optimizedByClang(cc []string) bool { return cc[0] == "clang" && !slices.Contains(cc, "-O0") }

// hasRow tells whether any instruction is said to be of a line.
func hasRow(f *File, file string, line int) bool {
	return slices.ContainsFunc(f.units, func(u *unit) bool {
		return slices.ContainsFunc(f.rows(u), func(r row) bool {
			return !r.end && r.stmt && r.line == line && fileIs(r.file.Name, file)
		})
	})
}

// TestLinesAsGDB holds that a line's code begins where gdb has it begin, in each function and copy.
func TestLinesAsGDB(t *testing.T) {
	text, err := os.ReadFile("testdata/list.c")
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			path := build(t, b.cc, "list.c")
			f := open(t, path)
			var at []string
			var ours [][]uint64
			for n := 1; n <= strings.Count(string(text), "\n"); n++ {
				sites, err := f.Line("list.c", n)
				if err != nil || !hasRow(f, "list.c", n) { // gdb takes the next line's
					continue
				}
				var as []uint64
				entry := false
				for _, s := range sites {
					as = append(as, s.Addr)
					fns, err := f.Function(s.Func, "")
					entry = entry || err == nil && s.Addr == fns[0].Copies[0].Entry
				}
				if entry && optimizedByClang(b.cc) {
					continue
				}
				at, ours = append(at, fmt.Sprintf("list.c:%d", n)), append(ours, as)
			}
			if len(at) < 8 {
				t.Fatalf("%d lines with code", len(at))
			}
			for i, theirs := range places(t, path, at) {
				if !slices.Equal(ours[i], theirs) {
					t.Errorf("%s: %#x, gdb has %#x", at[i], ours[i], theirs)
				}
			}
		})
	}
}

// TestFunctionsAsGDB does it for functions. Of inlined copies, gdb takes the lowest address where the
// compiler's own word for the entry (DW_AT_entry_pc) is outside of the copy: that may be code of a loop's
// header, which was moved there, and runs another number of times.
func TestFunctionsAsGDB(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			path := build(t, b.cc, "list.c")
			f := open(t, path)
			names := []string{"work", "twice", "main"}
			theirs := places(t, path, names)
			for i, name := range names {
				fns, err := f.Function(name, "list.c")
				if err != nil || len(fns) != 1 {
					t.Fatal(fns, err)
				}
				if len(fns[0].Copies) != len(theirs[i]) {
					t.Errorf("%s: %+v, gdb has %#x", name, fns[0].Copies, theirs[i])
					continue
				}
				for _, c := range fns[0].Copies {
					strict := !c.Inlined && !optimizedByClang(b.cc) || c.Inlined && c.Ranges[0][0] <= c.Entry
					if strict && !slices.Contains(theirs[i], c.Body) {
						t.Errorf("%s: %#x, gdb has %#x", name, c.Body, theirs[i])
					}
				}
			}
		})
	}
}
