package conform

import (
	"testing"

	"kprobe/test/harness"
)

func TestAsAnOrdinaryUser(t *testing.T) {
	least, run := 45, "Test(HitsAreCounted|PostHandlerSeesTheEffect|ReturnProbe|StartedProgramWaits|Watch.*|Conform.*)"
	if testing.Short() { // what asks the kernel for something
		least, run = 17, "Test(ReturnProbe|StartedProgramWaits|Watch.*|Conform(LibraryComesAndGoes|Exec|Children|Threads|Signals))"
	}
	harness.AsAnOrdinaryUser(t, least, run, "TestConformReturnRefused") // plans only, and builds a Go program with an empty cache
}
