// Package memcg tells how much memory a process may have yet before the kernel ends it for want of some: the limits of its control
// groups (cgroups(7)), its own and those above, in either version.
//
//	memcg.go   whether some memory can be had, and what is left for others
//	groups.go  the groups, and their files
package memcg

import (
	"fmt"
	"syscall"

	"kprobe/internal/proc"
)

// Left is what the tightest of a process's groups has yet.
type Left struct {
	Bytes uint64 // what it may have more, once the kernel has taken back what it can at once
	Limit uint64 // of how many
	Group string // its path
}

// Of looks at the groups of a process. It answers false where no limit is known: there is none, or this process cannot see it.
func Of(pid int) (Left, bool) {
	groups, err := proc.Process(pid).Read("cgroup")
	if err != nil {
		return Left{}, false
	}
	return of(string(groups), mounts(), kept.read)
}

// least is what is left to the process at any rate. What is asked for is an estimate: the kernel charges a group in lots of 64 pages a CPU,
// and page tables come on top, as does what threads need that are yet to begin.
const least = 1 << 20

// Reserve is what is not ours to take: what the program itself will want in the next moment. That grows with the program, so a sixteenth of
// what it may have is kept.
func (l Left) Reserve() uint64 { return max(least, l.Limit/16) }

// Afford tells whether so many bytes can be had, and the reserve be left. Errors: ENOMEM, with the numbers.
func (l Left) Afford(bytes uint64) error {
	if bytes == 0 || bytes <= l.Bytes && l.Bytes-bytes >= l.Reserve() {
		return nil
	}
	return &tight{l, bytes}
}

// tight is an ENOMEM that says why.
type tight struct {
	left  Left
	bytes uint64
}

func (t *tight) Error() string {
	return fmt.Sprintf("probes need some %d KiB of memory in the process: its control group %s has %d KiB left of %d KiB, and %d KiB are kept for the program itself",
		t.bytes>>10, t.left.Group, t.left.Bytes>>10, t.left.Limit>>10, t.left.Reserve()>>10)
}

func (*tight) Unwrap() error { return syscall.ENOMEM }
