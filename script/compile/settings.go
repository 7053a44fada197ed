package compile

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"kprobe/script/settings"
	"kprobe/script/syntax"
)

// stable holds that the script may have a feature.
func (c *checker) stable(at syntax.Node, feature string) {
	if c.set.Refused[feature] {
		c.errorf(at, "This needs the unstable feature %s, which is set to error: set %s=enable, or warn", strings.TrimPrefix(feature, "unstable_"), feature)
	}
}

// settings reads the script's, then those of the environment, which come first.
func (c *checker) settings(f *syntax.File) settings.Settings {
	s := settings.Default()
	for _, cfg := range f.Config {
		name := strings.TrimPrefix(strings.ToLower(cfg.Name), "bpftrace_")
		itself := syntax.Span{From: cfg.From, To: cfg.From + len(cfg.Name)}
		switch what := s.Set(name, cfg.Value); {
		case settings.OfEnvironment(name):
			c.errorf(itself, "%s can only be set as an environment variable", cfg.Name)
		case strings.HasPrefix(what, "Unrecognized"):
			c.errorf(itself, "%s", strings.ReplaceAll(what, "%", cfg.Name))
		case what != "":
			c.errorf(cfg, "%s", strings.ReplaceAll(what, "%", cfg.Name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.opts.Settings)) {
		if what := s.Set(name, c.opts.Settings[name]); what != "" && !strings.HasPrefix(what, "Unrecognized") { // others may have variables of such names
			c.errs = append(c.errs, &syntax.Error{Span: syntax.Span{From: 0, To: 1}, Msg: "BPFTRACE_" + strings.ToUpper(name) + ": " + strings.ReplaceAll(what, "%", name), Source: c.src})
		}
	}
	return s
}

// configured is the literal that config().name stands for; nil for what is none.
func (c *checker) configured(x *syntax.Field) syntax.Expr {
	if call, ok := x.X.(*syntax.Call); !ok || call.Name != "config" || len(call.Args) > 0 {
		return nil
	}
	value, known := c.set.Value(strings.ToLower(x.Name))
	n, err := strconv.ParseUint(value, 10, 64)
	switch {
	case !known:
		c.errorf(x, "Unrecognized config variable: %s", x.Name)
	case err == nil:
	case value == "true" || value == "false":
		return &syntax.Bool{Span: x.Span, Value: value == "true"}
	default:
		return &syntax.Str{Span: x.Span, Value: value}
	}
	return &syntax.Int{Span: x.Span, Text: value, Value: n}
}
