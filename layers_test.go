package kprobe_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const module = "kprobe"

// layer is one row of layers.
type layer struct {
	pkg string
	may []string
}

// layers says for every package which of the project's packages it may import.
// "." is the root package. A pattern may end in "/*": the packages below. The
// first pattern that fits a package is its row; the order is the layering, low to
// high, and a package without a row is a failure: decide where it belongs.
//
// Test files are free, as far as the language lets them: they import the concrete
// targets and the programs of internal/testprog.
var layers = []layer{
	// 0: facts and values. They know nothing of the project, and so can be read
	// and used alone.
	{"arch", nil},
	{"spec", nil},
	{"symbol", []string{"arch"}},
	{"bpf/printk", nil},
	{"bpf/object", nil},
	{"bpf/tnum", nil},
	{"bpf/layout", nil},
	{"bpf", []string{"bpf/printk", "bpf/object", "bpf/layout"}},
	{"bpf/verify", []string{"bpf", "bpf/tnum"}},
	{"script/syntax", nil},
	{"script/types", nil},
	{"source", nil},
	{"bpf/bpftest", []string{"bpf"}}, // random programs, for the tests of those who run them

	// 1: what the rest is written against.
	{"event", []string{"arch", "spec"}},
	{"target", []string{"arch", "symbol"}},
	{"internal/isa", []string{"arch"}},
	{"internal/asm/*", []string{"arch"}}, // instructions as bytes, one machine each
	{"internal/cpu", []string{"arch"}},
	{"symbol/kernel", []string{"arch", "spec", "symbol", "internal/cpu"}},
	{"source/bind", []string{"arch", "spec", "symbol", "source", "internal/isa", "internal/isa/amd64"}},

	// What tests stand on: of the project it knows nothing.
	{"internal/proc", nil},
	{"internal/memcg", []string{"internal/proc"}},
	{"internal/lifeline", []string{"arch", "internal/asm/*", "internal/proc"}},
	{"internal/mem", []string{"arch"}},
	{"internal/cabi", []string{"arch", "internal/errno"}},
	{"internal/goabi", []string{"arch", "internal/cabi"}},
	{"internal/args", []string{"arch", "internal/cabi", "internal/errno", "internal/goabi", "internal/machine", "symbol"}},
	{"internal/faults", nil},
	{"internal/pool", []string{"bpf"}},
	{"internal/host", nil},
	{"internal/guardian", []string{"internal/patience"}},
	{"internal/seccomp", nil},
	{"internal/tracee", []string{"target", "arch", "internal/faults", "internal/lifeline", "internal/proc", "internal/seccomp"}},
	{"internal/futex", nil},
	{"internal/untouchable", []string{"arch"}},
	{"internal/errno", nil},
	{"internal/later", nil},
	{"internal/missed", nil},
	{"internal/mistakes", nil},
	{"internal/names", nil},
	{"internal/rights", []string{"internal/proc"}},
	{"internal/traced", []string{"symbol", "arch", "internal/isa", "internal/mem", "internal/proc", "internal/rights"}},
	{"internal/unwind", []string{"symbol"}},
	{"internal/leftover", []string{"target", "arch", "symbol", "internal/proc"}},
	{"internal/samples", []string{"internal/proc"}}, // of a process's threads, by the kernel's counters
	{"internal/debuginfod", nil},
	{"internal/patience", []string{"internal/proc"}},
	{"internal/testprog", []string{"internal/patience", "internal/proc"}},
	{"internal/testprog/browser", []string{"internal/testprog"}}, // to look at pages
	{"internal/testprog/cmd/tally", []string{"internal/testprog"}},
	{"internal/testprog/cases", []string{"internal/proc", "internal/testprog"}},
	{"internal/testprog/cmd/cases", []string{"internal/testprog/cases"}},
	{"internal/testprog/*", nil},

	// 2: one machine, one kind of target. None knows another.
	{"internal/isa/*", []string{"internal/isa", "internal/isa/classes", "internal/asm/*", "arch"}},
	{"target/kernel", []string{"target", "arch", "internal/asm/*", "internal/cpu", "spec", "symbol", "symbol/kernel", "target/gdbremote", "internal/guardian", "internal/lifeline"}},
	{"target/targettest", []string{"target", "arch"}},
	{"target/*", []string{"target", "arch", "symbol", "internal/cpu", "internal/guardian", "internal/lifeline", "internal/faults", "internal/host", "internal/proc", "internal/seccomp", "internal/futex", "internal/leftover", "internal/memcg", "internal/patience", "internal/rights", "internal/tracee"}},

	// 3: plans and code, still without a target to touch.
	{"internal/patch", []string{"internal/isa", "arch"}},
	{"internal/planned", []string{"arch"}}, // the words for it
	{"internal/returns", []string{"internal/patch", "internal/isa", "symbol", "arch"}},
	{"internal/jumps", []string{"internal/patch", "internal/isa", "symbol", "arch"}},
	{"internal/btftext", nil}, // values by BTF
	{"internal/gen", []string{"bpf", "bpf/layout", "event", "spec", "arch"}},
	{"internal/jit", []string{"bpf", "bpf/layout", "arch", "internal/asm/*"}},
	{"internal/machine", []string{"arch", "internal/isa", "internal/isa/*", "internal/cabi", "internal/cpu", "internal/goabi", "internal/untouchable", "internal/lifeline", "internal/jit", "internal/inject", "internal/inject/*", "internal/errno"}}, // one record each
	{"internal/inside", []string{"bpf", "bpf/verify", "arch", "target", "internal/isa", "internal/machine", "internal/patch", "internal/jit", "internal/segment", "internal/inject", "internal/returns"}},
	{"internal/segment", []string{"arch", "bpf", "internal/jit"}},
	{"internal/inject", []string{"internal/jit", "internal/segment", "bpf", "bpf/layout", "arch", "internal/isa"}},
	{"internal/inject/*", []string{"internal/inject", "internal/jit", "internal/segment", "bpf", "bpf/layout", "arch", "internal/asm/*"}}, // one machine each, or a family

	// What the engine stands on, one idea each: the program that is looked at, memory of
	// ours in the target, and what stands in the program's text. They have a target to read
	// and write, and know nothing of probes.
	{"internal/image", []string{"arch", "symbol", "target", "internal/errno", "internal/isa", "internal/machine", "internal/mem", "internal/patch", "internal/jumps", "internal/returns", "internal/goabi", "internal/untouchable"}},
	{"internal/calls", []string{"arch", "symbol", "internal/errno", "target", "internal/mem", "internal/patch", "internal/returns"}},
	{"internal/room", []string{"arch", "target", "internal/errno", "internal/patch"}},
	{"internal/kind", []string{"arch", "target", "internal/isa", "internal/patch", "internal/planned", "internal/segment", "internal/inside"}},
	{"internal/owner", []string{"target", "internal/errno", "internal/patience"}},
	{"internal/linker", []string{"arch", "symbol", "internal/image"}},
	{"internal/placing", []string{"arch", "bpf", "symbol", "internal/errno"}},
	{"internal/text", []string{"arch", "symbol", "target", "internal/errno", "internal/mem", "internal/patch", "internal/inside", "internal/lifeline"}},

	{"internal/change", []string{"arch", "target"}},
	{"internal/watched", []string{"arch", "target", "internal/change", "internal/errno", "internal/owner"}},
	{"internal/probed", []string{"arch", "symbol", "internal/change", "internal/inside", "internal/patch", "internal/room", "internal/text"}},

	{"internal/ground", []string{"arch", "symbol", "target", "internal/errno", "internal/image", "internal/isa", "internal/kind", "internal/machine", "internal/owner", "internal/patch", "internal/probed", "internal/room", "internal/text"}},
	{"internal/within", []string{"arch", "symbol", "target", "internal/errno", "internal/ground", "internal/image", "internal/segment", "internal/inside", "internal/machine", "internal/mem", "internal/patch", "internal/probed", "internal/returns", "internal/room"}},
	{"internal/parts", []string{"arch", "internal/change", "internal/errno", "internal/ground", "internal/image", "internal/inside", "internal/mem", "internal/patch", "internal/probed", "internal/room", "internal/text", "internal/within"}},
	{"internal/turns", []string{"target", "internal/errno", "internal/ground", "internal/later", "internal/owner"}},
	{"internal/listing", []string{"arch", "symbol", "internal/probed", "internal/text"}},
	{"internal/links", []string{"arch", "symbol", "internal/change", "internal/errno", "internal/inside", "internal/machine", "internal/parts", "internal/patch", "internal/probed", "internal/text"}},
	{"internal/standing", []string{"arch", "symbol", "target", "internal/errno", "internal/ground", "internal/patch", "internal/probed", "internal/within"}},
	{"internal/stops", []string{"arch", "target", "internal/calls", "internal/ground", "internal/inside", "internal/isa", "internal/probed", "internal/room", "internal/standing", "internal/text", "internal/within"}},
	{"internal/optimize", []string{"arch", "symbol", "target", "internal/change", "internal/image", "internal/inside", "internal/parts", "internal/patch", "internal/planned", "internal/probed", "internal/text", "internal/within"}},

	{"internal/roles", []string{"arch", "bpf", "symbol", "target", "internal/args", "internal/calls", "internal/errno", "internal/goabi", "internal/ground", "internal/image", "internal/segment", "internal/inside", "internal/kind", "internal/links", "internal/listing", "internal/machine", "internal/mem", "internal/patch", "internal/pool", "internal/probed", "internal/returns", "internal/watched", "internal/within"}},
	{"internal/engine", []string{"arch", "bpf", "symbol", "target", "internal/calls", "internal/errno", "internal/ground", "internal/image", "internal/inside", "internal/later", "internal/lifeline", "internal/linker", "internal/links", "internal/listing", "internal/names", "internal/optimize", "internal/owner", "internal/parts", "internal/placing", "internal/planned", "internal/probed", "internal/returns", "internal/roles", "internal/standing", "internal/stops", "internal/text", "internal/traced", "internal/turns", "internal/within"}},

	// Scripts become programs, and what programs send becomes text.
	{"script/calls", nil},
	{"script/asm", []string{"bpf"}},
	{"script/machine", []string{"arch", "bpf"}},
	{"script/settings", nil},
	{"script/headers", []string{"script/calls"}},
	{"script/macro", []string{"script/syntax"}},
	{"script/imports", []string{"script/syntax"}},
	{"script/point", []string{"script/calls", "script/machine", "script/syntax", "script/types", "bpf", "symbol"}},
	{"script/plan", []string{"script/point", "script/settings", "script/syntax", "script/types", "bpf"}},
	{"script/cdecl", []string{"script/headers", "script/syntax", "script/types"}},
	{"script/compile", []string{"script/asm", "script/cdecl", "script/headers", "script/imports", "script/plan", "script/machine", "script/point", "script/settings", "script/macro", "script/syntax", "script/types", "bpf"}},
	{"script/builtin", []string{"script/compile", "script/plan", "script/point", "script/settings", "script/syntax", "script/types", "bpf"}},
	{"script/output", []string{"script/types"}},
	{"script/debug", []string{"script/machine", "script/point", "script/types", "arch", "symbol", "source", "source/bind"}},

	// 4: the API. The caller passes a target in, so that none is favoured.
	{".", []string{"arch", "symbol", "bpf", "target", "internal/args", "internal/cabi", "internal/calls", "internal/engine", "internal/errno", "internal/kind", "internal/lifeline", "internal/listing",
		"internal/machine", "internal/mem", "internal/mistakes", "internal/placing", "internal/planned", "internal/pool", "internal/returns", "internal/roles", "internal/traced", "internal/turns", "internal/unwind"}},

	// What probes record, in files and in order. It has no target.
	{"recording", []string{"arch", "event", "bpf", "bpf/layout", "internal/gen"}},

	// 5: users of the engine. Nothing below imports them.
	{"trace", []string{".", "arch", "spec", "symbol", "event", "bpf", "internal/gen", "internal/samples", "recording", "source", "source/bind"}},
	{"graph", []string{"event", "spec", "symbol"}},
	{"view", []string{"arch", "event", "spec", "graph"}}, // pictures and files for others
	{"view/live", nil}, // a page that lives, served: it knows figures and names, not where they come from
	{"script", []string{".", "arch", "symbol", "bpf", "bpf/verify", "script/builtin", "script/calls", "script/imports", "script/syntax", "script/types", "script/compile", "script/debug", "script/machine", "script/output", "script/plan", "script/point", "internal/guardian", "internal/host", "internal/missed", "internal/proc", "internal/samples", "internal/isa", "internal/isa/*"}},
	{"internal/conform", []string{".", "arch", "internal/testprog"}}, // tests, of every kind of target
	{"internal/vm", []string{"internal/host"}},
	{"internal/vm/*", []string{"internal/vm", "internal/testprog"}},
	{"cmd/*", []string{".", "trace", "recording", "view", "view/*", "graph", "arch", "spec", "symbol", "bpf", "event", "target", "target/*", "internal/*", "script", "script/*", "source", "source/*"}},
	{"examples/*", []string{".", "target/*"}},
	{"test/harness", []string{".", "arch", "bpf", "bpf/bpftest", "symbol", "target/ptrace", "internal/lifeline", "internal/machine", "internal/proc", "internal/testprog"}},
}

// hostFolders are the packages that are compiled for the machine they run on: they
// speak to this machine's kernel. Everywhere else the target says what it is.
var hostFolders = []string{"target/ptrace", "internal/tracee"}

// ownFolder is the one package that looks at this process itself, and so has pointers.
const ownFolder = "internal/guardian"

// A sign that two ideas share a roof.
const (
	maxFile    = 800
	maxPackage = 6000 // lines of code: tests, tables, comments and blank lines apart
	maxRoot    = 1077 // of the API: what it does is in packages below
)

// source is one Go file of the project.
type source struct {
	path, dir string // slash-separated, relative to the root; dir "." is the root
	text      []byte
	ast       *ast.File
	set       *token.FileSet
}

func (s source) test() bool { return strings.HasSuffix(s.path, "_test.go") }

// table says whether the file is data: generated, or named so.
func (s source) table() bool {
	return ast.IsGenerated(s.ast) || strings.HasPrefix(path.Base(s.path), "tables")
}

func (s source) lines() int { return bytes.Count(s.text, []byte("\n")) }

func (s source) at(p token.Pos) string {
	return fmt.Sprintf("%s:%d", s.path, s.set.Position(p).Line)
}

// read parses all Go files below root, whatever their build tags. The rules are
// held by reading, not by asking the go command: its answers in a test are cached.
func read(t *testing.T, root fs.FS) []source {
	t.Helper()
	var out []source
	err := fs.WalkDir(root, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if name != "." && (name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_")) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		text, err := fs.ReadFile(root, p)
		if err != nil {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, p, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		out = append(out, source{p, path.Dir(p), text, file, set})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fits matches a package's folder with a pattern of layers.
func fits(pattern, pkg string) bool {
	if parent, ok := strings.CutSuffix(pattern, "/*"); ok {
		return strings.HasPrefix(pkg, parent+"/")
	}
	return pattern == pkg
}

// folder turns an import path into a folder of the project.
func folder(imported string) (string, bool) {
	if imported == module {
		return ".", true
	}
	return strings.CutPrefix(imported, module+"/")
}

// checkImports holds the layering.
func checkImports(files []source) (broken []string) {
	for _, f := range files {
		if f.test() {
			continue
		}
		row := slices.IndexFunc(layers, func(l layer) bool { return fits(l.pkg, f.dir) })
		if row < 0 {
			broken = append(broken, fmt.Sprintf("%s: package %s has no row in layers", f.path, f.dir))
			continue
		}
		for _, spec := range f.ast.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			to, ours := folder(imported)
			if ours && !slices.ContainsFunc(layers[row].may, func(p string) bool { return fits(p, to) }) {
				broken = append(broken, fmt.Sprintf("%s: %s must not import %s", f.at(spec.Pos()), f.dir, to))
			}
		}
	}
	return broken
}

// checkRows holds that the layering tells nothing that is not so: a row of no package, and leave to import
// what no package of the row imports, would let it in unseen.
func checkRows(rows []layer, files []source) (broken []string) {
	packages, imports := make([]bool, len(rows)), make([]map[string]bool, len(rows))
	for _, f := range files {
		row := slices.IndexFunc(rows, func(l layer) bool { return fits(l.pkg, f.dir) })
		if row < 0 || f.test() {
			continue
		}
		packages[row] = true
		for _, spec := range f.ast.Imports {
			imported, _ := strconv.Unquote(spec.Path.Value)
			if to, ours := folder(imported); ours {
				if imports[row] == nil {
					imports[row] = map[string]bool{}
				}
				imports[row][to] = true
			}
		}
	}
	for i, l := range rows {
		if !packages[i] {
			broken = append(broken, l.pkg+" has a row in layers, and there is no such package")
			continue
		}
		for at, may := range l.may {
			used := false
			for to := range imports[i] {
				used = used || fits(may, to)
			}
			if !used || slices.Contains(l.may[:at], may) {
				broken = append(broken, fmt.Sprintf("%s may import %s, and does not, or has it twice", l.pkg, may))
			}
		}
	}
	return broken
}

// ownMemory are packages that hand the system addresses of our own memory.
var ownMemory = []string{"internal/futex", "internal/proc"}

// checkMachine holds that the target says what machine it is: the host's machine
// and the size of its pointers decide nothing.
func checkMachine(files []source) (broken []string) {
	for _, f := range files {
		if f.test() || f.dir == "test/harness" || slices.Contains(hostFolders, f.dir) || f.dir == ownFolder || slices.Contains(ownMemory, f.dir) {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "runtime" && n.Sel.Name == "GOARCH" {
					broken = append(broken, f.at(n.Pos())+": runtime.GOARCH; ask the target")
				}
			case *ast.Field:
				return len(n.Names) != 1 || n.Names[0].Name != "fd" // a descriptor, as package syscall has it
			case *ast.Ident:
				if n.Name == "uintptr" {
					broken = append(broken, f.at(n.Pos())+": uintptr; a target's address is an arch.Addr")
				}
			}
			return true
		})
	}
	return broken
}

// checkNames holds that every file, tests too, is built on every machine: by its
// name (decode_arm64.go) or a tag, a file drops out of the others' builds in silence.
func checkNames(root fs.FS, files []source) (broken []string) {
	for _, f := range files {
		if slices.Contains(hostFolders, f.dir) {
			continue
		}
		// A file for some systems or with some tags is one thing; one that no
		// system takes on a machine that nobody has heard of is the other.
		anywhere := false
		for _, system := range []string{"linux", "darwin", "windows"} {
			for _, tags := range [][]string{nil, {"race", "ignore"}} {
				ctx := build.Context{GOOS: system, GOARCH: "unheard", Compiler: "gc", BuildTags: tags,
					JoinPath: path.Join,
					OpenFile: func(p string) (io.ReadCloser, error) { return root.Open(p) }}
				ok, err := ctx.MatchFile(f.dir, path.Base(f.path))
				if err != nil {
					broken = append(broken, fmt.Sprintf("%s: %v", f.path, err))
				}
				anywhere = anywhere || ok
			}
		}
		if !anywhere {
			broken = append(broken, f.path+": built on some machines only; name it machine-first or give the machine a folder")
		}
	}
	return broken
}

// codeLines counts the lines that hold code. Comments make nothing harder to
// find, and no package shall be tempted to leave them out.
func (s source) codeLines() int {
	lines := map[int]bool{}
	var scan scanner.Scanner
	file := token.NewFileSet().AddFile(s.path, -1, len(s.text))
	scan.Init(file, s.text, nil, 0)
	for {
		pos, tok, _ := scan.Scan()
		if tok == token.EOF {
			return len(lines)
		}
		lines[file.Line(pos)] = true
	}
}

// checkSizes holds that a file and a package have one idea.
func checkSizes(files []source) (broken []string) {
	packages := map[string]int{}
	for _, f := range files {
		if f.table() {
			continue
		}
		if n := f.lines(); n > maxFile {
			broken = append(broken, fmt.Sprintf("%s: %d lines, more than %d", f.path, n, maxFile))
		}
		if !f.test() {
			packages[f.dir] += f.codeLines()
		}
	}
	for dir, n := range packages {
		most := maxPackage
		if dir == "." {
			most = maxRoot
		}
		if n > most {
			broken = append(broken, fmt.Sprintf("%s: package of %d lines, more than %d", dir, n, most))
		}
	}
	slices.Sort(broken)
	return broken
}

// Folders of one person's machine, written so as not to be found here.
var (
	privatePath = regexp.MustCompile(`(^|[^\w.])/(w[o]rk|h[o]me/\w+|r[o]ot)/`)
	tempPath    = regexp.MustCompile(`(^|[^\w.])/t[m]p\b`)
)

// checkPaths holds that nothing knows the machine it was written on. Folders for
// temporary files are asked for (os.TempDir); tests may have one in their inputs.
func checkPaths(files []source) (broken []string) {
	for _, f := range files {
		for i, line := range strings.Split(string(f.text), "\n") {
			if m := privatePath.FindString(line); m != "" && !f.test() {
				broken = append(broken, fmt.Sprintf("%s:%d: a path of one machine: %s", f.path, i+1, m))
			}
			if m := tempPath.FindString(line); m != "" && !f.test() {
				broken = append(broken, fmt.Sprintf("%s:%d: a fixed place for temporary files", f.path, i+1))
			}
		}
	}
	return broken
}

func TestLayers(t *testing.T) {
	root := os.DirFS(".")
	files := read(t, root)
	if len(files) == 0 {
		t.Fatal("no files")
	}
	for name, broken := range map[string][]string{
		"imports":  checkImports(files),
		"rows":     checkRows(layers, files),
		"machine":  checkMachine(files),
		"names":    checkNames(root, files),
		"sizes":    checkSizes(files),
		"anywhere": checkPaths(files),
	} {
		t.Run(name, func(t *testing.T) {
			for _, b := range broken {
				t.Error(b)
			}
		})
	}
}

// A rule that cannot fail holds nothing: each is shown a file that breaks it, and
// one beside it that does not.
func TestLayersAreHeld(t *testing.T) {
	long := strings.Repeat("\n", maxFile+10)
	private := "/wo" + "rk/x"
	tests := []struct {
		path, text string
		want       string // "" where nothing is wrong
	}{
		{"internal/isa/x.go", `package isa; import "kprobe/target"`, "internal/isa must not import target"},
		{"internal/isa/x.go", `package isa; import "kprobe/arch"`, ""},
		{"spec/x.go", `package spec; import "kprobe/arch"`, "spec must not import arch"},
		{"spec/x_test.go", `package spec; import "kprobe/arch"`, ""},
		{"session.go", `package kprobe; import "kprobe/target/ptrace"`, ". must not import target/ptrace"},
		{"session.go", `package kprobe; import "kprobe/target"`, ""},
		{"symbol/x.go", `package symbol; import "kprobe"`, "symbol must not import ."},
		{"trace/x.go", `package trace; import "kprobe"`, ""},
		{"target/ptrace/x.go", `package ptrace; import "kprobe/target/gdbremote"`, "must not import target/gdbremote"},
		{"cmd/kprobe/main.go", `package main; import "kprobe/internal/testprog"`, ""},
		{"newidea/x.go", `package newidea`, "no row"},
		{"event/x.go", `package event; import "runtime"; const A = runtime.GOARCH`, "runtime.GOARCH"},
		{"event/x.go", `package event; var a uintptr`, "uintptr"},
		{"event/x_test.go", `package event; var a uintptr`, ""},
		{"target/ptrace/x_linux_amd64.go", `package ptrace; var a uintptr`, ""},
		{"internal/isa/amd64/decode_arm64.go", `package amd64`, "some machines only"},
		{"internal/isa/amd64/decode_arm64_test.go", `package amd64`, "some machines only"},
		{"internal/isa/amd64/arm64_decode.go", `package amd64`, ""},
		{"bpf/x.go", "//go:build amd64\n\npackage bpf", "some machines only"},
		{"bpf/x_windows.go", `package bpf`, ""},
		{"bpf/x.go", "//go:build !linux\n\npackage bpf", ""},
		{"bpf/x.go", "//go:build race\n\npackage bpf", ""},
		{"bpf/x.go", "package bpf" + long, "more than 800"},
		{"bpf/x_test.go", "package bpf" + long, "more than 800"},
		{"bpf/tables.go", "package bpf" + long, ""},
		{"bpf/x.go", "package bpf\n// see " + private, "path of one machine"},
		{"bpf/x.go", "package bpf\nconst d = \"/t" + "mp\"", "temporary files"},
		{"bpf/x.go", "package bpf\nconst d = \"/proc/1/root/x\"", ""},
	}
	for _, tt := range tests {
		root := fstest.MapFS{tt.path: {Data: []byte(tt.text)}}
		files := read(t, root)
		got := slices.Concat(checkImports(files), checkMachine(files), checkNames(root, files), checkSizes(files), checkPaths(files))
		ok := len(got) == 0
		if tt.want != "" {
			ok = len(got) == 1 && strings.Contains(got[0], tt.want)
		}
		if !ok {
			t.Errorf("%s %.60q: got %q, want %q", tt.path, tt.text, got, tt.want)
		}
	}

	rows := []layer{{"a", []string{"b", "c/*"}}, {"b", nil}, {"c/*", []string{"b", "b"}}, {"d", nil}}
	rowed := read(t, fstest.MapFS{
		"a/x.go":      {Data: []byte(`package a; import "kprobe/b"`)},
		"a/x_test.go": {Data: []byte(`package a; import "kprobe/c/e"`)},
		"b/x.go":      {Data: []byte(`package b`)},
		"c/e/x.go":    {Data: []byte(`package e; import "kprobe/b"`)},
	})
	want := []string{"a may import c/*, and does not, or has it twice", "c/* may import b, and does not, or has it twice",
		"d has a row in layers, and there is no such package"}
	if got := checkRows(rows, rowed); !slices.Equal(got, want) {
		t.Errorf("rows: got %q, want %q", got, want)
	}

	packaged := fstest.MapFS{}
	for i := range 8 {
		packaged[fmt.Sprintf("bpf/f%d.go", i)] = &fstest.MapFile{Data: []byte("package bpf" + strings.Repeat("\nvar _ = 0", 790))}
	}
	if got := checkSizes(read(t, packaged)); len(got) != 1 || !strings.Contains(got[0], "bpf: package of 6328 lines") {
		t.Errorf("eight files of 791 lines: %q", got)
	}
}
