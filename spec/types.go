package spec

import "strings"

// types are the types by name. The sizes are bytes of one element.
var types = map[string]Type{
	"u8": {Base: Unsigned, Size: 1}, "s8": {Base: Signed, Size: 1}, "x8": {Base: Hex, Size: 1},
	"u16": {Base: Unsigned, Size: 2}, "s16": {Base: Signed, Size: 2}, "x16": {Base: Hex, Size: 2},
	"u32": {Base: Unsigned, Size: 4}, "s32": {Base: Signed, Size: 4}, "x32": {Base: Hex, Size: 4},
	"u64": {Base: Unsigned, Size: 8}, "s64": {Base: Signed, Size: 8}, "x64": {Base: Hex, Size: 8},
	"char":   {Base: Char, Size: 1},
	"string": {Base: String}, "ustring": {Base: UString},
	"symbol": {Base: Symbol}, "symstr": {Base: SymStr},
	"%pd": {Base: Dentry}, "%pD": {Base: FileP},
}

// word is the size of a target's word in bytes.
func (o Options) word() int {
	if o.WordSize != 0 {
		return o.WordSize
	}
	return 8
}

// defaultType is the type of a value that is given none: x64, or x32 where
// words are of that size.
func (o Options) defaultType() Type { return Type{Base: Hex, Size: o.word()} }

// typ reads a type without its array part.
func (p *parser) typ(name string, at int, t *Type) error {
	found, ok := types[name]
	switch found.Base {
	case Symbol, SymStr:
		// Only the kernel knows its own symbols when it prints, and so do we
		// those of a process; uprobes do not.
		ok = ok && p.Dialect != Uprobes
		found.Size = p.word()
	case Dentry, FileP:
		ok = ok && p.Dialect == Kprobes && t.Array == 0
	}
	if strings.HasPrefix(name, "b") {
		return p.bitfield(name, at, t)
	}
	if !ok {
		return p.fail(at, BadType)
	}
	found.Written, found.Array = name, t.Array
	*t = found
	return nil
}

// bitfield = "b" WIDTH "@" OFFSET "/" CONTAINER.
func (p *parser) bitfield(name string, at int, t *Type) error {
	slash := strings.IndexByte(name, '/')
	bits, ok := parseUint(name[slash+1:], 8)
	if slash < 0 || !ok || bits != 8 && bits != 16 && bits != 32 && bits != 64 {
		return p.fail(at, BadType)
	}
	width, rest, ok := cutUint(name[1:], "@")
	if !ok || width == 0 {
		return p.fail(at, BadBitfield)
	}
	offset, _, ok := cutUint(rest, "/")
	if !ok || width > int(bits)-offset {
		return p.fail(at, BadBitfield)
	}
	*t = Type{Written: name, Base: Bitfield, Size: int(bits) / 8, Array: t.Array, BitW: width, BitO: offset}
	return nil
}

// array cuts "[N]" off a type and keeps N.
func (p *parser) array(typed string, at int, a *Arg) (name string, err error) {
	open := strings.IndexByte(typed, '[')
	if open < 0 {
		return typed, nil
	}
	number := typed[open+1:]
	end := strings.IndexByte(number, ']')
	switch {
	case end < 0:
		return "", p.fail(at+len(typed), ArrayNoClose)
	case end+1 < len(number):
		return "", p.fail(at+open+1+end+1, BadArraySuffix)
	}
	n, ok := parseUint(number[:end], 32)
	if !ok || n == 0 {
		return "", p.fail(at+open+1, BadArrayNum)
	}
	if n > maxArray {
		return "", p.fail(at+open+1, ArrayTooBig)
	}
	a.Type.Array = int(n)
	return typed[:open], nil
}

// agree checks that the type suits the fetch, and that the whole fits the kernel's fetch program.
func (p *parser) agree(a *Arg, at, typ int) error {
	op := a.Fetch.Op
	memory := op == Deref || op == Abs || op == Sym || op == FileOff ||
		op == Var || op == Expression || len(a.Fetch.Fields) > 0 // of these only type information can tell
	immediate := op == Imm || op == ImmStr || op == Comm
	steps := a.Fetch.steps()
	switch a.Type.Base {
	case String, UString:
		if !memory && !immediate {
			return p.fail(typ, BadString)
		}
		if immediate || a.Type.Array != 0 {
			steps++
		}
	case SymStr:
		if op == Imm {
			return p.fail(typ, BadSymString)
		}
	case Bitfield:
		steps++
	}
	if !memory && a.Type.Base != String && a.Type.Base != UString {
		steps++ // the value is stored by a step of its own
	}
	if a.Type.Array != 0 {
		if !memory {
			return p.fail(typ, BadString)
		}
		steps++
	}
	if steps > maxOps {
		return p.fail(at, TooManyOps)
	}
	return nil
}

// steps counts the steps of the kernel's program for a fetch.
func (f *Fetch) steps() int {
	switch f.Op {
	case Deref:
		return f.Inner.steps() + 1
	case Abs, FileOff:
		return 2
	case Sym:
		return 3
	}
	return 1 + len(f.Fields)
}
