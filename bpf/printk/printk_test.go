package printk_test

import (
	"strings"
	"testing"

	"kprobe/bpf/printk"
)

func TestString(t *testing.T) {
	for _, tt := range []struct {
		format string
		args   []uint64
		want   string
	}{
		{"nothing", []uint64{1}, "nothing"},
		{"%d %u %x", []uint64{1<<32 - 1, 1<<32 - 1, 255}, "-1 4294967295 ff"},
		{"%lld|%5d|%-4x|", []uint64{1<<64 - 1, 7, 10}, "-1|    7|a   |"},
		{"%p %s %c", []uint64{16, 32, 'x'}, "0x10 0x20 x"}, // the text was not asked for
		{"%d %pks %-6s|%s", []uint64{1, 2, 3}, "1 one two   |%s"},
		{"%5.2s|%pus|%px", []uint64{1, 2, 3}, "   on|two|0x3"},
		{"%d%% of %d", []uint64{5, 6}, "5% of 6"},
		{"%d %d %d %d", []uint64{1, 2, 3}, "1 2 3 %d"},
		{"cut %l", []uint64{1}, "cut %l"},
		{"cut %", []uint64{1}, "cut %"},
	} {
		p := printk.Line{Format: tt.format, Args: tt.args}
		if strings.Contains(tt.want, "on") {
			p.Texts = []string{"one", "two"}
		}
		if got := p.String(); got != tt.want {
			t.Errorf("%q of %v: %q, want %q", tt.format, tt.args, got, tt.want)
		}
	}
}
