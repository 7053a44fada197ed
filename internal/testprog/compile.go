package testprog

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Compile makes a program at out of one source file, by a command such as {"gcc", "-O2"} or
// {"go", "build"}; flags that come behind the source are libraries. What the same command has made
// of the same text at the same place is taken from the cache: line tables name the place. The
// source may include nothing but what comes with the compiler.
func Compile(t testing.TB, out string, cc []string, source string, libraries ...string) {
	t.Helper()
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	compile(t, out, cc, fmt.Sprintf("%q %q %q", here, source, text), libraries, func(string, string) (string, []string) {
		return source, nil
	})
}

// CompileText is Compile for a text, which is called name. It lies in the cache, where line tables find it.
func CompileText(t testing.TB, out string, cc []string, name, text string, libraries ...string) {
	t.Helper()
	compile(t, out, cc, fmt.Sprintf("%q %q", name, text), libraries, func(work, dir string) (string, []string) {
		source := filepath.Join(work, name)
		if err := os.WriteFile(source, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if cc[0] == "rustc" {
			return source, nil
		}
		return source, []string{"-ffile-prefix-map=" + work + "=" + dir}
	})
}

// compile gives out what the cache has for a command and what it is about. Else sourceIn tells the
// source, for a build in a folder that will be dir, and flags.
func compile(t testing.TB, out string, cc []string, about string, libraries []string, sourceIn func(work, dir string) (string, []string)) {
	t.Helper()
	const program = "program"
	build := func(work, dir, made string) {
		source, flags := sourceIn(work, dir)
		cmd := exec.Command(cc[0], slices.Concat(cc[1:], flags, []string{"-o", made, source}, libraries)...)
		if b, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("testprog: %v: %v\n%s", cmd, err, b)
		}
	}
	if !again(cc, libraries) {
		dir := t.TempDir()
		build(dir, dir, out)
		return
	}
	version, err := versionOf(cc[0])
	Need(t, fmt.Sprintf("compiler %s: %v", cc[0], err), err == nil)
	key := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %s", version, cc, libraries, settingsOf(cc[0]), about))
	dir := filepath.Join(cacheDir(t), fmt.Sprintf("%x", key[:12]))
	if !inUse(dir, program) {
		work := tempDir(t)
		defer os.RemoveAll(work)
		build(work, dir, filepath.Join(work, program))
		publish(t, work, dir)
	}
	// Each test has its own, which it may change. Another process writes it: a child that is just
	// started here would have it open to be written, and it could not be executed.
	if b, err := exec.Command("cp", filepath.Join(dir, program), out).CombinedOutput(); err != nil {
		t.Fatalf("testprog: cp %s %s: %v\n%s", dir, out, err, b)
	}
}

// again tells whether a command makes the same a second time: not where it reads a test's own
// files, nor where the program names a second file that is made beside it.
func again(cc, libraries []string) bool {
	return !slices.ContainsFunc(slices.Concat(cc, libraries), func(word string) bool {
		return word == "-gsplit-dwarf" || strings.Contains(word, os.TempDir())
	})
}

// settingsOf is the environment that a compiler heeds.
func settingsOf(compiler string) (settings []string) {
	for _, v := range os.Environ() {
		if compiler == "go" && (strings.HasPrefix(v, "GO") || strings.HasPrefix(v, "CGO")) {
			settings = append(settings, v)
		}
	}
	slices.Sort(settings)
	return settings
}
