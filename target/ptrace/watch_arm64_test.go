//go:build linux && arm64

package ptrace

import (
	"testing"

	"kprobe/target"
)

// A watchpoint that would be counted wrong is not offered: sessions answer ENOTSUP to watchpoints
// then.
func TestNotAWatcher(t *testing.T) {
	if _, ok := any((*Process)(nil)).(target.Watcher); ok {
		t.Error("processes of arm64 can be watched, which nothing does right yet")
	}
}
