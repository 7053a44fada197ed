package patch

import (
	"cmp"
	"slices"
	"testing"

	"kprobe/arch"
)

func TestMerge(t *testing.T) {
	for _, c := range []struct{ a, b []int }{
		{nil, nil}, {nil, []int{1}}, {[]int{1}, nil}, {[]int{1, 5, 9}, []int{2, 3, 10}}, {[]int{7, 8}, []int{1, 2}},
	} {
		want := slices.Sorted(slices.Values(slices.Concat(c.a, c.b)))
		if got := Merge(c.a, c.b, cmp.Compare[int]); !slices.Equal(got, want) {
			t.Errorf("%v and %v: %v", c.a, c.b, got)
		}
	}
}

// Every way in which a breakpoint's bytes and a read can meet.
func TestOverlay(t *testing.T) {
	const base, size = 100, 4
	for n := 1; n <= 6; n++ {
		for at := base - 8; at < base+size+3; at++ {
			got, b := make([]byte, size), make([]byte, n)
			for i := range b {
				b[i] = byte(i + 1)
			}
			Overlay(got, base, arch.Addr(at), b)
			for i, c := range got {
				want := byte(0)
				if d := base + i - at; d >= 0 && d < n {
					want = b[d]
				}
				if c != want {
					t.Fatalf("%d bytes at %d: %v", n, at, got)
				}
			}
		}
	}
}
