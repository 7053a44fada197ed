package ptrace

import "strings"

// Check is one condition for probing a process.
type Check struct {
	Name string // the thing that was looked at
	OK   bool
	Says string // the finding; where it is an obstacle, the cure too
}

// Diagnosis tells whether this user can probe a process, and if not, why.
type Diagnosis []Check

// OK tells whether nothing stands in the way.
func (d Diagnosis) OK() bool {
	for _, c := range d {
		if !c.OK {
			return false
		}
	}
	return true
}

// Obstacle lists the obstacles, in one line; "" for none.
func (d Diagnosis) Obstacle() string {
	var bad []string
	for _, c := range d {
		if !c.OK {
			bad = append(bad, c.Says)
		}
	}
	return strings.Join(bad, "; ")
}
