package kprobe_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"slices"
	"testing"
	"testing/fstest"
)

// rootFiles are the files of the root package, low to high: a file may use what is declared in it and in those
// before it. So the API is read from top to bottom, and nothing in a file waits to be explained by a later one.
var rootFiles = []string{
	"doc.go",
	"errors.go",

	// A session, and what it tells of its target.
	"session.go", "blacklist.go", "symbols.go", "switch.go", "list.go", "sessions.go",

	// Programs, and what handlers see.
	"pool.go", "program.go", "regs.go", "stack.go", "arguments.go",

	// Probes: one instruction, what all kinds have in common, and the other kinds.
	"kprobe.go", "report.go", "handlers.go", "probe.go", "kprobes.go", "jprobe.go", "kretprobe.go", "watch.go",

	// What is done with them, and where it begins.
	"plan.go", "update.go", "attach_programs.go", "open.go",
}

// strangers imports packages with nothing in them: only what one package has of its own is looked at.
type strangers struct{}

func (strangers) Import(of string) (*types.Package, error) {
	p := types.NewPackage(of, path.Base(of))
	p.MarkComplete()
	return p, nil
}

// arrow is a use of what another file declares.
type arrow struct{ from, to, name, at string }

// arrows finds the uses among the files of one folder that are no tests.
func arrows(t *testing.T, root fs.FS, dir string) (all []arrow) {
	t.Helper()
	set := token.NewFileSet()
	var files []*ast.File
	for _, f := range read(t, root) {
		if f.dir == dir && !f.test() {
			file, err := parser.ParseFile(set, f.path, f.text, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	info := &types.Info{Defs: map[*ast.Ident]types.Object{}, Uses: map[*ast.Ident]types.Object{}}
	check := types.Config{Importer: strangers{}, Error: func(error) {}} // what is of other packages is not known, and no matter
	pkg, _ := check.Check(dir, set, files, info)
	for _, f := range files {
		from := set.Position(f.Package).Filename
		note := func(id *ast.Ident, o types.Object) {
			if o == nil || o.Pkg() != pkg || !o.Pos().IsValid() {
				return
			}
			if to := set.Position(o.Pos()).Filename; to != from {
				all = append(all, arrow{from, to, o.Name(), set.Position(id.Pos()).String()})
			}
		}
		elsewhere := map[*ast.Ident]bool{} // names of fields, and what is selected: they are known by their types or not at all
		ast.Inspect(f, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				elsewhere[n.Sel] = true
			case *ast.KeyValueExpr:
				if id, ok := n.Key.(*ast.Ident); ok {
					elsewhere[id] = true
				}
			case *ast.Ident:
				switch {
				case info.Uses[n] != nil:
					note(n, info.Uses[n])
				case info.Defs[n] == nil && !elsewhere[n]: // beside what is not known
					note(n, pkg.Scope().Lookup(n.Name))
				}
			}
			return true
		})
	}
	return all
}

// upward are the arrows from files to later ones, and files that are not in the order, or twice, or nowhere else.
func upward(order []string, have []string, all []arrow) (broken []string) {
	for i, name := range order {
		if !slices.Contains(have, name) || slices.Contains(order[:i], name) {
			broken = append(broken, name+" is in the order, and there is no such file, or it was before")
		}
	}
	for _, name := range have {
		if !slices.Contains(order, name) {
			broken = append(broken, name+" has no place in the order of the root's files")
		}
	}
	for _, a := range all {
		from, to := slices.Index(order, a.from), slices.Index(order, a.to)
		if from >= 0 && to > from {
			broken = append(broken, fmt.Sprintf("%s: %s is declared in %s, which comes later", a.at, a.name, a.to))
		}
	}
	return broken
}

// goFiles are the names of a folder's files that are no tests.
func goFiles(t *testing.T, root fs.FS, dir string) (names []string) {
	t.Helper()
	for _, f := range read(t, root) {
		if f.dir == dir && !f.test() {
			names = append(names, path.Base(f.path))
		}
	}
	return names
}

// No arrow among the root's files runs up.
func TestRootFilesHaveAnOrder(t *testing.T) {
	root := os.DirFS(".")
	all := arrows(t, root, ".")
	if len(all) < len(rootFiles) {
		t.Fatalf("%d uses among %d files cannot be all", len(all), len(rootFiles))
	}
	for _, b := range upward(rootFiles, goFiles(t, root, "."), all) {
		t.Error(b)
	}

	// A rule that cannot fail holds nothing.
	mistaken := fstest.MapFS{
		"a.go": {Data: []byte("package p\n\nimport \"q\"\n\ntype A struct{ n int }\n\nfunc (a *A) M(x q.X) { a.up(); _ = x.Of.(*B) }\n")},
		"b.go": {Data: []byte("package p\n\ntype B struct{ A }\n\nfunc (a *A) up() { a.n = 1 }\n")},
		"c.go": {Data: []byte("package p\n\nvar c = B{}\n")},
	}
	got := upward([]string{"a.go", "b.go", "d.go"}, goFiles(t, mistaken, "."), arrows(t, mistaken, "."))
	want := []string{
		"d.go is in the order, and there is no such file, or it was before",
		"c.go has no place in the order of the root's files",
		"a.go:7:26: up is declared in b.go, which comes later",
		"a.go:7:43: B is declared in b.go, which comes later",
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
}
