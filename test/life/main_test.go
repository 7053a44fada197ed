// Package life probes processes in all that processes do: fork, exec, end, trace each other, run out of stack and memory.
package life

import (
	"testing"

	"kprobe/test/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, map[string]func(string) error{crampedVariable: playCramped})
}
