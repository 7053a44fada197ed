package event

import (
	"slices"
	"strconv"
	"strings"

	"kprobe/spec"
)

// Fold puts the parts of values together: of structs, and of all else that is read as several
// arguments. The values that it makes share memory with those that it is given.
func Fold(args []Value) []Value {
	for i := range args {
		if strings.Contains(args[i].Name, spec.PartSep) {
			return fold(args)
		}
	}
	return args
}

func fold(args []Value) (out []Value) {
	for len(args) > 0 {
		name, _, parts := strings.Cut(args[0].Name, spec.PartSep)
		if !parts {
			out = append(out, args[0])
			args = args[1:]
			continue
		}
		var of []Value
		for len(args) > 0 {
			rest, ok := strings.CutPrefix(args[0].Name, name+spec.PartSep)
			if !ok {
				break
			}
			v := args[0]
			v.Name = rest
			of = append(of, v)
			args = args[1:]
		}
		v := together(of)
		v.Name = name
		out = append(out, v)
	}
	return out
}

// together makes one value of its parts.
func together(parts []Value) (v Value) {
	v.Parts = []Value{}
	if strings.HasPrefix(parts[0].Name, spec.PartLow) && len(parts) == 2 && parts[1].Name == spec.PartHigh {
		return wide(&parts[0], &parts[1])
	}
	var tag, count *Value
	unit, sparse := uint64(1), false
	rest := parts[:0:0]
	for i := range parts {
		p := &parts[i]
		switch n, counts := strings.CutPrefix(p.Name, spec.PartCount); {
		case p.Name == spec.PartTag:
			tag = p
		case p.Name == spec.PartSparse:
			sparse = true
		case counts && !strings.Contains(n, spec.PartSep):
			count = p
			if k, err := strconv.ParseUint(n, 10, 64); err == nil && k > 0 {
				unit = k
			}
		default:
			rest = append(rest, *p)
		}
	}
	for _, of := range []*Value{tag, count} {
		if of != nil && of.Fault {
			return Value{Fault: true, Tail: of.Tail, Gone: of.Gone}
		}
	}
	if tag != nil && tag.Base.Named() {
		v.Text = string(tag.AppendText(nil))
		v.Tagged = true
		of := rest[:0:0]
		for i := range rest {
			if name, ok := strings.CutPrefix(rest[i].Name, v.Text+spec.PartSep); ok {
				rest[i].Name = name
				of = append(of, rest[i])
			}
		}
		rest = of
	} else if tag != nil && tag.Bits == 0 {
		return Value{Text: "nil", Tagged: true, Parts: v.Parts}
	}
	v.Parts = append(v.Parts, fold(rest)...)
	if count == nil {
		return v
	}
	if sparse { // of the places for elements some are empty
		v.Parts = slices.DeleteFunc(v.Parts, func(e Value) bool { return e.Tagged && len(e.Parts) == 0 && e.Text == "nil" })
	}
	n := count.Bits
	if count.Array {
		if n = count.Of; n == 0 {
			n = uint64(len(count.Elems))
		}
	}
	n /= unit
	if uint64(len(v.Parts)) > n {
		v.Parts = v.Parts[:n]
	}
	elems := v.Parts
	for i := range elems {
		if e := elems[i].Parts; sparse && len(e) == 1 && e[0].Name == spec.PartValue {
			elems[i] = e[0]
		}
		elems[i].Name = ""
	}
	v = Value{Array: true, Elems: elems}
	if n > uint64(len(elems)) {
		v.Of = n
	}
	return v
}

// unnamed tells the parts whose names say nothing: the target of a pointer, and members of tuples.
func unnamed(name string) bool {
	n, ok := strings.CutPrefix(name, "__")
	return name == spec.PartValue || ok && n != "" && strings.Trim(n, "0123456789") == ""
}

// appendParts writes a value that has parts.
func (v *Value) appendParts(dst []byte) []byte {
	if v.Tagged {
		dst = appendText(dst, v.Text)
		if len(v.Parts) == 0 {
			return dst
		}
	}
	dst = append(dst, '{')
	for i := range v.Parts {
		p := &v.Parts[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		switch {
		case p.Name == spec.PartMore:
			dst = append(dst, "..."...)
			continue
		case !unnamed(p.Name):
			dst = append(appendText(dst, p.Name), '=')
		}
		dst = p.AppendText(dst)
	}
	return append(dst, '}')
}

// appendJSONParts writes it as an object with its parts; with a tag, as that, or as an object that
// has it as its only member.
func (v *Value) appendJSONParts(dst []byte) []byte {
	if v.Tagged {
		if len(v.Parts) == 0 {
			return appendJSONText(dst, v.Text)
		}
		dst = append(appendJSONText(append(dst, '{'), v.Text), ':')
		untagged := *v
		untagged.Tagged = false
		return append(untagged.appendJSONParts(dst), '}')
	}
	if len(v.Parts) == 1 && v.Parts[0].Name == spec.PartValue {
		return v.Parts[0].AppendJSON(dst)
	}
	dst = append(dst, '{')
	for i := range v.Parts {
		p := &v.Parts[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendJSONText(dst, p.Name), ':')
		if p.Name == spec.PartMore {
			dst = append(dst, "true"...)
			continue
		}
		dst = p.AppendJSON(dst)
	}
	return append(dst, '}')
}
