// Package imports puts the scripts that a script imports before it.
package imports

import (
	"errors"
	"path"
	"slices"
	"strings"

	"kprobe/script/syntax"
)

// Script is one that is imported.
type Script struct{ Name, Text string }

// Reader reads what is imported.
type Reader struct {
	Source *syntax.Source                            // of all that is read
	Find   func(from, path string) ([]Script, error) // the scripts that an import of the one named from names; nil: none can be imported
	Errorf func(at syntax.Node, format string, a ...any)
	Failed func(syntax.Errors) // told what is wrong in one

	taken map[string]bool
	files []*syntax.File
}

// Add puts what the scripts that a script imports have before its own, what they import first. Each is taken once.
func (r *Reader) Add(f *syntax.File) {
	r.taken = map[string]bool{r.Source.Name: true}
	for _, i := range slices.Concat(f.Imports, f.Uses) {
		r.add(i)
	}
	var decls []syntax.CDecl
	var config []syntax.Config
	var items []syntax.Item
	for _, in := range r.files {
		decls, config, items = append(decls, in.C...), append(config, in.Config...), append(items, in.Items...)
	}
	f.C, f.Config, f.Items = slices.Concat(decls, f.C), slices.Concat(config, f.Config), slices.Concat(items, f.Items)
}

// add reads what one import names.
func (r *Reader) add(i syntax.Import) {
	switch ext := path.Ext(i.Path); {
	case i.Path == "stdlib" || strings.HasPrefix(i.Path, "stdlib/"):
		return // it is there
	case ext != "" && ext != ".bt":
		r.Errorf(i, "import: %s is no script: code of C is not linked here", i.Path)
		return
	case r.Find == nil:
		r.Errorf(i, "import: no files are read here")
		return
	}
	all, err := r.Find(r.Source.PartName(i.From), i.Path)
	if err != nil {
		r.Errorf(i, "import: %v", err)
		return
	}
	for _, script := range all {
		if r.taken[script.Name] {
			continue
		}
		r.taken[script.Name] = true
		file, err := syntax.ParseFrom(r.Source, r.Source.Append(script.Name, script.Text))
		var wrong syntax.Errors
		if errors.As(err, &wrong) {
			r.Failed(wrong)
			continue
		}
		for _, further := range slices.Concat(file.Imports, file.Uses) {
			r.add(further)
		}
		r.files = append(r.files, file)
	}
}
