package life

import (
	"testing"

	"kprobe/test/harness"
)

// What a program does with processes and signals, in i386 programs.
func TestI386Lives(t *testing.T) {
	run := "TestLifeFollow.*|TestLifeTracedChild|TestTrapHandlerSetWhileProbedMeetsTraps|TestTrapHandlerForOnce|TestTrapActionOfVforkChild"
	if !testing.Short() {
		run += "|TestTrapSignalIsThePrograms"
	}
	harness.I386(t, 8, run, "", "")
}
