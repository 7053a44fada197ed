package kprobe_test

import (
	"flag"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// Adding a machine is a record in internal/machine and what that has. So the rest of the code names
// no machine: it asks the record, or a fact of arch.Arch.

// machineFolders may name machines: they are of one each, or have a row for each.
var machineFolders = []string{
	"internal/machine", "internal/cpu", "internal/isa/*", "internal/lifeline", "internal/jit", "internal/inject/*", "internal/tracee", "internal/conform",
}

// machineFiles may, too, as they do a machine's own work or have a row for each. The list only shrinks.
var machineFiles = []string{
	"internal/gen/reads.go",
	"script/machine/machine.go",
	"script/syscalls.go",
}

// machineNames are the machines' names in package arch.
var machineNames = []string{"AMD64", "I386", "ARM64", "RISCV64", "S390X", "PPC64LE", "MIPS64LE", "MIPSLE", "PPC"}

func selects(n ast.Node, pkg string, names ...string) bool {
	s, ok := n.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && slices.Contains(names, s.Sel.Name)
}

// checkRecords holds that machines are named where they may be, and that none is looked up by its facts.
func checkRecords(files []source) (broken []string) {
	naming := map[string]bool{}
	for _, f := range files {
		may := f.test() || slices.Contains(machineFiles, f.path) || slices.ContainsFunc(machineFolders, func(p string) bool { return fits(p, f.dir) })
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.MapType:
				if star, ok := n.Key.(*ast.StarExpr); ok && selects(star.X, "arch", "Arch") {
					broken = append(broken, f.at(n.Pos())+": a map of machines; a part of a machine is in its record, internal/machine")
				}
			case *ast.SelectorExpr:
				if !selects(n, "arch", machineNames...) {
					break
				}
				if naming[f.path] = true; !may {
					broken = append(broken, fmt.Sprintf("%s: %s names a machine; ask its record, internal/machine, or a fact of it", f.at(n.Pos()), f.path))
				}
			}
			return true
		})
	}
	for _, p := range machineFiles {
		if !naming[p] && len(files) > 1 {
			broken = append(broken, p+" names no machine any more: take it out of machineFiles")
		}
	}
	return broken
}

func TestMachinesAreRecords(t *testing.T) {
	files := read(t, os.DirFS("."))
	for _, b := range checkRecords(files) {
		t.Error(b)
	}
	var all []string
	for _, f := range files {
		if f.dir == "arch" && !f.test() {
			all = append(all, machinesOf(f)...)
		}
	}
	if slices.Sort(all); !slices.Equal(all, slices.Sorted(slices.Values(machineNames))) {
		t.Errorf("package arch has %v, and machineNames has %v", all, machineNames)
	}
}

// machinesOf are the names of the machines that a file of package arch declares.
func machinesOf(f source) (names []string) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || len(v.Values) != 1 {
			return true
		}
		if u, ok := v.Values[0].(*ast.UnaryExpr); ok && u.Op == token.AND {
			if c, ok := u.X.(*ast.CompositeLit); ok && fmt.Sprint(c.Type) == "Arch" {
				names = append(names, v.Names[0].Name)
			}
		}
		return true
	})
	return names
}

// The rule is shown files that break it, and files that do not.
func TestMachinesRuleIsHeld(t *testing.T) {
	for _, tt := range []struct{ path, text, want string }{
		{"event/x.go", `package event; var A = arch.AMD64`, "names a machine"},
		{"event/x.go", `package event; var A = arch.AMD64.SP`, "names a machine"},
		{"event/x.go", `package event; var A = arch.SP`, ""},
		{"event/x_test.go", `package event; var A = arch.AMD64`, ""},
		{"internal/isa/arm64/x.go", `package arm64; var A = arch.ARM64`, ""},
		{"internal/cpu/x.go", `package cpu; var A = arch.ARM64`, ""},
		{"internal/jit/x.go", `package jit; var A map[*arch.Arch]int`, "a map of machines"},
		{"internal/jit/x_test.go", `package jit; var A = map[*arch.Arch]int{}`, "a map of machines"},
		{"internal/jit/x.go", `package jit; var A map[string]*arch.Arch`, ""},
	} {
		got := checkRecords(read(t, fstest.MapFS{tt.path: {Data: []byte(tt.text)}}))
		if ok := tt.want == "" && len(got) == 0 || tt.want != "" && len(got) == 1 && strings.Contains(got[0], tt.want); !ok {
			t.Errorf("%s %s: got %q, want %q", tt.path, tt.text, got, tt.want)
		}
	}
}

// hostMachines are the machines on which processes are probed. This is the one list: where it changes,
//
//	go test . -run TestBuiltFor -args -built-for
//
// gives the files of hostFolders the build tag that follows. Those for some of the machines only say
// which.
var hostMachines = []string{"amd64", "arm64", "ppc64le", "riscv64", "s390x"}

var writeTags = flag.Bool("built-for", false, "TestBuiltFor writes the build tags of hostMachines into files")

// tagged is a file's build tag, and where it stands.
var tagged = regexp.MustCompile(`(?m)^//go:build (.*)$`)

// retag gives a file the tag of all machines, if it has that of anchor, or what is not that; and
// tells what is wrong with any other.
func retag(text, anchor string, machines []string) (out string, err error) {
	m := tagged.FindStringSubmatch(text)
	if m == nil {
		return text, nil
	}
	all := "linux && (" + strings.Join(machines, " || ") + ")"
	switch tag := m[1]; tag {
	case "linux": // the file's name has the machine
		return text, nil
	case anchor:
		return strings.Replace(text, tag, all, 1), nil
	case "!(" + anchor + ")":
		return strings.Replace(text, tag, "!("+all+")", 1), nil
	default:
		some, ok := strings.CutPrefix(tag, "linux && ")
		named := strings.Split(strings.Trim(some, "()"), " || ")
		switch {
		case !ok:
			return text, fmt.Errorf("the tag %q is none of the machines'", tag)
		case !slices.IsSorted(named):
			return text, fmt.Errorf("the machines of %q are out of order", tag)
		case len(named) >= len(machines):
			return text, fmt.Errorf("%q is not %q", tag, all)
		}
		for _, n := range named {
			if !slices.Contains(machines, n) {
				return text, fmt.Errorf("%q names %s, which is not in hostMachines", tag, n)
			}
		}
		return text, nil
	}
}

// All files for processes are built for the same machines, or for some of them.
func TestBuiltFor(t *testing.T) {
	files := read(t, os.DirFS("."))
	at := slices.IndexFunc(files, func(f source) bool { return f.path == "target/ptrace/process.go" })
	if at < 0 {
		t.Fatal("there is no target/ptrace/process.go, whose tag is that of all machines")
	}
	anchor := tagged.FindStringSubmatch(string(files[at].text))[1]
	for _, f := range files {
		if !slices.Contains(hostFolders, f.dir) {
			continue
		}
		text, err := retag(string(f.text), anchor, hostMachines)
		switch {
		case err != nil:
			t.Errorf("%s: %v", f.path, err)
		case text != string(f.text) && *writeTags:
			if err := os.WriteFile(f.path, []byte(text), 0o644); err != nil {
				t.Error(err)
			}
		case text != string(f.text):
			t.Errorf("%s is not built for %v: go test . -run TestBuiltFor -args -built-for", f.path, hostMachines)
		}
	}
}

func TestTagsAreHeld(t *testing.T) {
	const anchor = "linux && (a || b)"
	more := []string{"a", "b", "c"}
	for _, tt := range []struct{ tag, want string }{
		{anchor, "linux && (a || b || c)"},
		{"!(" + anchor + ")", "!(linux && (a || b || c))"},
		{"linux && (b || c)", "linux && (b || c)"},
		{"linux && c", "linux && c"},
		{"linux && (c || b)", ""},
		{"linux", "linux"},
		{"linux && d", ""},
		{"linux && (a || b || d)", ""},
		{"darwin", ""},
	} {
		text, err := retag("//go:build "+tt.tag+"\n\npackage x\n", anchor, more)
		if want := "//go:build " + tt.want + "\n\npackage x\n"; tt.want == "" && err == nil || tt.want != "" && (err != nil || text != want) {
			t.Errorf("%s: %q, %v; want %q", tt.tag, text, err, tt.want)
		}
	}
}

// docs/PORTING.md lists the files that a machine has, and those that have something of each.
func TestPortingListsTheFiles(t *testing.T) {
	text, err := os.ReadFile("docs/PORTING.md")
	if err != nil {
		t.Fatal(err)
	}
	said := regexp.MustCompile("`([^` \n]+)`").FindAllStringSubmatch(string(text), -1)
	// listed tells whether a file is said, by its name or with MACHINE for a machine's.
	listed := func(p string) bool {
		return slices.ContainsFunc(said, func(m []string) bool {
			pattern := strings.ReplaceAll(m[1], "MACHINE", "*")
			if dir, ok := strings.CutSuffix(pattern, "/"); ok {
				ok, _ := path.Match(dir, path.Dir(p))
				return ok
			}
			ok, _ := path.Match(pattern, p)
			return ok
		})
	}
	own := regexp.MustCompile(`(^|[/_])(` + strings.Join(hostMachines[1:], "|") + `)[_./]`) // x86-64 has more of its own
	for _, f := range read(t, os.DirFS(".")) {
		if f.test() || f.dir == "internal/testprog" {
			continue
		}
		names := false
		ast.Inspect(f.ast, func(n ast.Node) bool {
			names = names || n != nil && selects(n, "arch", machineNames...)
			return true
		})
		if (names || own.MatchString(f.path)) && !strings.Contains(f.path, "amd64") && !strings.Contains(f.path, "i386") && !listed(f.path) {
			t.Errorf("%s is of a machine, or names one: docs/PORTING.md does not list it", f.path)
		}
	}
}

// The files that the next machine touches, besides its own, are at most fifteen, and all exist.
func TestPortingTouchesFewFiles(t *testing.T) {
	const most = 15
	text, err := os.ReadFile("docs/PORTING.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "| touched file | for |\n| --- | --- |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	touched := 0
	for row := range strings.Lines(table) {
		for _, m := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(strings.Split(row, "|")[1], -1) {
			touched++
			if _, err := os.Stat(m[1]); err != nil {
				t.Errorf("docs/PORTING.md: %v", err)
			}
		}
	}
	if !ok || touched == 0 || touched > most {
		t.Errorf("docs/PORTING.md: a new machine touches %d files, and may touch %d", touched, most)
	}
}
