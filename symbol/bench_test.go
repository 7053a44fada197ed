package symbol

import (
	"os"
	"testing"
)

// The price of a session: nothing to open, once for a name or an address, and next to nothing after
// that.
func BenchmarkFile(b *testing.B) {
	for name, path := range map[string]string{"libc": libcPath, "node": "/usr/bin/node"} {
		r, err := os.Open(path)
		if err != nil {
			b.Logf("%v", err)
			continue
		}
		defer r.Close()
		opened := func() *File {
			f, err := Open(r, nil)
			if err != nil {
				b.Fatal(err)
			}
			return f
		}
		b.Run(name+"/open", func(b *testing.B) {
			for b.Loop() {
				opened()
			}
		})
		b.Run(name+"/firstFuncAt", func(b *testing.B) {
			for b.Loop() {
				opened().FuncAt(0)
			}
		})
		b.Run(name+"/firstLookup", func(b *testing.B) {
			for b.Loop() {
				opened().Lookup("malloc")
			}
		})
		f := opened()
		funcs := f.Funcs()
		b.Run(name+"/FuncAt", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				f.FuncAt(funcs[i%len(funcs)].Addr)
			}
		})
		b.Run(name+"/lookupAll", func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				f.Lookup(funcs[i%len(funcs)].Name)
			}
		})
		b.Run(name+"/demangled", func(b *testing.B) {
			for b.Loop() {
				f.Lookup("v8::internal::Heap::nothing")
			}
		})
	}
}
