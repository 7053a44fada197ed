package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadableNames holds that functions of C++ and Rust go by their names in the source wherever they are shown.
func TestReadableNames(t *testing.T) {
	for _, p := range []struct{ source, def, event, caller, place string }{
		{"shapes.cc", "shop::Cart::add", "(shop::Cart::add+0x0/", "=> main+", "shapes:shop::Cart::add"},
		{"cart.rs", "cart::add", "(cart::add+0x0/", "=> cart::main+", "cart:cart::add"},
	} {
		t.Run(p.source, func(t *testing.T) {
			cc := []string{"g++", "-O1", "-fno-inline", "-g"}
			if strings.HasSuffix(p.source, ".rs") {
				cc = []string{"rustc", "-g"}
			}
			path := compiledSource(t, append(cc, p.source)...)
			flame := filepath.Join(t.TempDir(), "flame.html")
			r := run(t, "trace", "--flame", flame, "p:ev "+p.def+" stack", "--", path)
			all := strings.Join(r.Lines, "\n")
			if !strings.Contains(all, p.event) || !strings.Contains(all, p.caller) || strings.Contains(all, "_ZN") {
				t.Errorf("%q", r.Lines)
			}
			page, err := os.ReadFile(flame)
			if err != nil {
				t.Fatal(err)
			}
			if name := strings.TrimPrefix(p.def, "shop::"); !strings.Contains(string(page), name) || strings.Contains(string(page), "_ZN") {
				t.Errorf("the picture has no %s, or mangled names", p.def)
			}
			r = run(t, "stat", "-d", "1s", "p:ev "+p.def, "--", path)
			if all := strings.Join(r.Lines, "\n") + r.Stderr; !strings.Contains(all, p.place) {
				t.Errorf("%s is not in %q", p.place, all)
			}
		})
	}
}
