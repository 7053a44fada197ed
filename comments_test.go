package kprobe_test

import (
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// told are methods whose meaning is that of an interface everybody knows.
var told = map[string]bool{"String": true, "Error": true, "Unwrap": true, "Is": true, "Close": true, "MarshalJSON": true, "MarshalText": true,
	"UnmarshalJSON": true, "UnmarshalText": true, "Read": true, "Write": true, "Len": true, "Less": true, "Swap": true, "Pop": true, "Push": true}

// promises are the methods that a package's exported interfaces say something of.
func promises(files []source) map[string]map[string]bool {
	by := map[string]map[string]bool{}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			g, _ := d.(*ast.GenDecl)
			for i := 0; g != nil && i < len(g.Specs); i++ {
				s, _ := g.Specs[i].(*ast.TypeSpec)
				if s == nil {
					continue
				}
				if in, ok := s.Type.(*ast.InterfaceType); ok && s.Name.IsExported() {
					for _, m := range in.Methods.List {
						if len(m.Names) == 0 || m.Doc == nil && m.Comment == nil {
							continue
						}
						if by[f.dir] == nil {
							by[f.dir] = map[string]bool{}
						}
						by[f.dir][m.Names[0].Name] = true
					}
				}
			}
		}
	}
	return by
}

// promised tells whether a method's meaning is that of an interface that the file's package, or one that it imports, has.
func promised(f source, by map[string]map[string]bool, method string) bool {
	if by[f.dir][method] {
		return true
	}
	for _, s := range f.ast.Imports {
		path, _ := strconv.Unquote(s.Path.Value)
		if to, ours := folder(path); ours && by[to][method] {
			return true
		}
	}
	return false
}

// uncommented are the exported names of a file that nothing is said of. One comment may be of several constants or
// variables that are declared together, and constants of a type are told of by the type's; a method of a type that is
// not exported says what an interface says.
func uncommented(f source, by map[string]map[string]bool) (names []string) {
	miss := func(n *ast.Ident, of string, comments ...*ast.CommentGroup) {
		if !n.IsExported() {
			return
		}
		for _, c := range comments {
			if strings.TrimSpace(c.Text()) != "" {
				return
			}
		}
		names = append(names, fmt.Sprintf("%s: %s", f.at(n.Pos()), strings.TrimPrefix(of+"."+n.Name, ".")))
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if of := receiver(d); of == "" || ast.IsExported(of) && !told[d.Name.Name] && !promised(f, by, d.Name.Name) {
				miss(d.Name, of, d.Doc)
			}
		case *ast.GenDecl:
			typed := false
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					miss(s.Name, "", s.Doc, s.Comment, d.Doc)
				case *ast.ValueSpec:
					if s.Type != nil || s.Values != nil {
						typed = d.Tok == token.CONST && s.Type != nil
					}
					for _, n := range s.Names {
						if !typed {
							miss(n, "", s.Doc, s.Comment, d.Doc)
						}
					}
				}
			}
		}
	}
	return names
}

// Every name that a package exports has a comment: what it does or is, in which units, which errors it answers.
func TestExportedNamesHaveComments(t *testing.T) {
	files := slices.DeleteFunc(read(t, os.DirFS(".")), func(f source) bool { return f.test() || f.table() })
	by := promises(files)
	for _, f := range files {
		for _, name := range uncommented(f, by) {
			t.Errorf("%s has no comment", name)
		}
	}
	bad := read(t, fstest.MapFS{"a/a.go": {Data: []byte("package a\nfunc F(){}\ntype T int\nfunc (T) M() {}\nfunc (T) String() string { return \"\" }\nconst (\nA = 1 // one\nB = 2\nE T = iota\nG\n)\n// C is told.\nvar C, D int\n")}})
	if got := strings.Join(uncommented(bad[0], nil), "\n"); got != "a/a.go:2: F\na/a.go:3: T\na/a.go:4: T.M\na/a.go:8: B" {
		t.Errorf("found\n%s", got)
	}
}
