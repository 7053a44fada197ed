package arch

import (
	"fmt"
	"testing"
)

// An address is a number for the verbs of numbers, and never the digits of its text in hexadecimal.
func TestAddrPrints(t *testing.T) {
	const a = Addr(0x7f10)
	for format, want := range map[string]string{
		"%v": "0x7f10", "%s": "0x7f10", "%8v": "  0x7f10", "%x": "7f10", "%#x": "0x7f10", "%08x": "00007f10", "%X": "7F10", "%d": "32528",
	} {
		if got := fmt.Sprintf(format, a); got != want {
			t.Errorf("%s is %q, want %q", format, got, want)
		}
	}
}
