package source

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// said is all that debug data says of a program of list.c and split.c: functions with their copies, lines, and where each
// variable is at each instruction that begins a line.
func said(t *testing.T, f *File) []string {
	t.Helper()
	var show func(e *Expr) string
	show = func(e *Expr) string {
		if e == nil {
			return "-"
		}
		return fmt.Sprintf("(%d %#x %d %s %s %s)", e.Op, e.N, e.Size, show(e.A), show(e.B), e.What)
	}
	var where func(l Location) string
	where = func(l Location) string {
		s := fmt.Sprintf("%s %s %x", show(l.Memory), show(l.Value), l.Bytes)
		for _, p := range l.Pieces {
			s += fmt.Sprintf(" [%d %s]", p.Bits, where(p.Location))
		}
		return s
	}
	var out []string
	say := func(p Point) {
		for _, v := range f.Variables(p) {
			l, err := v.Where()
			out = append(out, fmt.Sprintf("%#x: %s %v %s %v", p.Addr, v.Name, v.Type, where(l), err))
		}
	}
	for _, name := range []string{"work", "twice", "main", "weigh", "chain", "far_away"} {
		fns, err := f.Function(name, "")
		if err != nil {
			t.Fatal(err)
		}
		for _, fn := range fns {
			out = append(out, fmt.Sprint(fn.Name, filepath.Base(fn.File), fn.Line, f.Lines(fn)))
			for _, c := range fn.Copies {
				out = append(out, fmt.Sprintf("%s %#x %#x %#x", name, c.Entry, c.Body, c.Ranges))
				say(c.Point())
				for _, r := range c.Ranges {
					for pc := r[0]; pc < r[1]; pc++ {
						say(Point{Addr: pc})
						for _, fr := range f.Frames(pc) {
							out = append(out, fmt.Sprint(pc, fr.Func, filepath.Base(fr.File), fr.Line, fr.Inlined, fr.At))
						}
					}
				}
			}
		}
	}
	for _, name := range []string{"counter", "tls"} {
		v := f.global(0, name)
		if v == nil {
			t.Fatal("no ", name)
		}
		l, err := v.Where()
		out = append(out, name, v.Type.String(), where(l), fmt.Sprint(err))
	}
	return out
}

const types = " -fdebug-types-section"

// TestSplit holds that debug data that is split off says what it says in the file: as .dwo files, and as a package, and with
// types in units of their own. Of gcc's with DWARF 5 there are no packages here: binutils 2.40's dwp dies of it, and LLVM 14's
// does not come to an end.
func TestSplit(t *testing.T) {
	list, err1 := filepath.Abs("testdata/list.c")
	other, err2 := filepath.Abs("testdata/split.c")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	for _, b := range []struct{ cc, pack string }{
		{"gcc -O0 -gdwarf-4", "dwp"}, {"gcc -O2 -gdwarf-4", "dwp"}, {"clang -O2 -gdwarf-4", "dwp"},
		{"gcc -O0 -gdwarf-5", ""}, {"gcc -O2 -gdwarf-5", ""}, {"clang -O2 -gdwarf-5", "llvm-dwp"},
		{"gcc -O2 -gdwarf-4" + types, "dwp"}, {"clang -O2 -gdwarf-4" + types, "dwp"},
		{"gcc -O2 -gdwarf-5" + types, ""}, {"clang -O2 -gdwarf-5" + types, "llvm-dwp"},
	} {
		t.Run(b.cc, func(t *testing.T) {
			dir := t.TempDir()
			one, typed := strings.CutSuffix(b.cc, types)
			if testing.Short() && !slices.Contains([]string{"gcc -O0 -gdwarf-5", "gcc -O2 -gdwarf-4" + types, "clang -O2 -gdwarf-5" + types}, b.cc) {
				return // each compiler, each version, each packer and units of types are in one of them
			}
			cc := strings.Fields(one)
			compile := func(to string, flags ...string) string {
				path := filepath.Join(dir, to)
				args := append(slices.Clone(cc[1:]), flags...)
				var objects []string
				for _, src := range []string{list, other} {
					o := filepath.Join(dir, to+"-"+strings.TrimSuffix(filepath.Base(src), ".c")+".o")
					run(t, cc[0], append(slices.Clone(args), "-c", "-o", o, src)...)
					objects = append(objects, o)
				}
				run(t, cc[0], append(objects, "-o", path)...)
				return path
			}
			whole := said(t, open(t, compile("whole")))
			flags := strings.Fields(strings.TrimPrefix(b.cc, one))
			path := compile("split", append(flags, "-gsplit-dwarf")...)
			same := func(how, path string) {
				t.Helper()
				got := said(t, open(t, path))
				unknown := 0 // GCC 12 with DWARF 4 writes -1 for the length of some entries of one byte
				for i := range min(len(whole), len(got)) {
					if one == "gcc -O2 -gdwarf-4" && whole[i] != got[i] && strings.Contains(got[i], "is optimized out here") && unknown < 10 {
						unknown++
						continue
					}
					if whole[i] != got[i] {
						t.Errorf("%s: %s, unsplit %s", how, got[i], whole[i])
						break
					}
				}
				if len(got) != len(whole) || len(got) < 200 {
					t.Errorf("%s: %d things, unsplit %d", how, len(got), len(whole))
				}
			}
			if typed {
				same("types apart", compile("typed", flags...))
			}
			same("files", path)
			if b.pack != "" {
				run(t, b.pack, "-e", path, "-o", path+".dwp")
			}
			dwos, _ := filepath.Glob(filepath.Join(dir, "split-*.dwo"))
			if len(dwos) != 2 {
				t.Fatal(dwos)
			}
			for _, d := range dwos {
				if err := os.Rename(d, d+".away"); err != nil {
					t.Fatal(err)
				}
			}
			if b.pack != "" {
				same("package", path)
				if err := os.Remove(path + ".dwp"); err != nil {
					t.Fatal(err)
				}
			}
			missing := func(why string) {
				t.Helper()
				_, err := open(t, path).Function("chain", "")
				if err == nil || !strings.Contains(err.Error(), "split off") || !strings.Contains(err.Error(), why) {
					t.Errorf("%v, want %s", err, why)
				}
			}
			missing("and 1 more")
			for i, d := range dwos { // each in the other's place
				if err := os.Rename(d+".away", dwos[1-i]); err != nil {
					t.Fatal(err)
				}
			}
			missing("of another compilation")
		})
	}
}
