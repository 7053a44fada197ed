package spec

import (
	"fmt"
	"strconv"
	"strings"
)

// String prints the definition as kprobe_events and uprobe_events do: with its
// names, made up where none were given, offsets in symbols in decimal, every
// argument named, and "%return" turned into "r". Arguments are given back
// letter by letter as they were written, until they are changed.
//
// The text reads back as an equal definition, but for what it spells out.
// MAXACTIVE is printed where MaxActive is set: the kernel's default is for the
// caller to fill in.
func (s *Spec) String() string {
	var b strings.Builder
	b.WriteByte(byte(s.Kind))
	if s.Kind == Delete {
		b.WriteByte(':')
		if s.Group != "" {
			b.WriteString(s.Group + "/")
		}
		b.WriteString(s.Event)
		if s.Place == (Place{}) {
			return b.String()
		}
	} else {
		if s.MaxActive != 0 {
			b.WriteString(strconv.Itoa(s.MaxActive))
		}
		group, event := s.Names()
		b.WriteString(":" + group + "/" + event)
	}
	b.WriteString(" " + s.Place.text())
	for i := range s.Args {
		b.WriteString(" " + s.argText(i))
	}
	if s.If != nil {
		b.WriteString(" if " + s.If.Text)
	}
	return b.String()
}

// argText prints argument i, as it was written where that is still right.
func (s *Spec) argText(i int) string {
	a := &s.Args[i]
	body := a.body()
	if s.src != nil && i < len(s.src.args) && s.src.args[i].canon == body {
		body = s.src.args[i].text
	}
	if a.Fetch.Op == AllArgs || a.Fetch.Op == Locals {
		return body
	}
	return a.Name + "=" + body
}

// body prints an argument without its name.
func (a *Arg) body() string { return a.Fetch.String() + a.Type.suffix() }

// suffix is the type as a definition has it: ":" in front, "" for the default.
func (t *Type) suffix() string {
	switch {
	case t.Written == "":
		return ""
	case t.Array != 0:
		return fmt.Sprintf(":%s[%d]", t.Written, t.Array)
	}
	return ":" + t.Written
}

// String prints the type with its array part, "x64" where none was written.
func (t Type) String() string {
	switch {
	case t.Written != "":
		return t.suffix()[1:]
	case t.Base == String:
		return "string"
	}
	return fmt.Sprintf("x%d", t.Size*8)
}

// String prints the fetch, without a type.
func (f *Fetch) String() string {
	switch f.Op {
	case Reg:
		return "%" + f.Name
	case Stack:
		return "$stack"
	case StackN:
		return fmt.Sprintf("$stack%d", f.N)
	case Retval:
		return "$retval" + fieldText(f.Fields)
	case Comm:
		return "$comm"
	case ArgN:
		if f.Name != "" {
			return "%" + f.Name + " at the entry"
		}
		return fmt.Sprintf("$arg%d", f.N)
	case AllArgs:
		return "$arg*"
	case Abs:
		return "@" + hex(uint64(f.N))
	case Sym:
		if f.N == 0 {
			return "@" + f.Name
		}
		return fmt.Sprintf("@%s%+d", f.Name, f.N)
	case FileOff:
		return fmt.Sprintf("@+%d", f.N)
	case Deref:
		sign, digits := "+", strconv.FormatInt(f.N, 10)
		if f.N < 0 {
			sign, digits = "-", digits[1:]
		}
		if f.User {
			sign += "u"
		}
		text := sign + digits + "(" + f.Inner.String() + ")"
		if f.Nil {
			text += "?"
		}
		for g := f.Guard; g != nil; g = g.And {
			op := ">"
			if g.Not {
				op = "!="
			} else if g.Equal {
				op = "=="
			}
			text += "{" + g.Of.String()
			if g.Minus != nil {
				text += "-" + g.Minus.String()
			}
			text += fmt.Sprintf("%s%d:%d", op, g.N, g.Size)
			if g.At != 0 {
				text += fmt.Sprintf("@%d", g.At)
			}
			text += "}"
		}
		if f.Count != nil {
			text += "[" + f.Count.String() + "]"
		} else if f.End != nil {
			text += "[.." + f.End.String() + "]"
		}
		return text
	case Imm:
		return fmt.Sprintf(`\%d`, f.N)
	case Vector:
		return fmt.Sprintf("%%xmm%d%s", f.N/2, [...]string{"", ".high"}[f.N&1])
	case Compute:
		text := f.Name + "("
		if f.Name == "load" {
			text = fmt.Sprintf("load%d(", 8*f.N)
		}
		if text += f.Inner.String(); f.Other != nil {
			text += "," + f.Other.String()
		}
		return text + ")"
	case Entered:
		return "entry(%" + f.Name + ")"
	case ImmStr:
		return `\"` + f.Name + `"`
	case DataAddr:
		return "$addr"
	case Var:
		return f.Name + fieldText(f.Fields)
	case Expression:
		return f.Expr.String()
	case Locals:
		return "$locals"
	case StackTrace:
		return "stack"
	case Plus:
		return fmt.Sprintf("(%s%+d)", f.Inner, f.N)
	}
	return fmt.Sprintf("?%d", f.Op)
}

func fieldText(fields []Field) string {
	var b strings.Builder
	for _, f := range fields {
		if f.Arrow {
			b.WriteString("->")
		} else {
			b.WriteByte('.')
		}
		b.WriteString(f.Name)
	}
	return b.String()
}

func hex(n uint64) string     { return "0x" + strconv.FormatUint(n, 16) }
func decimal(n uint64) string { return strconv.FormatUint(n, 10) }
func leftPad(n uint64) string { return fmt.Sprintf("%016x", n) }
