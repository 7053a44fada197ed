//go:build linux && (arm64 || ppc64le || s390x)

package tracee

// Lost is what a system call takes from a task beyond its general registers, by the kernel's conventions: nothing.
type Lost struct{}

// LostInCalls reads what a stopped task would lose.
func LostInCalls(int) (l Lost, err error) { return l, nil }

// PutBack gives it back.
func (Lost) PutBack(int) error { return nil }
