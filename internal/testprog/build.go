// Package testprog is the ground the tests stand on: it builds the small
// programs of testdata/ (with any flags, cached), runs them and anything else
// as a target (Start), and says afterwards whether the target's text is as its
// file has it (TextDiff).
//
// It imports nothing of the project, so that every package's tests may use it.
package testprog

import (
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// The sources travel inside the test binary: it finds them whatever its working
// directory and however it was built.
//
//go:embed testdata/*.c testdata/*.h testdata/*.S testdata/*.cc testdata/*.go
var sources embed.FS

// setting is a flag that is meant for the build's environment.
var setting = regexp.MustCompile(`^[A-Z][A-Z0-9_]*=`)

// Build builds testdata/NAME, from all its sources (NAME.c, NAME.cc or NAME.go,
// with NAME.S and NAME_*.S), and returns the path of the program. The flags are the
// compiler's ("-O2", "-static", "-m32"; for Go, go build's), and NAME=VALUE
// settings: CC=musl-gcc picks the compiler, GOARCH=arm64 goes to go build.
//
// What was built once from the same sources by the same compiler with the same
// flags is there for all packages and runs; see cacheDir. The file may be read and run by
// every user, so that an unprivileged one can be its target's owner.
func Build(t testing.TB, name string, flags ...string) string {
	t.Helper()
	files := sourcesOf(name)
	if len(files) == 0 {
		t.Fatalf("testprog: no testdata/%s.*", name)
	}
	compiler := compilerOf(files)
	if compiler != "go" {
		flags = append(slices.Clone(flags), MachineFlags()...)
	}
	if dir := os.Getenv(programsEnv); dir != "" {
		return readymade(t, dir, name, flags)
	}
	var env, args []string
	for _, f := range flags {
		switch {
		case strings.HasPrefix(f, "CC="):
			compiler = strings.TrimPrefix(f, "CC=")
		case setting.MatchString(f):
			env = append(env, f)
		default:
			args = append(args, f)
		}
	}
	version, err := versionOf(compiler)
	Need(t, fmt.Sprintf("compiler %s: %v", compiler, err), err == nil)

	headers, _ := fs.Glob(sources, "testdata/*.h")
	key := sha256.New()
	fmt.Fprintf(key, "%q %q %q %q", compiler, version, flags, name)
	for _, f := range append(headers, files...) {
		b, err := sources.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(key, "%q %q", f, b)
	}
	// The program keeps its name: it is what /proc, maps and probe definitions show.
	dir := filepath.Join(cacheDir(t), fmt.Sprintf("%x", key.Sum(nil)[:12]))
	out := filepath.Join(dir, name)
	if slices.Contains(args, "-shared") {
		out += ".so"
	}
	if inUse(dir, filepath.Base(out)) {
		return out
	}

	work := tempDir(t)
	defer os.RemoveAll(work)
	for _, f := range append(headers, files...) {
		b, _ := sources.ReadFile(f)
		if err := os.WriteFile(filepath.Join(work, path.Base(f)), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// Sources are named relative to the build's folder and the folder is
	// mapped to its final place, so that line tables point to files that stay.
	var cmd *exec.Cmd
	built := filepath.Base(out)
	if compiler == "go" {
		cmd = exec.Command("go", append([]string{"build", "-o", built}, args...)...)
		env = append([]string{"GOFLAGS=", "GO111MODULE=off", "CGO_ENABLED=0"}, env...)
	} else {
		line := []string{"-g", "-pthread", "-ffile-prefix-map=" + work + "=" + dir, "-o", built}
		cmd = exec.Command(compiler, line...)
		cmd.Args = append(cmd.Args, ILP32Headers(compiler, args)...)
	}
	for _, f := range files {
		cmd.Args = append(cmd.Args, path.Base(f))
	}
	if compiler != "go" { // libraries come after what asks for them
		cmd.Args = append(cmd.Args, args...)
	}
	cmd.Dir = work
	cmd.Env = append(os.Environ(), env...)
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("testprog: %s: %v\n%s", cmd, err, msg)
	}
	publish(t, work, dir)
	return out
}

// MachineFlags are flags for all programs in C of this test run, from the
// environment: with KPROBE_TEST_CFLAGS=-m32 tests run on 32-bit programs.
func MachineFlags() []string { return strings.Fields(os.Getenv("KPROBE_TEST_CFLAGS")) }

// Command builds a main package of the module the test is in, by its import
// path ("kprobe/cmd/kprobe"), and returns the program's path. It is linked once for
// the same packages and is there for all tests, as Build's programs are; every user may run it.
func Command(t testing.TB, pkg string) string {
	t.Helper()
	commands.Lock()
	defer commands.Unlock()
	if out, ok := commands.built[pkg]; ok {
		return out
	}
	tool := func(args ...string) []byte {
		cmd := exec.Command("go", args...)
		var failed strings.Builder
		cmd.Stderr = &failed
		printed, err := cmd.Output()
		if err != nil {
			t.Fatalf("testprog: %s: %v\n%s", cmd, err, failed.String())
		}
		return printed
	}
	name := path.Base(pkg)
	compiled := tool("list", "-export", "-deps", "-f", "{{.BuildID}}", pkg)
	dir := filepath.Join(cacheDir(t), fmt.Sprintf("%x", sha256.Sum256(compiled))[:24])
	if !inUse(dir, name) {
		work := tempDir(t)
		defer os.RemoveAll(work)
		// Without debug information: no test reads it. Nor with the version, which the packages do not have.
		tool("build", "-ldflags=-w", "-buildvcs=false", "-o", filepath.Join(work, name), pkg)
		publish(t, work, dir)
	}
	commands.built[pkg] = filepath.Join(dir, name)
	return commands.built[pkg]
}

var commands = struct {
	sync.Mutex
	built map[string]string
}{built: map[string]string{}}

// sourcesOf lists the sources of a program, the one that says its language first.
func sourcesOf(name string) []string {
	var files []string
	for _, pattern := range []string{".c", ".cc", ".go", ".S", "_*.S"} {
		found, _ := fs.Glob(sources, "testdata/"+name+pattern)
		files = append(files, found...)
	}
	return files
}

func compilerOf(files []string) string {
	switch path.Ext(files[0]) {
	case ".cc":
		return "g++"
	case ".go":
		return "go"
	}
	return "gcc"
}

// versionOf tells compilers apart: a new one must not be served the old one's programs.
func versionOf(compiler string) (string, error) {
	versions.Lock()
	defer versions.Unlock()
	if v, ok := versions.of[compiler]; ok {
		return v, nil
	}
	arg := "--version"
	if compiler == "go" {
		arg = "version"
	}
	out, err := exec.Command(compiler, arg).Output()
	if err != nil {
		return "", err
	}
	versions.of[compiler] = string(out)
	return string(out), nil
}

var versions = struct {
	sync.Mutex
	of map[string]string
}{of: map[string]string{}}

// ILP32Headers finds the kernel's headers for -m32. The package that puts them
// in the compiler's own path cannot be installed beside cross compilers.
func ILP32Headers(compiler string, args []string) []string {
	if !slices.Contains(args, "-m32") {
		return nil
	}
	triple, err := exec.Command(compiler, "-print-multiarch").Output()
	if err != nil || len(strings.TrimSpace(string(triple))) == 0 {
		return nil
	}
	return []string{"-idirafter", "/usr/include/" + strings.TrimSpace(string(triple))}
}

// inUse tells whether a folder of the cache has a file, and has prune know that it was asked for.
func inUse(dir, file string) bool {
	if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
		return false
	}
	now := time.Now()
	os.Chtimes(dir, now, now)
	return true
}

// keep is how long a program that nobody asks for stays cached.
const keep = 48 * time.Hour

var cache struct {
	sync.Once
	dir string
	err error
}

// cacheDir is one folder per user in the system's folder for temporary files,
// because home folders are closed to the unprivileged user that some tests need.
// Others can read it, only we can write it.
func cacheDir(t testing.TB) string {
	t.Helper()
	cache.Do(func() {
		cache.dir = filepath.Join(os.TempDir(), fmt.Sprintf("kprobe-testprog-%d", os.Getuid()))
		if cache.err = os.Mkdir(cache.dir, 0o755); errors.Is(cache.err, fs.ErrExist) {
			cache.err = nil
		}
		if cache.err != nil {
			return
		}
		// Anybody may make a folder of this name; only ours is run from.
		info, err := os.Lstat(cache.dir)
		if err != nil {
			cache.err = err
			return
		}
		if st := info.Sys().(*syscall.Stat_t); !info.IsDir() || int(st.Uid) != os.Getuid() || info.Mode().Perm()&0o022 != 0 {
			cache.err = fmt.Errorf("%s is not ours alone to write", cache.dir)
			return
		}
		prune(cache.dir)
	})
	if cache.err != nil {
		t.Fatalf("testprog: cache: %v", cache.err)
	}
	return cache.dir
}

// prune drops what was not used for a while: compilers and sources change, and
// nothing else would ever empty the cache.
func prune(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > keep {
			os.RemoveAll(filepath.Join(dir, e.Name()))
		}
	}
}

// tempDir is where a build happens: beside the cache's entries, so that
// publishing is one rename.
func tempDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp(cacheDir(t), "build-")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// publish gives a finished build its place. Test binaries build the same program
// at the same time; the first one wins, and the others' is the same.
func publish(t testing.TB, work, dir string) {
	t.Helper()
	if err := os.Chmod(work, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(work, dir); err != nil {
		if _, there := os.Stat(dir); there != nil {
			t.Fatal(err)
		}
	}
}
