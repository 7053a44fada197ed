package symbol

import (
	"slices"
	"strconv"
	"strings"
)

// names is the index from names to places in the table.
type names struct {
	funcs, data map[string][]int32
}

func (f *File) readNames() *names {
	t := f.table()
	return &names{indexNames(t.funcs), indexNames(t.data)}
}

func indexNames(syms []Symbol) map[string][]int32 {
	m := make(map[string][]int32, len(syms))
	for i := range syms {
		if name := syms[i].Name; name != "" {
			m[name] = append(m[name], int32(i))
		}
	}
	return m
}

// Lookup finds functions and variables by name, in this order:
//
//   - as the file spells it, "memcpy", of any version, the default version
//     first; with a version, "memcpy@GLIBC_2.2.5" or "memcpy@@GLIBC_2.14";
//     a PLT stub by "memcpy@plt"
//   - as C++ or Rust source spells it: "ns::f(int)" or "ns::f", Rust without
//     the hash
//   - "sub_2a310": the nameless function that starts at vaddr 0x2a310
//
// The first that finds anything answers. Several results are different things
// of one name: versions, overloads, static functions of several source files.
func (f *File) Lookup(name string) []Symbol {
	if syms := f.lookupExact(name); syms != nil || name == "" {
		return syms
	}
	return f.lookupDemangled(name)
}

func (f *File) lookupExact(name string) []Symbol {
	if name == "" || !f.mentions(name) {
		return nil
	}
	syms := f.pick(name, func(*Symbol) bool { return true })
	if syms == nil {
		if base, version, def := splitVersion(name); version != "" {
			syms = f.pick(base, func(s *Symbol) bool { return s.Version == version && (s.Default || !def) })
		}
	}
	if hex, ok := strings.CutPrefix(name, subPrefix); ok && syms == nil {
		if addr, err := strconv.ParseUint(hex, 16, 64); err == nil {
			if s, ok := f.FuncAt(addr); ok && s.Addr == addr && s.Name == "" {
				return []Symbol{s}
			}
		}
	}
	slices.SortStableFunc(syms, func(a, b Symbol) int {
		if a.Default == b.Default {
			return 0
		} else if a.Default {
			return -1
		}
		return 1
	})
	return syms
}

// pick collects the symbols of one exact name that want accepts, functions first.
func (f *File) pick(name string, want func(*Symbol) bool) []Symbol {
	var syms []Symbol
	t, n := f.table(), f.names()
	for _, i := range n.funcs[name] {
		if want(&t.funcs[i]) {
			syms = append(syms, t.funcs[i])
		}
	}
	for _, i := range n.data[name] {
		if want(&t.data[i]) {
			syms = append(syms, t.data[i])
		}
	}
	return syms
}

// cloneSuffixes are the suffixes that compilers append to the name of a function that they have
// split or specialised, before an optional number.
var cloneSuffixes = []string{".isra", ".constprop", ".part", ".cold", ".lto_priv", ".llvm", ".clone", ".localalias"}

// isClone tells whether suffix is a sequence of such: ".part.0.constprop.1".
func isClone(suffix string) bool {
	if suffix == "" {
		return false
	}
	for suffix != "" {
		i := slices.IndexFunc(cloneSuffixes, func(s string) bool { return strings.HasPrefix(suffix, s) })
		if i < 0 {
			return false
		}
		suffix = suffix[len(cloneSuffixes[i]):]
		if n := strings.TrimLeft(strings.TrimPrefix(suffix, "."), "0123456789"); len(n) < len(suffix)-1 {
			suffix = n
		}
		if suffix != "" && suffix[0] != '.' {
			return false
		}
	}
	return true
}

// LookupBase finds the functions that a compiler made of the function called
// base: base.isra.0, base.constprop.0, base.part.0, base.cold. The function
// itself is not among them. Base is spelled as the file does.
func (f *File) LookupBase(base string) []Symbol {
	var syms []Symbol
	for _, s := range f.table().funcs {
		if rest, ok := strings.CutPrefix(s.Name, base); ok && isClone(rest) {
			syms = append(syms, s)
		}
	}
	return syms
}
