package event

import (
	"strconv"
	"time"
)

// Took is a duration for people, in three digits, as all commands and pictures write it: "512 ns", "1.5 us", "24 ms".
func Took(d time.Duration) string {
	n, unit := float64(d), "ns"
	for _, next := range []string{"us", "ms", "s"} {
		if n < 999.5 {
			break
		}
		n, unit = n/1000, next
	}
	digits := 0
	if n < 99.95 && unit != "ns" {
		digits = 1
	}
	if n < 9.995 && unit != "ns" {
		digits = 2
	}
	text := strconv.FormatFloat(n, 'f', digits, 64)
	if digits > 0 { // 1.50 is 1.5, and 2.00 is 2
		for text[len(text)-1] == '0' {
			text = text[:len(text)-1]
		}
		if text[len(text)-1] == '.' {
			text = text[:len(text)-1]
		}
	}
	return text + " " + unit
}
