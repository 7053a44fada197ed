package symbol

import (
	"slices"
	"strings"
)

// scanner is the key of StackScanner's memo.
type scanner struct{}

// StackScanner names the runtime of this file's functions that reads the return addresses on its stacks, as a collector of
// garbage does; "" where there is none that is known. Such a runtime ends the program where it meets another address.
//
// The runtimes of OCaml 4 and 5 do so; each unit has a table of the addresses, caml*__frametable. So does that of MIT's Scheme, whose
// stack has its objects: it goes to that stack, and back to C's, by routines of its own. What Go's does GoCode tells.
func (f *File) StackScanner() string {
	return f.Memo(scanner{}, func() any {
		switch {
		case slices.ContainsFunc(f.Data(), func(s Symbol) bool {
			return strings.HasPrefix(s.Name, "caml") && strings.HasSuffix(s.Name, "_frametable")
		}):
			return "OCaml"
		case len(f.lookupExact("scheme_to_interface")) > 0 && len(f.lookupExact("C_to_interface")) > 0:
			return "MIT Scheme"
		}
		return ""
	}).(string)
}

// ocaml tells whether a function of such a file is OCaml code: caml and its unit's name, which has a capital letter. The runtime's own
// functions are caml_NAME.
func (f *File) ocaml(fn Symbol) bool {
	rest, ok := strings.CutPrefix(fn.Name, "caml")
	return ok && capital(rest) && f.StackScanner() == "OCaml"
}

// haskell is the key of the memo that tells of a file whether it has Haskell's runtime.
type haskell struct{}

// Haskell tells whether a function is Haskell code, or the runtime's of its kind: stg_NAME, or UNIT_Module_name_info, where the unit may be
// missing, in a file that has the runtime's frames. Such functions are not called but jumped to.
func (f *File) Haskell(fn Symbol) bool {
	switch unit, rest, _ := strings.Cut(fn.Name, "_"); {
	case unit == "stg" && rest != "":
	case !strings.HasSuffix(fn.Name, "_info") && !strings.HasSuffix(fn.Name, "_slow"):
		return false
	case !capital(unit) && !capital(rest):
		return false
	}
	return f.Memo(haskell{}, func() any { return len(f.Lookup("stg_upd_frame_info")) > 0 }).(bool)
}

func capital(name string) bool { return name != "" && name[0] >= 'A' && name[0] <= 'Z' }
