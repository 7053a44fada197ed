// Raced prints which of the packages that it is given have tests that "go test -race" can
// say something of: those whose test binary holds code of this module that starts
// goroutines, and those that handle unsafe pointers themselves, which -race checks too. The
// others decode, encode and compute, all in one goroutine: the race detector makes them
// slow, and nothing else.
//
// It reads each file that is compiled into the binary, so that a package which begins
// to use goroutines, or comes to import one that does, is there from then on.
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// listed is what go list tells of a package. With -test there is one for each test binary
// (PATH.test), and one for each package as it is built for it (PATH [OTHER.test]).
type listed struct {
	ImportPath, Dir   string
	GoFiles, CgoFiles []string
	Deps              []string
	Module            *struct{ Main bool }
}

func main() {
	names, err := raced(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "raced:", err)
		os.Exit(1)
	}
	for _, name := range names {
		fmt.Println(name)
	}
}

// raced answers the import paths, in the order that the patterns give.
func raced(patterns []string) ([]string, error) {
	order, err := golist(patterns)
	if err != nil {
		return nil, err
	}
	all, err := golist(append([]string{"-test", "-deps"}, patterns...))
	if err != nil {
		return nil, err
	}
	goroutines, pointers := make(map[string]bool), make(map[string]bool)
	deps := make(map[string][]string) // of test binaries
	for _, p := range all {
		if pkg, ok := strings.CutSuffix(p.ImportPath, ".test"); ok {
			deps[pkg] = p.Deps
		} else if p.Module != nil && p.Module.Main {
			if goroutines[p.ImportPath], pointers[p.ImportPath], err = look(p); err != nil {
				return nil, err
			}
		}
	}
	// The ground that all tests stand on starts programs, and has goroutines that read what
	// they say. Those are a reason for its own tests only.
	const ground = "kprobe/internal/testprog"
	var out []string
	for _, p := range order {
		if slices.ContainsFunc(deps[p.ImportPath], func(dep string) bool {
			own := is(dep, p.ImportPath) || is(dep, p.ImportPath+"_test")
			return own && pointers[dep] || goroutines[dep] && (own || !is(dep, ground))
		}) {
			out = append(out, p.ImportPath)
		}
	}
	return out, nil
}

// is tells whether a package, as it may be built for some test binary, is one of a path.
func is(built, path string) bool {
	name, _, _ := strings.Cut(built, " ")
	return name == path
}

func golist(args []string) ([]listed, error) {
	cmd := exec.Command("go", append([]string{"list", "-json=ImportPath,Dir,GoFiles,CgoFiles,Deps,Module"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cmd, err)
	}
	var all []listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}

func look(p listed) (goroutines, pointers bool, err error) {
	for _, name := range append(p.GoFiles, p.CgoFiles...) {
		if !filepath.IsAbs(name) {
			name = filepath.Join(p.Dir, name)
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return false, false, err
		}
		goroutines = goroutines || starts(f)
		pointers = pointers || slices.ContainsFunc(f.Imports, func(i *ast.ImportSpec) bool { return i.Path.Value == `"unsafe"` })
	}
	return goroutines, pointers, nil
}

// starters are functions and methods by whose name it is plain that a goroutine is started:
// T.Parallel, B.RunParallel, WaitGroup.Go, and those of time, context, iter and os/signal.
var starters = []string{"Parallel", "RunParallel", "Go", "AfterFunc", "Pull", "Pull2", "Notify", "NotifyContext"}

// starts tells whether a file has a goroutine started, by itself or by a server of HTTP.
func starts(f *ast.File) (found bool) {
	for _, i := range f.Imports {
		found = found || strings.HasPrefix(i.Path.Value, `"net/http`)
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = true
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains(starters, s.Sel.Name) {
				found = true
			}
		}
		return !found
	})
	return found
}
