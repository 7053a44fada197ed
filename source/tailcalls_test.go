package source

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// stacksInLeaf has gdb stop wherever leaf is called: a line a frame, with its type, its address and its function, and a blank line below.
const stacksInLeaf = `
import gdb
gdb.execute("set pagination off")
gdb.execute("break *leaf")
gdb.execute("run")
while gdb.selected_inferior().pid:
    f = gdb.newest_frame()
    while f:
        kind = {gdb.TAILCALL_FRAME: "gone", gdb.INLINE_FRAME: "inlined"}.get(f.type(), "normal")
        print("frame: %s %#x %s" % (kind, f.pc(), f.name()))
        f = f.older() if f.name() != "main" else None
    print("frame:")
    gdb.execute("continue")
`

// frameOfGDB is one of gdb's frames.
type frameOfGDB struct {
	kind, name string
	pc         uint64
}

func stacksOfGDB(t *testing.T, path string) (all [][]frameOfGDB) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "stacks.py")
	if err := os.WriteFile(script, []byte(stacksInLeaf), 0o600); err != nil {
		t.Fatal(err)
	}
	var stack []frameOfGDB
	for line := range strings.Lines(gdb(t, path, "source "+script)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "frame:")
		words := strings.Fields(rest)
		switch {
		case !ok:
		case len(words) == 0:
			all, stack = append(all, stack), nil
		default:
			pc, err := strconv.ParseUint(words[1], 0, 64)
			if err != nil {
				t.Fatal(err)
			}
			stack = append(stack, frameOfGDB{words[0], words[2], pc})
		}
	}
	return all
}

// TestMadeWay holds that the functions that have made way are those of the program's text where only one answer is possible, that
// there are none elsewhere, and that they are gdb's where gdb has any.
func TestMadeWay(t *testing.T) {
	want := []struct{ called, stack string }{
		{"leaf", "leaf"},
		{"direct", "leaf"},
		{"one", "leaf one"},
		{"two", "leaf one two"},
		{"either", "leaf one either"},
		{"forked", "leaf"},
		{"even", "leaf"},
		{"anywhere", "leaf"},
		{"perhaps", "leaf"},
		{"around", "leaf within around"},
		{"again", "leaf"},
		{"relay", "leaf"},
	}
	for i, cc := range [][]string{
		{"gcc", "-O2", "-gdwarf-4"}, {"gcc", "-O2", "-gdwarf-5"}, {"gcc", "-Os", "-g"}, {"gcc", "-O2", "-g", "-gsplit-dwarf"}, {"gcc", "-O2", "-g", "-flto"},
		{"clang", "-O2", "-gdwarf-4"}, {"clang", "-O2", "-gdwarf-5"},
	} {
		if testing.Short() && !slices.Contains([]int{1, 4, 5}, i) {
			continue // one of each compiler and version, and one of several units
		}
		t.Run(strings.Join(cc, " "), func(t *testing.T) {
			path := build(t, append(slices.Clone(cc), "-fno-pie", "-no-pie"), "ways.c")
			f := open(t, path)
			theirs := 0
			stacks := stacksOfGDB(t, path)
			if len(stacks) != len(want) {
				t.Fatalf("leaf is called %d times", len(stacks))
			}
			for n, stack := range stacks {
				names := []string{stack[0].name}
				var gone []frameOfGDB // of gdb's
				for i, inner := 1, stack[0]; i < len(stack); i++ {
					at := stack[i]
					if at.kind == "gone" {
						gone = append(gone, at)
						continue
					}
					if at.kind == "inlined" { // in a frame that is gone
						continue
					}
					made := f.MadeWay(at.pc, inner.pc)
					for _, m := range made {
						names = append(names, namesOf(f, m)...)
					}
					if want[n].called == "relay" { // gdb takes the shortest of all ways
						gone = nil
					}
					for j, g := range gone {
						if j >= len(made) || made[j].Behind && made[j].Addr != g.pc || !slices.Contains(namesOf(f, made[j]), g.name) {
							t.Errorf("%s: %v: gdb has %v, of %v", want[n].called, names, gone, stack)
							break
						}
						theirs++
					}
					inner, gone = at, nil
					inner.pc--
				}
				if got := strings.Join(names, " "); got != want[n].stack {
					t.Errorf("%s: %q, want %q", want[n].called, got, want[n].stack)
				}
			}
			if theirs == 0 && cc[0] == "gcc" {
				t.Error("gdb has none at all")
			}
			t.Log(theirs, "of gdb's")
		})
	}
}

// namesOf are a function that has made way and what is inlined at its jump, the innermost first.
func namesOf(f *File, m MadeWay) (names []string) {
	at := m.Entry
	switch {
	case m.Behind:
		at = m.Addr - 1
	case m.Addr != 0:
		at = m.Addr
	}
	for _, fr := range f.Frames(at) {
		names = append(names, fr.Func)
	}
	return names
}

func TestMadeWayNowhere(t *testing.T) {
	f := open(t, build(t, []string{"gcc", "-O2", "-g"}, "ways.c"))
	for _, at := range [][2]uint64{{0, 0}, {1, 1}, {^uint64(0), ^uint64(0)}, {1 << 40, 0x1000}} {
		if got := f.MadeWay(at[0], at[1]); got != nil {
			t.Errorf("%#x: %v", at, got)
		}
	}
}
