package event

import (
	"testing"
	"time"
)

func TestTook(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 ns", 7: "7 ns", 999: "999 ns", 1000: "1 us", 1024: "1.02 us", 1500: "1.5 us", 20480: "20.5 us", 99_960: "100 us", 999_400: "999 us",
		999_500: "1 ms", 2_097_152: "2.1 ms", time.Second: "1 s", 61 * time.Second: "61 s", time.Hour: "3600 s",
	} {
		if got := Took(d); got != want {
			t.Errorf("%d: %q, want %q", d, got, want)
		}
	}
}
