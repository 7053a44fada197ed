package syntax

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// scales are what suffixes of numbers stand for: durations are nanoseconds, and C's sizes change nothing.
var scales = map[string]uint64{
	"": 1, "u": 1, "ul": 1, "ull": 1, "l": 1, "ll": 1,
	"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9, "d": 86400e9,
}

// Number reads a number as a script has it: 10, 0x1f, 017, 1e6, 1_000, 5ms, 3ULL.
func Number(text string) (uint64, error) {
	if text == "" || !digit(text[0]) {
		return 0, fmt.Errorf("invalid integer: %s", text)
	}
	base, from, of := 10, 0, digit
	switch {
	case len(text) > 1 && text[1]|0x20 == 'x' && text[0] == '0':
		base, from, of = 16, 2, func(c byte) bool { return digit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }
	case text[0] == '0':
		base = 8
	}
	digits, rest, err := leading(text, from, of)
	if err != nil {
		return 0, err
	}
	power := ""
	if base != 16 && rest != "" && rest[0]|0x20 == 'e' {
		if power, rest, err = leading(text, len(text)-len(rest)+1, digit); err != nil {
			return 0, err
		}
		if len(digits) != 1 || digits == "0" {
			return 0, fmt.Errorf("the coefficient of a scientific literal must be 1-9: %s", text)
		}
	}
	if strings.Trim(rest, "uUlL") == "" {
		rest = strings.ToLower(rest)
	}
	scale, known := scales[rest]
	if !known {
		return 0, fmt.Errorf("invalid trailing bytes: %s", text)
	}
	over := fmt.Errorf("overflow: the maximum value is %d: %s", uint64(math.MaxUint64), text)
	n, err := strconv.ParseUint(digits, base, 64)
	if err != nil {
		if err.(*strconv.NumError).Err == strconv.ErrRange {
			return 0, over
		}
		return 0, fmt.Errorf("invalid integer: %s", text)
	}
	if power != "" {
		e, err := strconv.ParseUint(power, 10, 8)
		if err != nil {
			return 0, over
		}
		for range e {
			if n > math.MaxUint64/10 {
				return 0, over
			}
			n *= 10
		}
	}
	if n > math.MaxUint64/scale {
		return 0, over
	}
	return n * scale, nil
}

// leading takes digits off, and what stands between them: the last must be one.
func leading(text string, from int, of func(byte) bool) (digits, rest string, err error) {
	to := from
	for to < len(text) && (of(text[to]) || text[to] == '_' && to > from) {
		to++
	}
	switch {
	case to == from:
		err = fmt.Errorf("invalid integer: %s", text)
	case text[to-1] == '_':
		err = fmt.Errorf("trailing underscore in the number %s", text)
	}
	return strings.ReplaceAll(text[from:to], "_", ""), text[to:], err
}
