package kprobe_test

import (
	"go/ast"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the road and the pictures name is there: a file that was renamed leaves its name behind.
func TestFilesOfTheRoadExist(t *testing.T) {
	for _, doc := range []string{"doc.go", "docs/ARCHITECTURE.md", "docs/PROCESS.md", "docs/RATIONALE.md", "README.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`[a-z0-9_]+(/[a-z0-9_]+)*\.(go|md)\b`).FindAllString(string(text), -1) {
			_, here := os.Stat(name)
			if _, err := os.Stat(filepath.Join("docs", name)); err != nil && here != nil && name != "main.go" {
				t.Errorf("%s names %s, which there is not", doc, name)
			}
		}
	}
}

// Every path, type and function that the two documents for builders name in backquotes is there. MACHINE stands for
// any machine; what has a space in it is a command, or code.
func TestNamesOfTheDocumentsExist(t *testing.T) {
	there := names(read(t, os.DirFS(".")))
	for _, doc := range []string{"docs/ARCHITECTURE.md", "docs/PORTING.md"} {
		text, err := os.ReadFile(doc)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`([^` \n]+)`").FindAllStringSubmatch(string(text), -1) {
			if !known(there, m[1]) {
				t.Errorf("%s names `%s`, which there is not", doc, m[1])
			}
		}
	}
	for name, want := range map[string]bool{
		"internal/stops/": true, "internal/no": false, "internal/tracee/abi_MACHINE.go": true, "internal/tracee/no_MACHINE.go": false,
		"session.go": true, "no.go": false, "change.Change": true, "change.No": false, "No.Change": false,
		"Engine.threads": true, "Session.no": false, "Ground.View": true, "Freeze": true, "NoSuchName": false, "$argN": true, "runtime.GOARCH": true,
	} {
		if known(there, name) != want {
			t.Errorf("%s is there: want %v", name, want)
		}
	}
}

// known tells whether a name is that of something there is, or none of ours.
func known(there map[string]bool, name string) bool {
	if strings.ContainsRune(name, '/') || path.Ext(name) == ".go" || path.Ext(name) == ".md" {
		found, _ := filepath.Glob(strings.ReplaceAll(strings.TrimSuffix(name, "/"), "MACHINE", "*"))
		beside, _ := filepath.Glob(filepath.Join("docs", name))
		return len(found)+len(beside) > 0
	}
	return there[name] || name == "runtime.GOARCH" || !regexp.MustCompile(`^\w+(\.\w+)?$`).MatchString(name)
}

// names are all that files declare, alone and with the package or the type that they are in.
func names(files []source) map[string]bool {
	there := map[string]bool{}
	for _, f := range files {
		if f.test() {
			continue
		}
		for _, d := range declared(f) {
			of, member, typed := strings.Cut(d, ".")
			there[d] = true
			if there[path.Base(f.dir)+"."+of] = true; typed {
				there[member] = true
			}
		}
	}
	return there
}

// declared are the names that a file declares: of members with their types before them.
func declared(f source) (names []string) {
	list := func(of string, fields *ast.FieldList) {
		for _, field := range fields.List {
			for _, n := range field.Names {
				names = append(names, of+"."+n.Name)
			}
		}
	}
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names = append(names, strings.TrimPrefix(receiver(d)+"."+d.Name.Name, "."))
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names = append(names, n.Name)
					}
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
					switch u := s.Type.(type) {
					case *ast.StructType:
						list(s.Name.Name, u.Fields)
					case *ast.InterfaceType:
						list(s.Name.Name, u.Methods)
					}
				}
			}
		}
	}
	return names
}

// receiver is the type that a method is of; "" for a function.
func receiver(d *ast.FuncDecl) string {
	if d.Recv == nil || len(d.Recv.List) == 0 {
		return ""
	}
	t := d.Recv.List[0].Type
	for {
		switch u := t.(type) {
		case *ast.StarExpr:
			t = u.X
		case *ast.IndexExpr:
			t = u.X
		case *ast.IndexListExpr:
			t = u.X
		case *ast.Ident:
			return u.Name
		default:
			return ""
		}
	}
}

// The picture of the import floors shows every package that is not made for tests, and no other.
func TestFloorsShowThePackages(t *testing.T) {
	text, err := os.ReadFile("docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	_, floors, _ := strings.Cut(string(text), "\n## 7. ")
	floors, _, _ = strings.Cut(floors, "\n## 8. ")
	shown := map[string]bool{}
	for _, line := range strings.Split(floors, "\n") {
		const column = 54 // of what is said of a row
		if !strings.HasPrefix(line, "    ") || strings.Contains(line, "---") {
			continue
		}
		for _, word := range strings.Fields(line[7:min(len(line), column)]) {
			shown[path.Base(word)] = true
		}
	}
	forTests := regexp.MustCompile(`^(test|examples/|bench/|internal/(testprog|vm|conform)|bpf/bpftest|target/targettest|internal/isa/)`)
	packages := map[string]bool{"kprobe": true, "examples": true, "MACHINE": true}
	for _, f := range read(t, os.DirFS(".")) {
		if f.dir == "." || forTests.MatchString(f.dir) {
			continue
		}
		if packages[path.Base(f.dir)] = true; !shown[path.Base(f.dir)] {
			t.Errorf("package %s is on no floor: section 7 of docs/ARCHITECTURE.md", f.dir)
			shown[path.Base(f.dir)] = true
		}
	}
	for word := range shown {
		if !packages[word] {
			t.Errorf("the picture shows %s, which is no package", word)
		}
	}
}
