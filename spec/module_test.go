package spec

import "testing"

// A symbol may be told with its file, whatever stands in that file's name, and its type is told apart from the symbol.
func TestSymbolOfFile(t *testing.T) {
	for _, tt := range []struct{ body, name, typ string }{
		{"@counter", "counter", ""},
		{"@counter:s32", "counter", "s32"},
		{"@counter:b4@0/32", "counter", "b4@0/32"},
		{"@counter:u8[4]", "counter", "u8"},
		{"@prog:counter", "prog:counter", ""},
		{"@prog:counter:s32", "prog:counter", "s32"},
		{"@libx.so:x8", "libx.so:x8", ""},
		{"@libx.so:x8:x8", "libx.so:x8", "x8"},
		{"@/usr/lib/x86_64-linux-gnu/libstdc++.so.6:environ:u64", "/usr/lib/x86_64-linux-gnu/libstdc++.so.6:environ", "u64"},
		{"@ns::count", "ns::count", ""},
		{"@libx.so:ns::count:u32", "libx.so:ns::count", "u32"},
		{"+0(@libx.so:counter):s32", "libx.so:counter", "s32"},
		{"+0(@libx.so:counter)", "libx.so:counter", ""},
	} {
		sp, err := (Options{Dialect: Process}).Parse("p f v=" + tt.body)
		if err != nil {
			t.Errorf("%s: %v", tt.body, err)
			continue
		}
		f := &sp.Args[0].Fetch
		if f.Op == Deref {
			f = f.Inner
		}
		if f.Op != Sym || f.Name != tt.name || sp.Args[0].Type.Written != tt.typ {
			t.Errorf("%s: symbol %q of type %q", tt.body, f.Name, sp.Args[0].Type.Written)
		}
		if again, err := (Options{Dialect: Process}).Parse(sp.String()); err != nil || again.String() != sp.String() {
			t.Errorf("%s: %s: %v", tt.body, sp, err)
		}
	}
	sp, err := (Options{Dialect: Process}).Parse("p f @/lib/x86-64/libc.so.6:environ+8")
	if err != nil || sp.Args[0].Fetch.N != 8 || sp.Args[0].Fetch.Name != "/lib/x86-64/libc.so.6:environ" {
		t.Errorf("an offset: %v, %v", sp, err)
	}
}
