package testprog

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A guest of another machine has no compiler. What its tests build is built here, for that
// machine, and lies ready there, by name and flags: tests that run there call Build as they
// always do.

// programsEnv names the folder in the environment of tests in a guest.
const programsEnv = "KPROBE_TEST_PROGRAMS"

// InGuest tells whether the tests run in a guest, by Ready's programs and no compiler.
func InGuest() bool { return os.Getenv(programsEnv) != "" }

const programsThere = "/programs"

// GuestEnv is what makes tests in a guest take what Ready has put there.
var GuestEnv = programsEnv + "=" + programsThere

// cross are the GNU target triples of machines, which begin the names of their compilers.
var cross = map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu", "riscv64": "riscv64-linux-gnu", "s390x": "s390x-linux-gnu", "ppc64le": "powerpc64le-linux-gnu"}

// Recipe is a program that tests build: its name and flags.
type Recipe struct {
	Name  string
	Flags []string
}

// Ready builds programs for another machine, and answers where each belongs in a guest of that
// machine: path there, path here. What they load is among it.
func Ready(t testing.TB, machine string, recipes ...Recipe) map[string]string {
	t.Helper()
	triple := cross[machine]
	if triple == "" {
		t.Fatalf("testprog: no compiler is known for %s", machine)
	}
	files := make(map[string]string)
	for _, r := range append(recipes, Recipe{"runner", []string{"-O2"}}) {
		var with string
		switch compilerOf(sourcesOf(r.Name)) {
		case "go":
			with = "GOARCH=" + machine
		case "g++":
			with = "CC=" + triple + "-g++"
		default:
			with = "CC=" + triple + "-gcc"
		}
		here := Build(t, r.Name, append(slices.Clone(r.Flags), with)...)
		files[thereOf(programsThere, r.Name, r.Flags, filepath.Ext(here))] = here
	}
	if machine == "amd64" { // as here, in folders of their own for 32-bit programs
		for _, folder := range []string{"/lib64/", "/lib/x86_64-linux-gnu/", "/lib/", "/lib32/"} {
			for _, lib := range loaded(folder) {
				files[lib] = lib
			}
		}
		return files
	}
	for _, lib := range loaded("/usr/" + triple + "/lib/") {
		files[folderOf(filepath.Base(lib))+filepath.Base(lib)] = lib
	}
	return files
}

// loaded are the files in a folder that programs load.
func loaded(folder string) (files []string) {
	wanted := []string{"ld-linux*.so.*", "ld64.so.*", "ld-*.so.*", "libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "libgcc_s.so.1", "libstdc++.so.6"}
	libraries, _ := filepath.Glob(folder + "*.so*")
	for _, lib := range libraries {
		if slices.ContainsFunc(wanted, func(pattern string) bool { ok, _ := filepath.Match(pattern, filepath.Base(lib)); return ok }) {
			files = append(files, lib)
		}
	}
	return files
}

// folderOf is where programs look for a library: for the loader, where its machine's ABI has it.
func folderOf(lib string) string {
	if lib == "ld64.so.2" { // ppc64le's
		return "/lib64/"
	}
	return "/lib/"
}

func thereOf(dir, name string, flags []string, ext string) string {
	key := fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q", name, flags)))[:24]
	return filepath.Join(dir, key, name+ext)
}

func readymade(t testing.TB, dir, name string, flags []string) string {
	t.Helper()
	for _, ext := range []string{"", ".so"} {
		if path := thereOf(dir, name, flags, ext); exists(path) {
			return path
		}
	}
	t.Fatalf("testprog: %s with %q was not built for this guest: it belongs in its list of recipes", name, flags)
	return ""
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
