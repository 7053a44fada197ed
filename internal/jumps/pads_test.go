package jumps_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"kprobe/arch"
	"kprobe/internal/isa/arm64"
	"kprobe/internal/jumps"
	"kprobe/internal/patch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
)

// Where a file is marked to be guarded, an entry's landing pad stays, and the jump is behind it;
// where it is not, the pad means nothing, and a jump may stand there.
func TestLandingPads(t *testing.T) {
	gcc, err := exec.LookPath("aarch64-linux-gnu-gcc")
	testprog.Need(t, "a compiler for arm64", err == nil)
	dir := t.TempDir()
	source := filepath.Join(dir, "pads.c")
	// A leaf begins with bti c, what calls others with paciasp.
	text := "long other(long); long leaf(long a) { return a * 3; } long caller(long a) { return other(a) + 1; }"
	if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		flags  []string
		behind bool
	}{
		"no pads":        {nil, false},
		"pads, marked":   {[]string{"-mbranch-protection=standard", "-Wl,-z,force-bti"}, true},
		"pads, unmarked": {[]string{"-mbranch-protection=standard"}, false},
	} {
		out := filepath.Join(dir, "pads.so")
		args := append([]string{"-O2", "-shared", "-fPIC", "-nostdlib", "-o", out, source}, c.flags...)
		if name == "pads, unmarked" { // as when one object among many has no mark
			plain := filepath.Join(dir, "plain.c")
			if err := os.WriteFile(plain, []byte("int plain;"), 0o600); err != nil {
				t.Fatal(err)
			}
			object := filepath.Join(dir, "plain.o")
			if msg, err := exec.Command(gcc, "-c", "-mbranch-protection=none", "-o", object, plain).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, msg)
			}
			args = append(args, object)
		}
		if msg, err := exec.Command(gcc, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, msg)
		}
		r, err := os.Open(out)
		if err != nil {
			t.Fatal(err)
		}
		f, err := symbol.Open(r, nil)
		if err != nil {
			t.Fatal(err)
		}
		code, err := jumps.Open(arm64.ISA, f)
		if err != nil {
			t.Fatal(err)
		}
		code = code.At(0x7fff_0000_0000)
		for _, fn := range f.Funcs() {
			if fn.Name != "leaf" && fn.Name != "caller" {
				continue
			}
			j := code.Body(fn).PlanJump(arch.Addr(fn.Addr) + code.Bias)
			if len(j.Ways) == 0 || (j.Ways[0].Tactic == patch.Behind) != c.behind {
				t.Errorf("%s: %s: %v, want a jump, behind a pad: %v", name, fn.Name, j, c.behind)
			}
		}
		if f.MayBeGuarded() != c.behind {
			t.Errorf("%s: guarded: %v", name, f.MayBeGuarded())
		}
		r.Close()
	}
}
