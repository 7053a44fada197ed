package debug

import (
	"fmt"
	"strings"

	"github.com/cilium/ebpf/btf"
)

// Types of a kernel as C has them.

// Structs are the names of the structures, unions and enumerations that a pattern's kind and matches allow: "struct path".
func (k *Kernel) Structs(kind string, matches func(name string) bool) (all []string) {
	for t, err := range k.spec.All() {
		if err != nil {
			continue
		}
		if is := kindOf(t); is == kind && t.TypeName() != "" && matches(is+" "+t.TypeName()) {
			all = append(all, is+" "+t.TypeName())
		}
	}
	return all
}

func kindOf(t btf.Type) string {
	switch t.(type) {
	case *btf.Struct:
		return "struct"
	case *btf.Union:
		return "union"
	case *btf.Enum:
		return "enum"
	}
	return ""
}

// Definition is what C has between the braces of a type, and around them.
func (k *Kernel) Definition(name string) []string {
	kind, tag, _ := strings.Cut(name, " ")
	for t, err := range k.spec.All() {
		if err == nil && kindOf(t) == kind && t.TypeName() == tag {
			return strings.Split(definition(t, 0)+";", "\n")
		}
	}
	return nil
}

// Members are how C declares the members of a structure, by their names.
func (k *Kernel) Members(name string) map[string]string {
	all := map[string]string{}
	var s *btf.Struct
	if k.spec.TypeByName(name, &s) == nil {
		for _, m := range s.Members {
			all[m.Name] = declared(m.Type, m.Name, 0)
		}
	}
	return all
}

// definition is a type with its members.
func definition(t btf.Type, deep int) string {
	var b strings.Builder
	b.WriteString(strings.TrimSpace(kindOf(t)+" "+t.TypeName()) + " {\n")
	in := strings.Repeat("\t", deep+1)
	members := func(all []btf.Member) {
		for _, m := range all {
			b.WriteString(in + declared(m.Type, m.Name, deep+1))
			if m.BitfieldSize != 0 {
				fmt.Fprintf(&b, ": %d", m.BitfieldSize)
			}
			b.WriteString(";\n")
		}
	}
	switch t := t.(type) {
	case *btf.Struct:
		members(t.Members)
	case *btf.Union:
		members(t.Members)
	case *btf.Enum:
		for _, v := range t.Values {
			if t.Signed {
				fmt.Fprintf(&b, "%s%s = %d,\n", in, v.Name, int64(v.Value))
			} else {
				fmt.Fprintf(&b, "%s%s = %d,\n", in, v.Name, v.Value)
			}
		}
	}
	return b.String() + strings.Repeat("\t", deep) + "}"
}

// declared is a declaration: from the name outwards what is nearest comes first, and what is behind it binds more.
func declared(t btf.Type, name string, deep int) string {
	for d := name; ; {
		next := btf.Type(nil)
		switch u := t.(type) {
		case *btf.Pointer:
			d, next = "*"+d, u.Target
		case *btf.Array:
			d, next = fmt.Sprintf("%s[%d]", bound(d), u.Nelems), u.Type
		case *btf.FuncProto:
			var params []string
			for _, p := range u.Params {
				params = append(params, declared(p.Type, "", deep))
			}
			if params == nil {
				params = []string{"void"}
			}
			d, next = bound(d)+"("+strings.Join(params, ", ")+")", u.Return
		case *btf.Const:
			if _, pointer := u.Type.(*btf.Pointer); pointer {
				d, next = strings.TrimSpace("const "+d), u.Type
				break
			}
			return strings.TrimSpace("const " + declared(u.Type, d, deep))
		case *btf.Volatile:
			return strings.TrimSpace("volatile " + declared(u.Type, d, deep))
		case *btf.Restrict:
			next = u.Type
		case *btf.TypeTag:
			next = u.Type
		case *btf.Void, nil:
			return strings.TrimSpace("void " + d)
		default:
			base := t.TypeName()
			if kind := kindOf(t); kind != "" && base != "" {
				base = kind + " " + base
			} else if kind != "" {
				base = definition(t, deep)
			}
			return strings.TrimSpace(base + " " + d)
		}
		t = next
	}
}

// bound puts parentheses around what a pointer is declared by, which binds less than what comes behind it.
func bound(d string) string {
	if strings.HasPrefix(d, "*") {
		return "(" + d + ")"
	}
	return d
}

// Written is a type as C has it, with a blank before its stars.
func Written(t btf.Type) string {
	return declared(t, "", 0)
}
