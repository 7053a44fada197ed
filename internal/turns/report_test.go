package turns

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"kprobe/internal/owner"
	"kprobe/target"
)

// The target may end, or execute another program, in the middle of anything: that is not told as an error.
func TestReportOfWhatIsNone(t *testing.T) {
	var told []error
	u := &Turns{To: func(err error) { told = append(told, err) }}
	kept := errors.New("something")
	for _, err := range []error{nil, owner.ErrClosed, owner.ErrExecuted, fmt.Errorf("at a step: %w", target.ErrGone), kept} {
		u.Report(err)
	}
	u.Tell()
	if !slices.Equal(told, []error{kept}) {
		t.Errorf("told: %q", told)
	}
}
