package target

import (
	"reflect"
	"sync"
)

var occupied sync.Map

// Occupy takes a target for one session; false where another has it. A target that cannot be
// compared with others (a struct of a caller's around it) is not known again, and so is
// always to be had.
func Occupy(t Target) bool {
	if !reflect.ValueOf(t).Comparable() {
		return true
	}
	_, busy := occupied.LoadOrStore(t, true)
	return !busy
}

// Free undoes Occupy.
func Free(t Target) {
	if reflect.ValueOf(t).Comparable() {
		occupied.Delete(t)
	}
}
