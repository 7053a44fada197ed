package planned

import (
	"testing"

	"kprobe/arch"
)

// An entry says what is known, and nothing of the rest.
func TestEntry(t *testing.T) {
	for _, tt := range []struct {
		entry Entry
		want  string
	}{
		{Entry{Place: "f", Verdict: Pending, Reason: "its file is not mapped yet"}, "f  pending  (its file is not mapped yet)"},
		{Entry{Place: "f", Verdict: Refuse}, "f  refuse"},
		{
			Entry{Place: "m:f+4", Addr: arch.Addr(0x1004), Bytes: []byte{0x55, 0x90}, Verdict: Copy, Engine: "trap", Jump: Means{How: "whole"}},
			"m:f+4  0x1004  55 90  copy  trap  jump whole",
		},
		{
			Entry{Place: "vfs_read", Verdict: Step, Engine: "stop", Jump: None("no room"), Trap: Means{How: "inside"}},
			"vfs_read  step  stop  jump none: no room  trap inside",
		},
	} {
		if got := tt.entry.String(); got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
	}
}

func TestMeans(t *testing.T) {
	for _, tt := range []struct {
		m          Means
		can, known bool
	}{
		{Means{}, false, false},
		{None("no room"), false, true},
		{Means{How: "pun"}, true, true},
	} {
		if tt.m.Can() != tt.can || tt.m.Known() != tt.known {
			t.Errorf("%q: can %v, known %v", tt.m, tt.m.Can(), tt.m.Known())
		}
	}
}

// Each verdict has a word of its own.
func TestVerdict(t *testing.T) {
	seen := map[string]Verdict{}
	for v := Unknown; v <= Refuse; v++ {
		if other, ok := seen[v.String()]; ok {
			t.Errorf("%d and %d are both %q", v, other, v)
		}
		seen[v.String()] = v
	}
}
