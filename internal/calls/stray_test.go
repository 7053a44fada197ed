package calls

import (
	"testing"

	"kprobe/arch"
)

// A trampoline that knows no call may be come to at each call of a busy function: that is told a few times, and counted.
func TestStraysAreToldSeldom(t *testing.T) {
	u := New[int](nil, arch.AMD64)
	told := 0
	var last error
	for range 150_000 {
		if err := u.Stray(7, 0x1000); err != nil {
			told, last = told+1, err
		}
	}
	const want = "thread 7 returned to the trampoline with no call known at 0x1000 (100000 times by now)"
	if told != 6 || last.Error() != want {
		t.Errorf("told %d times, at last %v", told, last)
	}
}
