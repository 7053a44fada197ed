package compile

import (
	"strconv"
	"strings"

	"kprobe/script/settings"
	"kprobe/script/syntax"
)

// Stable holds that the script may have a feature.
func (c *Checker) Stable(at syntax.Node, feature string) {
	if c.Set.Refused[feature] {
		c.Errorf(at, "This needs the unstable feature %s, which is set to error: set %s=enable, or warn", strings.TrimPrefix(feature, "unstable_"), feature)
	}
}

// settings reads the script's, then those of the environment, which come first.
func (c *Checker) settings(f *syntax.File) settings.Settings {
	s := settings.Default()
	for _, cfg := range f.Config {
		if what, its := s.Configure(cfg.Name, cfg.Value); what != "" && its {
			c.Errorf(syntax.Span{From: cfg.From, To: cfg.From + len(cfg.Name)}, "%s", what)
		} else if what != "" {
			c.Errorf(cfg, "%s", what)
		} else if settings.Deprecated(cfg.Name) {
			c.Warnf(cfg, "%s is deprecated and has no effect", cfg.Name)
		}
	}
	for _, what := range s.Environment(c.Opts.Settings) {
		c.errs = append(c.errs, &syntax.Error{Span: syntax.Span{From: 0, To: 1}, Msg: what, Source: c.src})
	}
	return s
}

// configured is the literal that config().name stands for; nil for what is none.
func (c *Checker) configured(x *syntax.Field) syntax.Expr {
	if call, ok := x.X.(*syntax.Call); !ok || call.Name != "config" || len(call.Args) > 0 {
		return nil
	}
	value, known := c.Set.Value(strings.ToLower(x.Name))
	n, err := strconv.ParseUint(value, 10, 64)
	switch {
	case !known:
		c.Errorf(x, "Unrecognized config variable: %s", x.Name)
	case err == nil:
	case value == "true" || value == "false":
		return &syntax.Bool{Span: x.Span, Value: value == "true"}
	default:
		return &syntax.Str{Span: x.Span, Value: value}
	}
	return &syntax.Int{Span: x.Span, Text: value, Value: n}
}
