package settings

import (
	"strconv"
	"strings"
)

// What options of a script, --name=value, say.

// Truth is what a flag's value says.
func Truth(value string) (on, ok bool) {
	switch strings.ToLower(value) {
	case "", "true", "1":
		return true, true
	case "false", "0":
		return false, true
	}
	return false, false
}

// Number is the value of an option that is a number; true and false are 1 and 0.
func Number(value string) (uint64, bool) {
	if n, err := strconv.ParseInt(value, 0, 64); err == nil {
		return uint64(n), true
	}
	if n, err := strconv.ParseUint(value, 0, 64); err == nil || value == "" {
		return n, err == nil
	}
	on, ok := Truth(value)
	if on {
		return 1, ok
	}
	return 0, ok
}
