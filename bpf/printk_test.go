package bpf_test

import (
	"testing"

	"kprobe/bpf"
)

func TestPrintkString(t *testing.T) {
	for _, tt := range []struct {
		format string
		args   [3]uint64
		want   string
	}{
		{"no values", [3]uint64{1}, "no values"},
		{"%d %u %x", [3]uint64{1<<32 - 1, 1<<32 - 1, 255}, "-1 4294967295 ff"},
		{"%lld|%5d|%-4x|", [3]uint64{1<<64 - 1, 7, 10}, "-1|    7|a   |"},
		{"%p %s %c", [3]uint64{16, 32, 'x'}, "0x10 0x20 x"},
		{"%d%% of %d", [3]uint64{5, 6}, "5% of 6"},
		{"%d %d %d %d", [3]uint64{1, 2, 3}, "1 2 3 %d"},
		{"cut %l", [3]uint64{1}, "cut %l"},
		{"cut %", [3]uint64{1}, "cut %"},
	} {
		if got := (bpf.Printk{Format: tt.format, Args: tt.args}).String(); got != tt.want {
			t.Errorf("%q of %v: %q, want %q", tt.format, tt.args, got, tt.want)
		}
	}
}
