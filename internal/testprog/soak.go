package testprog

import (
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

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

// Rounds yields the numbers of a soak test's rounds: so many at least, and more for as long as it runs.
func Rounds(t testing.TB, usual time.Duration, least int) iter.Seq[int] {
	t.Helper()
	long := Soak(t, usual)
	return func(yield func(int) bool) {
		end := time.Now().Add(long)
		for round := 0; round < least || time.Now().Before(end); round++ {
			if !yield(round) {
				return
			}
		}
	}
}

// Seed is what a test's random numbers begin with: another one each time, and always the same in the gate, which must
// fail for a change that is wrong and for nothing else. KPROBE_SEED plays a failure again.
func Seed(t testing.TB) uint64 {
	t.Helper()
	const variable = "KPROBE_SEED"
	seed := uint64(1)
	if text := os.Getenv(variable); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
	} else if !Gate() {
		seed = rand.Uint64()
	}
	t.Logf("%s=%d", variable, seed)
	return seed
}

// Rand has random numbers by Seed.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
