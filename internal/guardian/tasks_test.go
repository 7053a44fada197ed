//go:build linux

package guardian_test

import (
	"slices"
	"testing"

	"kprobe/internal/guardian"
	_ "kprobe/target/kernel"
	_ "kprobe/target/ptrace"
)

// This test's program has the packages that guardians need, and the test itself: all of them, and
// no more, are of our modules or of the standard library. A new module that a target imports has to
// be added to modules.
func TestModulesAreAllThatGuardiansNeed(t *testing.T) {
	all, err := guardian.Packages()
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range all {
		if !guardian.Needed(pkg) && pkg != "main" {
			t.Errorf("%s would not be initialised in a guardian", pkg)
		}
	}
	for _, pkg := range []string{"os", "syscall", "time", "golang.org/x/sys/unix", "kprobe/target/ptrace", "kprobe/target/kernel"} {
		if !slices.Contains(all, pkg) {
			t.Errorf("the initialisation of %s was not found among %d", pkg, len(all))
		}
	}
}

func TestNeeded(t *testing.T) {
	for pkg, want := range map[string]bool{
		"kprobe": true, "kprobe/target/ptrace": true, "golang.org/x/sys/unix": true, "os": true, "net/http": true, "vendor/golang.org/x/net/idna": true,
		"main": false, "command-line-arguments": false, "foo.org/kprobe": false, "github.com/spf13/cobra": false, "golang.org/x/system": false, "example.com/os": false,
	} {
		if guardian.Needed(pkg) != want {
			t.Errorf("needed(%q) is %v", pkg, !want)
		}
	}
}

// Only a function with the name of a package's initialisation is taken for one.
func TestInitName(t *testing.T) {
	for name, want := range map[string]string{
		"main.init": "main", "os.init.0": "os", "gopkg.in/yaml%2ev3.init.12": "gopkg.in/yaml%2ev3", "a/b.init": "a/b",
		"main.initialise": "", "main.main": "", "main.(*T).init": "", "main.init.func1": "", "main.init.0.func1": "",
	} {
		got := ""
		if m := guardian.InitName.FindStringSubmatch(name); m != nil {
			got = m[1]
		}
		if got != want {
			t.Errorf("%s initialises %q, want %q", name, got, want)
		}
	}
}
