package spec

import (
	"strings"
	"testing"
)

// A place alone is what beginners write: the error says what a definition of it is.
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
