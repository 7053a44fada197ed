package symbol

import (
	"fmt"
	"strings"
)

type unwindFact struct {
	may    bool
	reason string
}

// A return probe that replaces the return address hides the caller from code that unwinds the
// stack. That is harmless in C, and ends a program that throws through the frame. So before a
// return address is touched, the question is whether anything in the module may unwind.

// unwindImports are functions that only code which throws, catches or cleans
// up calls.
var unwindImports = []string{
	"__cxa_throw", "__cxa_rethrow", "__cxa_begin_catch",
	"_Unwind_Resume", "_Unwind_RaiseException", "_Unwind_ForcedUnwind",
}

// personalities are the routines that tell languages with exceptions. C has one
// too (__gcc_personality_v0: cleanup attributes, thread cancellation), which
// libc itself uses and which stands for no exception.
var personalities = map[string]bool{
	"__gxx_personality_v0": true, "__gxx_personality_sj0": true, // C++
	"rust_eh_personality":   true,
	"__gnat_personality_v0": true,                            // Ada
	"__gdc_personality_v0":  true, "_d_eh_personality": true, // D
	"__objc_personality_v0": true, "__gnu_objc_personality_v0": true,
	"__gccgo_personality_v0": true,
}

const cPersonality = "__gcc_personality_v0"

// unwindLibraries are runtimes of such languages. Code that links to one may be
// thrown through even if it has nothing to clean up itself.
var unwindLibraries = []string{"libstdc++.so", "libc++.so", "libc++abi.so", "libstd-", "libgnat", "libobjc.so", "libphobos", "libgo.so"}

// Unwinds tells whether exceptions or panics may pass through this file's own
// code, and why, in words. A false answer has its reason too.
//
// It is about this file alone: C code that calls back into C++ (qsort) can be
// passed through as well; ask for the callers' modules where that matters.
func (f *File) Unwinds() (bool, string) {
	u := f.unwinds()
	return u.may, u.reason
}

func (f *File) readUnwinds() unwindFact {
	if f.IsGo() {
		return unwindFact{true, "Go code: the runtime walks and moves its stacks"}
	}
	ds := f.dynsyms()
	for name := range personalities {
		if ds.imports[name] {
			return unwindFact{true, "imports " + name}
		}
	}
	for _, name := range unwindImports {
		if ds.imports[name] {
			return unwindFact{true, "imports " + name}
		}
	}
	for _, lib := range f.dynamic().needed {
		for _, prefix := range unwindLibraries {
			if strings.HasPrefix(lib, prefix) {
				return unwindFact{true, "needs " + lib}
			}
		}
	}
	for _, s := range f.Funcs() {
		// Not _Unwind_*: a static C program has those, for pthread_cancel.
		if personalities[s.Name] || s.Name == "__cxa_throw" {
			return unwindFact{true, "defines " + s.Name}
		}
	}
	unnamed := map[*cie]uint64{}
	for _, c := range f.frames().cies {
		name, addr := f.personalityName(c)
		switch {
		case addr == 0 || name == cPersonality:
		case name == "":
			unnamed[c] = addr
		default:
			return unwindFact{true, "its unwind entries name " + name}
		}
	}
	for _, e := range f.frames().fdes {
		if addr, ok := unnamed[e.cie]; ok && f.catches(e) {
			return unwindFact{true, fmt.Sprintf("its unwind entries catch by the unnamed personality routine at %#x", addr)}
		}
	}
	return unwindFact{false, "no personality routine but C's, and no import that throws or catches"}
}

// personalityName finds what routine a CIE names; addr is 0 for none.
func (f *File) personalityName(c *cie) (name string, addr uint64) {
	if c.persEnc == encOmit || c.personality == 0 {
		return "", 0
	}
	addr = c.personality
	if c.persEnc&encIndirect != 0 {
		if name, ok := f.relocs().names[addr]; ok {
			return name, addr
		}
		b, err := f.readVaddr(addr, uint64(f.ptr))
		if err != nil {
			return "", addr
		}
		if target := f.word(b); target != 0 {
			addr = target
		}
	}
	if s, ok := f.FuncAt(addr); ok && s.Addr == addr {
		// A stub of the PLT stands for its import.
		return strings.TrimSuffix(s.Name, pltSuffix), addr
	}
	return "", addr
}

// catches tells whether a function has a table of types to catch. One under C's personality never
// has: it cleans up for all.
func (f *File) catches(e fde) bool {
	b, err := f.restOf(e.lsda, 16)
	if e.lsda == 0 || err != nil {
		return false
	}
	lsda := &cursor{f: f, b: b, addr: e.lsda}
	if enc := lsda.u8(); enc != encOmit { // start of landing pads, if not the function's
		lsda.pointer(enc)
	}
	return lsda.u8() != encOmit && !lsda.bad
}
