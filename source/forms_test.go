package source

import "testing"

// The first text of .debug_str is one like all others.
func TestFirstText(t *testing.T) {
	f := &File{sec: sections{str: []byte("first\x00second\x00"), little: true}}
	for offset, want := range map[byte]string{0: "first", 6: "second"} {
		c := f.cursor([]byte{offset, 0, 0, 0}, 0)
		if got := f.name(c.text(f, &unit{}, formStrp)); got != want {
			t.Errorf("at %d: %q, not %q", offset, got, want)
		}
	}
	if got := f.name(0); got != "" {
		t.Errorf("nowhere: %q", got)
	}
}
