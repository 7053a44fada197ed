package ptrace

import "strings"

// Check is one condition for probing a process.
type Check struct {
	Name string // what was looked at
	OK   bool
	Says string // what was found; where it is an obstacle, the cure too
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

// Obstacle is what stands in the way, in one line; "" for nothing.
func (d Diagnosis) Obstacle() string {
	var bad []string
	for _, c := range d {
		if !c.OK {
			bad = append(bad, c.Says)
		}
	}
	return strings.Join(bad, "; ")
}
