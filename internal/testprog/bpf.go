package testprog

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// multiarch names the folder of the machine's own headers: <asm/...> is not in clang's search path for bpf.
var multiarch = sync.OnceValues(exec.Command("gcc", "-print-multiarch").Output)

// CompileBPF has clang compile a source of BPF programs, and answers the object. Its text may include what comes
// with the compiler, with libbpf and with the kernel's headers. What the same flags have made of the same text
// is taken from the cache.
func CompileBPF(t testing.TB, source string, flags ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(source)
	if err != nil {
		t.Fatal(err)
	}
	name, err := multiarch()
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "object")
	cc := []string{"clang", "-target", "bpf", "-D__TARGET_ARCH_x86", "-O2", "-g", "-c", "-I/usr/include/" + strings.TrimSpace(string(name))}
	CompileText(t, out, slices.Concat(cc, flags), filepath.Base(source), string(text))
	object, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return object
}
