//go:build !linux

package rights

import "errors"

// Given is for Linux.
func Given() bool { return false }

// Look is for Linux.
func Look(string) (*File, error) { return nil, errors.ErrUnsupported }

// LookAs is for Linux.
func LookAs(int, string) (*File, error) { return nil, errors.ErrUnsupported }
