package compile

import (
	"errors"
	"path"
	"slices"
	"strings"

	"kprobe/script/syntax"
)

// imports puts what the scripts that a script imports have before its own, what they import first. Each is taken once.
func (c *checker) imports(f *syntax.File) {
	taken := map[string]bool{c.src.Name: true}
	for _, i := range f.Imports {
		c.imported(i, taken)
	}
	var decls []syntax.CDecl
	var config []syntax.Config
	var items []syntax.Item
	for _, in := range c.files {
		decls, config, items = append(decls, in.C...), append(config, in.Config...), append(items, in.Items...)
	}
	f.C, f.Config, f.Items = slices.Concat(decls, f.C), slices.Concat(config, f.Config), slices.Concat(items, f.Items)
}

// imported reads what one import names.
func (c *checker) imported(i syntax.Import, taken map[string]bool) {
	switch ext := path.Ext(i.Path); {
	case i.Path == "stdlib" || strings.HasPrefix(i.Path, "stdlib/"):
		return // it is there
	case ext != "" && ext != ".bt":
		c.errorf(i, "import: %s is no script: code of C is not linked here", i.Path)
		return
	case c.opts.Import == nil:
		c.errorf(i, "import: no files are read here")
		return
	}
	all, err := c.opts.Import(c.src.PartName(i.From), i.Path)
	if err != nil {
		c.errorf(i, "import: %v", err)
		return
	}
	for _, script := range all {
		if taken[script.Name] {
			continue
		}
		taken[script.Name] = true
		file, err := syntax.ParseFrom(c.src, c.src.Append(script.Name, script.Text))
		var wrong syntax.Errors
		if errors.As(err, &wrong) {
			c.errs = append(c.errs, wrong...)
			continue
		}
		for _, further := range file.Imports {
			c.imported(further, taken)
		}
		c.files = append(c.files, file)
	}
}
