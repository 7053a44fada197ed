package compile

import (
	"slices"

	"kprobe/script/macro"
	"kprobe/script/syntax"
)

// named is what a call of what is a name too stands for; nil where it is none.
func named(x syntax.Expr) syntax.Expr { return macro.Value(x, isValue) }

func isValue(name string) bool {
	_, builtin := builtins[name]
	return functions[name] == nil && (builtin || slices.Contains([]string{"func", "probe", "probetype", "retval"}, name))
}
