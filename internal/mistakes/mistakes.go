// Package mistakes says which trap a handler's panic would have been, had it run in the kernel.
package mistakes

import (
	"runtime"
	"strings"
)

// Trap is the number of the trap (x86's) that the same mistake has in a kernel's handler;
// 3 for a panic of the handler's own.
func Trap(cause any) int {
	if e, ok := cause.(runtime.Error); ok {
		switch {
		case strings.Contains(e.Error(), "divide"):
			return 0
		case strings.Contains(e.Error(), "nil pointer"), strings.Contains(e.Error(), "invalid memory address"):
			return 14
		case strings.Contains(e.Error(), "out of range"):
			return 5
		}
	}
	return 3
}
