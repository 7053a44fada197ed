package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A package is raced if its tests, or what they import, start goroutines; the order is that of the patterns.
func TestRaced(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":                        "module kprobe\n",
		"pure/pure.go":                  "package pure\nfunc F() int { return 1 }\n",
		"pure/pure_test.go":             "package pure\nimport \"testing\"\nfunc Test(t *testing.T) { F() }\n",
		"starts/starts.go":              "package starts\nfunc F() { go func() {}() }\n",
		"starts/starts_test.go":         "package starts\nimport \"testing\"\nfunc Test(t *testing.T) { F() }\n",
		"inner/inner.go":                "package inner\nimport \"kprobe/starts\"\nfunc F() { starts.F() }\n",
		"outer/outer.go":                "package outer\nimport \"kprobe/inner\"\nfunc F() { inner.F() }\n",
		"outer/outer_test.go":           "package outer\nimport \"testing\"\nfunc Test(t *testing.T) { F() }\n",
		"tests/tests.go":                "package tests\n",
		"tests/tests_test.go":           "package tests_test\nimport \"testing\"\nfunc Test(t *testing.T) { t.Parallel() }\n",
		"points/points.go":              "package points\nimport \"unsafe\"\nvar P unsafe.Pointer\n",
		"points/points_test.go":         "package points\nimport \"testing\"\nfunc Test(t *testing.T) {}\n",
		"points/by/by_test.go":          "package by\nimport (\"testing\"; _ \"kprobe/points\")\nfunc Test(t *testing.T) {}\n",
		"points/tests/t_test.go":        "package tests_test\nimport (\"testing\"; \"unsafe\")\nvar P unsafe.Pointer\nfunc Test(t *testing.T) {}\n",
		"untested/untested.go":          "package untested\nfunc F() { go func() {}() }\n",
		"stands/stands.go":              "package stands\n",
		"stands/stands_test.go":         "package stands\nimport (\"testing\"; \"kprobe/internal/testprog\")\nfunc Test(t *testing.T) { testprog.Start() }\n",
		"internal/testprog/prog.go":     "package testprog\nfunc Start() { go func() {}() }\n",
		"internal/testprog/a_test.go":   "package testprog\nimport \"testing\"\nfunc Test(t *testing.T) { Start() }\n",
		"internal/testprog/cmd/main.go": "package main\nfunc main() {}\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	got, err := raced([]string{"./starts", "./..."})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"kprobe/starts", "kprobe/internal/testprog", "kprobe/outer", "kprobe/points", "kprobe/points/tests", "kprobe/tests"}; !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	if _, err := raced([]string{"./nothing"}); err == nil {
		t.Error("a package that is not there is no error")
	}
}
