package macro

import (
	"strings"

	"kprobe/script/syntax"
)

// Plain is a name without what bpftrace's own library writes before it.
func Plain(name string) string { return strings.TrimPrefix(name, "__builtin_") }

// Otherwise is what some names are short for; nil for all others. Stacks are unwound in one way, whatever they are
// called; what is asked of a kernel's task its structures tell.
func Otherwise(name string, at syntax.Span) syntax.Expr {
	task := func(members ...string) (x syntax.Expr) {
		x = &syntax.Ident{Span: at, Name: "curtask"}
		for _, m := range members {
			x = &syntax.Field{Span: at, X: x, Name: m}
		}
		return x
	}
	switch Plain(name) {
	case "dw_ustack":
		return &syntax.Ident{Span: at, Name: "ustack"}
	case "leader_tid": // whose number the process has
		return &syntax.Ident{Span: at, Name: "pid"}
	case "leader_comm":
		return task("group_leader", "comm")
	case "ppid":
		return task("real_parent", "tgid")
	case "pcomm":
		return task("group_leader", "comm")
	case "default_str_length":
		return &syntax.Call{Span: at, Name: "default_str_length"}
	}
	return nil
}
