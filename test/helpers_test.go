package test

import (
	"os"
	"testing"

	"kprobe/symbol"
)

func openFile(path string) (*symbol.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return symbol.Open(f, &symbol.Options{Path: path})
}

func openELF(t testing.TB, path string) *symbol.File {
	t.Helper()
	f, err := openFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
