package builtin

import (
	"fmt"

	"kprobe/script/compile"
	"kprobe/script/plan"
	"kprobe/script/settings"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Options of the command line.

// getopt is an option of the command line, --name or --name=value: it is known before the
// script runs, and stands for a literal.
func (c checker) getopt(x *syntax.Call) *types.Type {
	name, ok := c.literal(x, 0)
	help := ""
	if len(x.Args) == 3 {
		help, _ = c.literal(x, 2)
	}
	if len(x.Args) == 1 {
		x.Args = append(x.Args, &syntax.Bool{Span: x.Span})
	}
	t := c.Expr(x.Args[1])
	if !ok || t.Kind == types.None {
		return nil
	}
	c.Asked[name] = plan.Option{Default: syntax.Written(x.Args[1]), Help: help}
	if text, isText := c.StringLiteral(x.Args[1]); c.Final {
		n, _ := c.Constant(x.Args[1])
		own := fmt.Sprint(t.Kind, text, isText, n)
		if there, known := c.Defaults[name]; known && there != own {
			c.Errorf(x.Args[1], "Command line option '%s' needs to have the same default value in all places it is used", name)
		}
		c.Defaults[name] = own
	}
	value, given := c.Opts.Named[name]
	switch t.Kind {
	case types.Bool:
		if _, ok := settings.Truth(value); given && !ok {
			c.Errorf(x, "Invalid value for option --%s: it must be true or false", name)
		}
		return t
	case types.Int:
		n, ok := settings.Number(value)
		if given && !ok {
			c.Errorf(x, "Invalid value for option --%s: it must be a number", name)
		}
		if given && int64(n) < 0 && value[0] != '-' || !given && c.Unsigned(x.Args[1]) { // no number with a sign
			return types.Uint64
		}
		return types.Int64
	case types.String:
		if given {
			return types.StringOf(len(value) + 1)
		}
		return t
	}
	c.Errorf(x.Args[1], "Invalid default of an option: it must be a number, a string or a boolean")
	return nil
}

// option is the value of a getopt that is a number or a boolean.
func (c checker) option(x *syntax.Call) (uint64, bool) {
	name, ok := x.Args[0].(*syntax.Str)
	if !ok || len(x.Args) < 2 {
		return 0, false
	}
	value, given := c.Opts.Named[name.Value]
	if _, text := x.Args[1].(*syntax.Str); text {
		return 0, false
	}
	if !given {
		return c.Constant(x.Args[1])
	}
	if _, flag := x.Args[1].(*syntax.Bool); flag {
		n, _ := settings.Truth(value)
		return types.Word(n), true
	}
	return settings.Number(value)
}

func (g generator) getopt(x *syntax.Call, dst compile.Place, t *types.Type) {
	if value, given := g.Opts.Named[x.Args[0].(*syntax.Str).Value]; given {
		g.Text(dst, value, t.Slot())
	} else {
		g.Into(x.Args[1], dst, t)
	}
}
