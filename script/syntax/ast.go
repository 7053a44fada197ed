// Package syntax reads bpftrace's language: text to a tree with places, and the
// tree back to text in one form (Format). It knows no types and no targets.
//
// The language is bpftrace 0.26's; older spellings (BEGIN, kfunc, ->,
// delete(@a[k])) are read too. Parse goes on behind an error, so that one run
// tells of several.
package syntax

// Span is a part of the source: bytes From to To, which is not its own.
type Span struct {
	From, To int

	Call *Expansion // of the macro whose text this is; nil for what stands where it was written
}

// Expansion is where a macro is called.
type Expansion struct{ Span }

// At is the span itself: what embeds a Span has a place.
func (s Span) At() Span { return s }

// Node is anything that has a place in the source.
type Node interface{ At() Span }

// File is a whole script.
type File struct {
	Shebang string   // "#!/usr/bin/env bpftrace", "" for none
	C       []CDecl  // what is C: preprocessor lines and declarations of types
	Config  []Config // config = { ... }
	Imports []Import
	Uses    []Import // within bodies
	Items   []Item   // *Probe, *Macro, *Fn, *MapDecl, in the file's order
}

// CDecl is one declaration in C, as it stands in the source: "#define N 3",
// "struct foo { int x; };".
type CDecl struct {
	Span
	Text string
}

// Config is a setting of the config block.
type Config struct {
	Span
	Name, Value string
	Quoted      bool // the value was a string
}

// Import names another file.
type Import struct {
	Span
	Path string
}

// Item is what a file is made of.
type Item interface{ Node }

// Probe is attach points, a predicate, and what is done there.
type Probe struct {
	Span
	Name   string // name = provider:..., "" for none
	Points []Point
	Pred   Expr // nil for none
	Body   *Block
}

// Point is one attach point, as it was written.
type Point struct {
	Span
	Text string
}

// Param is a parameter of a macro or function: an identifier, "$x" or "@x".
type Param struct {
	Span
	Name string
	Type *Type // of a function
}

// Macro is code that is put in where it is called.
type Macro struct {
	Span
	Name   string
	Params []Param
	Body   *Block
}

// Fn is a function.
type Fn struct {
	Span
	Name   string
	Params []Param
	Result *Type
	Body   *Block
}

// MapDecl is let @name = kind(N);
type MapDecl struct {
	Span
	Name string // "@name"
	Kind string
	Size Expr
}

// Type is a type as it is written.
type Type struct {
	Span
	Name  string // "uint64", "struct foo", "enum e", "" with Of
	Of    Expr   // typeof(Of)
	Stars int
	Dims  []Expr // int[3]; string[64]
}

// Stmt is a statement.
type Stmt interface{ Node }

type (
	// Block is statements, and perhaps a value at the end.
	Block struct {
		Span
		Stmts []Stmt
		Value Expr // of a block that is an expression, nil for none
	}
	// ExprStmt is an expression whose value nobody wants.
	ExprStmt struct {
		Span
		X Expr
	}
	// Assign is Target Op Value; Op is "=", "+=", ...
	Assign struct {
		Span
		Target Expr // *Var, *Map, or *Ident "_"
		Op     string
		Value  Expr
	}
	// Let declares a variable.
	Let struct {
		Span
		Name  string
		Type  *Type
		Value Expr
	}
	// If is if and else; Else is a *Block, an *If, or nil.
	If struct {
		Span
		Cond Expr
		Then *Block
		Else Stmt
		// Comptime: the condition is decided before the script runs.
		Comptime bool
	}
	// While is while and, with Times, unroll.
	While struct {
		Span
		Cond Expr
		Body *Block
	}
	// Unroll repeats its body.
	Unroll struct {
		Span
		Times Expr
		Body  *Block
	}
	// For goes over a map, or numbers from From up to To.
	For struct {
		Span
		Var      string // "$kv"
		Over     Expr   // nil with a range
		From, To Expr
		Body     *Block
	}
	// Use is an import within a body: what it names is there for all of the script.
	Use struct {
		Span
		Path string
	}
	// Jump is break, continue or return.
	Jump struct {
		Span
		Kind  string
		Value Expr
	}
)

// Expr is an expression.
type Expr interface{ Node }

type (
	// Int is a number; Text is how it was written.
	Int struct {
		Span
		Value uint64
		Text  string
	}
	// Str is a string, its escapes resolved.
	Str struct {
		Span
		Value string
	}
	// Bool is true or false.
	Bool struct {
		Span
		Value bool
	}
	// Ident is a builtin, an enum's value or a macro's parameter.
	Ident struct {
		Span
		Name string
	}
	// Positional is $1, or with N 0 the count $#.
	Positional struct {
		Span
		N int
	}
	// Var is $x.
	Var struct {
		Span
		Name string
	}
	// Map is @x or @x[Key].
	Map struct {
		Span
		Name string
		Key  Expr // nil for none; of several, a *Tuple
	}
	// Unary is an operator before, or with Post behind, its operand.
	Unary struct {
		Span
		Op   string
		X    Expr
		Post bool
	}
	// Binary is X Op Y.
	Binary struct {
		Span
		Op   string
		X, Y Expr
	}
	// Ternary is Cond ? Then : Else; Then is nil where it is Cond's own value.
	Ternary struct {
		Span
		Cond, Then, Else Expr
	}
	// Call is Name(Args).
	Call struct {
		Span
		Name string
		Args []Expr
	}
	// Field is X.Name, or of a tuple X.0.
	Field struct {
		Span
		X    Expr
		Name string
	}
	// Index is X[I].
	Index struct {
		Span
		X, I Expr
	}
	// Cast is (Type)X.
	Cast struct {
		Span
		Type *Type
		X    Expr
	}
	// TypeArg is a type where an expression is due: sizeof(struct foo).
	TypeArg struct {
		Span
		Type *Type
	}
	// Tuple is (a, b).
	Tuple struct {
		Span
		Elems []Expr
	}
	// Record is (a = 1, b = 2).
	Record struct {
		Span
		Names []string
		Elems []Expr
	}
	// Comptime is comptime X: decided before the script runs.
	Comptime struct {
		Span
		X Expr
	}
)
