package compile

import (
	"kprobe/script/point"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// declaring is the script, as its declarations in C ask it.
type declaring struct{ c *Checker }

func (d declaring) Constant(x syntax.Expr) (uint64, bool)          { return d.c.Constant(x) }
func (d declaring) TypeOf(t *syntax.Type) *types.Type              { return d.c.typeOf(t) }
func (d declaring) Known(name string) *types.Type                  { return d.c.Known(name) }
func (d declaring) Errorf(at syntax.Node, format string, a ...any) { d.c.Errorf(at, format, a...) }

// Known is a type by its name, nil for none.
func (c *Checker) Known(name string) *types.Type {
	if t := types.Ints[name]; t != nil {
		return t
	}
	if kind, ok := types.Gathered[name]; ok {
		return &types.Type{Kind: kind, Size: 8, Signed: true}
	}
	if t := c.Named[name]; t != nil {
		return t
	}
	if t := c.ofTarget(name); t != nil || name != "struct pt_regs" {
		return t
	}
	return ptRegs
}

// constantOf takes a constant for one of the script's own that an enumeration of the kernel or the file names, where probes of
// that alone ask for it, or else one that headers define.
func (c *Checker) constantOf(name string) {
	if _, known := c.Consts[name]; known || c.lib.has(name) {
		return
	}
	atKernel := len(c.At) > 0 && c.Everywhere((*point.Point).OfKernelAlone)
	if c.ofKernel && !atKernel && c.Included(name, c.Machine.Name, declaring{c}) {
		return // no types need be read, which takes a while
	}
	from, target := point.Debug(nil), ""
	if len(c.At) > 0 {
		target = c.At[0].Target
	}
	switch {
	case c.ofKernel || atKernel:
		if c.Opts.Types != nil {
			from = c.Opts.Types
		}
	case len(c.At) > 0 && c.Everywhere(func(p *point.Point) bool { return p.OfFile() && p.Target == target }):
		from = c.Opts.Debug
	}
	if from != nil {
		if n, t, ok := from.Constant(target, name); ok {
			c.Consts[name], c.Enums[name] = n, t
			return
		}
	}
	c.Included(name, c.Machine.Name, declaring{c})
}

// Complete has the members of a record looked up, where it is the kernel's.
func (c *Checker) Complete(t *types.Type) *types.Type {
	if t != nil && c.Ahead(t) { // the script does not declare it
		if whole := c.ofTarget(t.Name); whole != nil {
			return c.Complete(whole)
		}
	}
	if t != nil && t.Kind == types.Record && len(t.Fields) == 0 && c.Opts.Types != nil {
		c.Opts.Types.Complete(t)
	}
	return t
}

// ofTarget is a type of the program that is probed, as its debug data has it.
func (c *Checker) ofTarget(name string) *types.Type {
	if c.ofKernel {
		return c.Opts.Types.Type("", name)
	}
	for _, pt := range c.At {
		if pt.OfKernel() && c.Opts.Types != nil {
			if t := c.Opts.Types.Type("", name); t != nil {
				return t
			}
		}
		if c.Opts.Debug == nil || !pt.OfFile() {
			continue
		}
		if t := c.Opts.Debug.Type(pt.Target, name); t != nil {
			return t
		}
	}
	return nil
}
