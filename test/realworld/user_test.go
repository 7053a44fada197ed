package realworld

import (
	"testing"

	"kprobe/test/harness"
)

func TestAsAnOrdinaryUser(t *testing.T) {
	harness.AsAnOrdinaryUser(t, 1, "TestEveryInstructionOfEveryClass", "")
}
