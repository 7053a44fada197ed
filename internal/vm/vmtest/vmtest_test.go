package vmtest

import (
	"errors"
	"os"
	"testing"
	"time"
)

// A guest that has missed a deadline obeys nothing more: the next test has another one.
func TestSharedIsBootedAnew(t *testing.T) {
	deaf := Shared(t, "amd64")
	if _, err := deaf.RunFor("sleep 1000", time.Millisecond, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	v := Shared(t, "amd64")
	if out, err := v.Run("echo here"); err != nil || out != "here\n" {
		t.Errorf("%q, %v", out, err)
	}
}
