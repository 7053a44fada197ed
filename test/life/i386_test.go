package life

import (
	"testing"

	"kprobe/test/harness"
)

// What a program does with processes and signals, in i386 programs.
func TestI386Lives(t *testing.T) {
	harness.I386(t, 5, "TestLifeFollow.*|TestLifeTracedChild|TestTrapSignalIsThePrograms", "", "")
}
