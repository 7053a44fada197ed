// Package conform holds the engine to kprobes.txt, and to its own documentation.
package conform

import (
	"testing"

	"kprobe/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }
