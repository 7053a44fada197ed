//go:build !linux

package host

import "errors"

// Executes is not possible on this system.
func Executes(files []string, seen func(pid int)) (end func(), err error) {
	return nil, errors.ErrUnsupported
}
