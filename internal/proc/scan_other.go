//go:build !linux

package proc

import (
	"errors"
	"os"
)

func scan(*os.File, uint64, uint64, bool, func(from, to uint64) error) error {
	return errors.ErrUnsupported
}
