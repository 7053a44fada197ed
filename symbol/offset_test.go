package symbol

import "testing"

func TestSplitOffset(t *testing.T) {
	for place, want := range map[string]struct {
		name   string
		offset uint64
	}{
		"malloc":                {"malloc", 0},
		"libc.so.6:malloc+0x1f": {"libc.so.6:malloc", 0x1f},
		"libstdc++.so.6:_Znwm":  {"libstdc++.so.6:_Znwm", 0},
		"libstdc++.so.6:f+16":   {"libstdc++.so.6:f", 16},
		"f+8":                   {"f", 8},
	} {
		if name, offset, err := SplitOffset(place); err != nil || name != want.name || offset != want.offset {
			t.Errorf("%s: %q, %d, %v", place, name, offset, err)
		}
	}
	if _, _, err := SplitOffset("f+x"); err == nil {
		t.Error("f+x: no error")
	}
}
