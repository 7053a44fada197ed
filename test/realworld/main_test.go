// Package realworld probes programs that were not written for it, wherever probes will go.
package realworld

import (
	"testing"

	"kprobe/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, nil) }
