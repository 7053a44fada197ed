package testprog

import (
	"os"
	"testing"
	"time"
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

// Soak is how long a soak test runs: usual, or what the environment's SOAK says
// ("make soak SOAK=2h").
func Soak(t testing.TB, usual time.Duration) time.Duration {
	t.Helper()
	v := os.Getenv("SOAK")
	if v == "" {
		return usual
	}
	d, err := time.ParseDuration(v)
	if err != nil {
		t.Fatalf("SOAK: %v", err)
	}
	return d
}
