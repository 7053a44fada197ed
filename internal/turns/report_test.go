package turns

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"kprobe/internal/owner"
	"kprobe/target"
)

// The target may end, or execute another program, in the middle of anything: that is not told as an error. Why it
// has ended is, where that is known.
func TestReportOfWhatIsNone(t *testing.T) {
	var told []error
	u := &Turns{To: func(err error) { told = append(told, err) }}
	kept, why := errors.New("something"), fmt.Errorf("%w: the machine has ended", target.ErrGone)
	for _, err := range []error{nil, owner.ErrClosed, owner.ErrExecuted, fmt.Errorf("at a step: %w", target.ErrGone), kept} {
		u.Report(err)
	}
	u.ReportEnd(target.ErrGone)
	u.ReportEnd(why)
	u.Tell()
	if !slices.Equal(told, []error{kept, why}) {
		t.Errorf("told: %q", told)
	}
}
