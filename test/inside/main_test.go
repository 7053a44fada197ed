// Package inside probes with programs and by jumps: what runs in the target without a stop.
package inside

import (
	"testing"

	"kprobe/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }
