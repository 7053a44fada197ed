package testprog

import (
	"os"
	"testing"
)

// Need is the one way to skip a test: it says what the test cannot do without.
// A developer's machine may lack it; where CI is set, scripts/setup.sh has run,
// nothing may be lacking, and the same is a failure.
func Need(t testing.TB, reason string, cond bool) {
	t.Helper()
	if cond {
		return
	}
	if os.Getenv("CI") != "" {
		t.Fatalf("needs %s", reason)
	}
	t.Skipf("needs %s", reason)
}

// LeftToAll begins what a test of the long run says where the gate runs.
const LeftToAll = "left to make test-all: "

// Long is how a test, or a case of one, tells that it is of the long run: "make test" ends it, "make test-all",
// and whoever runs it by hand, does not. docs/TESTING.md has the same reason in its table.
func Long(t testing.TB, why string) {
	t.Helper()
	if Gate() {
		t.Skip(LeftToAll + why)
	}
}

// Gate tells whether "make test" runs, and not somebody's test by hand.
func Gate() bool { return os.Getenv("KPROBE_GATE") != "" }

// NeedBrowser ends a test that looks at a page where there is no browser to look with. It is too large for the set-up
// to install: so the machine does not have it, even where CI is set.
func NeedBrowser(t testing.TB, found bool) {
	t.Helper()
	if !found {
		t.Skip(NotHere + "a Chromium, to look at pages with")
	}
}
