//go:build !linux

package testprog

import (
	"errors"
	"testing"
)

func holdsPrograms(testing.TB) error {
	return errors.New("only Linux asks before a program is executed")
}

func dispatchesSyscalls(testing.TB) error {
	return errors.New("only Linux hands system calls back")
}

func makesMemoryGroups(testing.TB) error { return errors.New("only Linux has them") }
func makesFreezers(testing.TB) error     { return errors.New("only Linux has them") }
