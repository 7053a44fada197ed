package compile_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/bpf/verify"
	"kprobe/script/builtin"
	"kprobe/script/compile"
	"kprobe/script/syntax"
)

// corpus are the scripts of the tests, those that are refused too.
func corpus(t testing.TB) (all []string) {
	files, err := filepath.Glob("../testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for part := range strings.SplitSeq(string(text), "\n========\n") {
			all = append(all, part)
		}
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "ok "); ok {
				all = append(all, strings.ReplaceAll(strings.TrimSpace(rest), "P {", "uprobe:f:g {"))
			}
		}
	}
	return all
}

// compiles holds that what the checker accepts becomes programs that the verifier accepts, and that what is refused
// is refused with a place in the text.
func compiles(t *testing.T, text string) {
	src := &syntax.Source{Name: "stdin", Text: text}
	plan, err := compile.Compile(src, builtin.Library(), compile.Options{Params: []string{"1", "x"}, Unsafe: true})
	if err != nil {
		all, ok := err.(syntax.Errors)
		if !ok || len(all) == 0 {
			t.Fatalf("%q is refused without a place: %v", text, err)
		}
		for _, e := range all {
			if e.From < 0 || e.From > len(text) {
				t.Fatalf("%q: an error at %d: %s", text, e.From, e.Msg)
			}
		}
		_ = err.Error()
		return
	}
	for _, p := range plan.Probes {
		if len(p.Program.Insns) > 2000 {
			continue // the proof of these takes long
		}
		if _, err := verify.Program(p.Program); err != nil && !strings.Contains(err.Error(), "too") {
			t.Fatalf("%q is accepted, and its program is refused: %v", text, err)
		}
	}
}

// Every script of the tests that is accepted is one that the verifier accepts.
func TestCorpus(t *testing.T) {
	n := 0
	for _, text := range corpus(t) {
		n++
		compiles(t, text)
	}
	if n < 200 {
		t.Errorf("%d scripts", n)
	}
}

// Any text: no panic, no endless work, and no program that the verifier refuses.
func FuzzCompile(f *testing.F) {
	for _, text := range corpus(f) {
		if len(text) < 400 {
			f.Add(text)
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) < 1000 {
			compiles(t, text)
		}
	})
}

// A script that is read is read again from its one form, which then does not change.
func FuzzFormat(f *testing.F) {
	for _, text := range corpus(f) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := syntax.Parse(&syntax.Source{Name: "stdin", Text: text})
		if err != nil {
			return
		}
		once := syntax.Format(file)
		again, err := syntax.Parse(&syntax.Source{Name: "stdin", Text: once})
		if err != nil {
			t.Fatalf("%q\nbecomes\n%q\nwhich is not read: %v", text, once, err)
		}
		if twice := syntax.Format(again); twice != once {
			t.Fatalf("%q\nbecomes\n%q\nand that\n%q", text, once, twice)
		}
	})
}
