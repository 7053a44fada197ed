package torture

import (
	"testing"

	"kprobe/test/harness"
)

func TestAsAnOrdinaryUser(t *testing.T) {
	harness.AsAnOrdinaryUser(t, 2, "Test(KilledControllerLeavesAHealthyTarget|NoTrapOutlivesItsController)", "")
}

func TestI386SignalsUnderJumps(t *testing.T) { harness.I386(t, 1, "TestSoakSignalsUnderJumps", "", "") }
