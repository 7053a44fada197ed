package syntax

import "slices"

// Returns tells whether all ways through a statement end in a return. known answers what an expression comes to that is
// reckoned before the script runs.
func Returns(s Stmt, known func(Expr) (uint64, bool)) bool {
	switch s := s.(type) {
	case *Jump:
		return s.Kind == "return"
	case *Block:
		return slices.ContainsFunc(s.Stmts, func(s Stmt) bool { return Returns(s, known) })
	case *If:
		cond, comptime := s.Cond, s.Comptime
		if k, ok := cond.(*Comptime); ok {
			cond, comptime = k.X, true
		}
		then := Returns(s.Then, known)
		otherwise := s.Else != nil && Returns(s.Else, known)
		if !comptime {
			return then && otherwise
		}
		n, _ := known(cond)
		return n != 0 && then || n == 0 && otherwise
	}
	return false
}
