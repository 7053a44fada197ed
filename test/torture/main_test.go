// Package torture kills controllers and guardians, and lets every system call fail.
package torture

import (
	"testing"

	"kprobe/test/harness"
)

func TestMain(m *testing.M) {
	harness.Main(m, map[string]func(string) error{orderVariable: playTortured, serverVariable: serve, piecesVariable: playPieces})
}
