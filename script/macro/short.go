package macro

import (
	"strconv"
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

// containerOf is container_of(ptr, type, member): what a member lies in that a pointer points to; nil of other arguments.
func containerOf(x *syntax.Call) syntax.Expr {
	if len(x.Args) != 3 {
		return nil
	}
	to, of := &syntax.Type{Span: x.Span, Stars: 1, Of: x.Args[1]}, x.Args[1]
	if id, ok := of.(*syntax.Ident); ok { // a typedef's
		to.Of, to.Name = nil, id.Name
		of = &syntax.TypeArg{Span: id.Span, Type: &syntax.Type{Span: id.Span, Name: id.Name}}
	}
	at := &syntax.Cast{Span: x.Span, X: x.Args[0], Type: &syntax.Type{Span: x.Span, Name: "uint64"}}
	off := &syntax.Call{Span: x.Span, Name: "offsetof", Args: []syntax.Expr{of, x.Args[2]}}
	return &syntax.Cast{Span: x.Span, Type: to, X: &syntax.Binary{Span: x.Span, Op: "-", X: at, Y: off}}
}

// formats are the kinds of files that <linux/stat.h> asks about: S_ISREG(mode) and its like.
var formats = map[string]uint64{"S_ISSOCK": 0o140000, "S_ISLNK": 0o120000, "S_ISREG": 0o100000, "S_ISBLK": 0o060000, "S_ISDIR": 0o040000, "S_ISCHR": 0o020000, "S_ISFIFO": 0o010000}

// isFormat is the question whether a file's mode says that it is of a kind.
func isFormat(x *syntax.Call, format uint64) syntax.Expr {
	number := func(n uint64) *syntax.Int {
		return &syntax.Int{Span: x.Span, Value: n, Text: strconv.FormatUint(n, 10)}
	}
	kind := &syntax.Binary{Span: x.Span, Op: "&", X: x.Args[0], Y: number(0o170000)}
	return &syntax.Binary{Span: x.Span, Op: "==", X: kind, Y: number(format)}
}
