package symbol

import "testing"

// The tables and names of compilers of other languages than C tell their functions.
func TestFunctionsOfOtherLanguages(t *testing.T) {
	const plain = "int camlList__map_3(int n) { return n; } int caml_alloc(int n) { return n + 1; } int Main_work_info(int n) { return n + 2; } int version_info(int n) { return n + 3; }\n"
	for _, tt := range []struct {
		text, scanner     string
		map3, alloc, info Passing
	}{
		{plain, "", ByC, ByC, ByC},
		{plain + "long caml_frametable[2];", "OCaml", ByOCaml, ByC, ByC},
		{plain + "long camlPlugin__frametable[2];", "OCaml", ByOCaml, ByC, ByC},
		{plain + "void stg_upd_frame_info(void) {}", "", ByC, ByC, ByHaskell},
		{plain + "void scheme_to_interface(void) {} void C_to_interface(void) {}", "MIT Scheme", ByC, ByC, ByC},
	} {
		f := open(t, build(t, "gcc", "f.c", tt.text, "-shared", "-fPIC"), false)
		if got := f.StackScanner(); got != tt.scanner {
			t.Errorf("%s\nthe runtime is %q, want %q", tt.text, got, tt.scanner)
		}
		for name, want := range map[string]Passing{"camlList__map_3": tt.map3, "caml_alloc": tt.alloc, "Main_work_info": tt.info, "version_info": ByC} {
			if got := f.Passing(f.Lookup(name)[0]); got != want || (got.Refusal() == "") != (want == ByC) {
				t.Errorf("%s\n%s: %d (%s), want %d", tt.text, name, got, got.Refusal(), want)
			}
		}
	}
}
