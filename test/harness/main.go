// Package harness serves the suites of test/: sessions that are held to their promise, probes wherever they
// will go, programs of others to put them on, and controllers that are killed.
package harness

import (
	"fmt"
	"os"
	"testing"
)

// controllerVariable names the process that a test binary is to control, in place of testing.
const controllerVariable = "KPROBE_TEST_CONTROLLER"

// Main is a suite's TestMain. A test starts its own binary again for the controllers that it kills and the programs
// that it probes: roles has their mains, by the variable that holds their argument.
func Main(m *testing.M, roles map[string]func(string) error) {
	os.Setenv("DEBUGINFOD_URLS", "") // no test asks servers for debug data
	play := map[string]func(string) error{controllerVariable: playController}
	for variable, f := range roles {
		play[variable] = f
	}
	for variable, f := range play {
		if arg := os.Getenv(variable); arg != "" {
			if err := f(arg); err != nil {
				fmt.Println("failed:", err)
				os.Exit(1)
			}
			return
		}
	}
	os.Exit(m.Run())
}
