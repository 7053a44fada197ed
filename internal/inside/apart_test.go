package inside

import (
	"testing"

	"kprobe/arch"
)

// TestApart holds that a segment and two maps of as many threads as there may be end below the place where the lowest
// libraries lie: the system begins with them up to 1 TiB below the end of a process's addresses.
func TestApart(t *testing.T) {
	const held = 2*(8<<20)*(16<<10) + 16<<30 // bytes: states of 8 MiB, rings of 4 MiB and as much again
	for range 1000 {
		if end := Apart(arch.AMD64) + held; end > arch.AMD64.UserEnd-1<<40 {
			t.Fatalf("it ends at %v", end)
		}
	}
}
