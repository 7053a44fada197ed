package spec

import (
	"strings"
	"testing"
)

// Beginners write a place alone: the error shows a definition of it.
func TestPlaceAlone(t *testing.T) {
	for _, line := range []string{"app:add", "python3:main x", "redis-server:call"} {
		_, err := Parse(line, Process)
		if err == nil || !strings.Contains(err.Error(), "'p "+line+"'") {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, line := range []string{"x f", "-x", "r0 a:b"} {
		if _, err := Parse(line, Process); err == nil || strings.Contains(err.Error(), "begins with") {
			t.Errorf("%q: %v", line, err)
		}
	}
}
