package script_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/script"
)

// What is imported comes before the script that imports it, once, and its errors are at places of its own.
func TestImports(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		ok(t, os.MkdirAll(filepath.Dir(path), 0o755))
		ok(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	write("lib/a.bt", "#!/usr/bin/env bpftrace\nimport \"b.bt\";\nstruct P { int x; }\nmacro twice(x) { x + x }\nbegin { print(\"a\"); }\n")
	write("lib/b.bt", "import \"a.bt\";\nfn plus($n : int64): int64 { return $n + 1; }\nbegin { print(\"b\"); }\n")
	write("wrong.bt", "begin {\n  print($nosuch); }\n")
	write("torn.bt", "begin {\n  print(1 }\n")
	main := filepath.Join(dir, "main.bt")
	for _, tt := range []struct{ text, want string }{
		{"import \"lib/a.bt\";\nimport \"stdlib/base\";\nbegin { print((twice(4), plus(5), sizeof(struct P))); }", "b\na\n(8, 6, 4)\n"},
		{"import \"lib\"; import \"lib/b\"; begin { print(twice(2)); }", "b\na\n4\n"},
	} {
		if out, told, _, err := run(tt.text, script.Options{Name: main, Quiet: true}, nil, nil); err != nil || strings.TrimRight(out, "\n") != strings.TrimRight(tt.want, "\n") {
			t.Errorf("%s\nprints %q%s, %v", tt.text, out, told, err)
		}
	}
	for _, tt := range []struct{ text, want string }{
		{"import \"wrong.bt\"; begin { }", "wrong.bt:2:9-16: ERROR: Undefined or undeclared variable: $nosuch\n  print($nosuch); }\n        ~~~~~~~"},
		{"import \"torn.bt\"; begin { $x }", "torn.bt:2:11-12: ERROR: syntax error"},
		{"import \"wrong.bt\";\nbegin { $x }", "main.bt:2:9-11: ERROR: Undefined or undeclared variable: $x"},
		{"import \"nope.bt\"; begin { }", "there is no script"},
		{"import \"lib/f.c\"; begin { }", "code of C is not linked here"},
	} {
		if _, err := script.Compile(tt.text, script.Options{Name: main}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\nis not refused with %q: %v", tt.text, tt.want, err)
		}
	}
}
