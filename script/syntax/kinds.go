package syntax

// IsReference tells of &$x.
func IsReference(x Expr) bool {
	u, ok := x.(*Unary)
	return ok && u.Op == "&"
}

// IsArgs tells whether an expression is args itself.
func IsArgs(x Expr) bool {
	id, ok := x.(*Ident)
	return ok && id.Name == "args"
}

// IsText tells of a text as it is written.
func IsText(x Expr) bool {
	_, ok := x.(*Str)
	return ok
}
