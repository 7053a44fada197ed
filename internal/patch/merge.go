package patch

import (
	"cmp"
	"slices"

	"kprobe/arch"
)

// Merge joins two ordered lists.
func Merge[T any](a, b []T, order func(a, b T) int) []T {
	all := make([]T, 0, len(a)+len(b))
	for len(a) > 0 && len(b) > 0 {
		if order(a[0], b[0]) < 0 {
			all, a = append(all, a[0]), a[1:]
		} else {
			all, b = append(all, b[0]), b[1:]
		}
	}
	return append(append(all, a...), b...)
}

// Overlay copies the bytes b at an address into p, which lies at base, where they meet.
func Overlay(p []byte, base, at arch.Addr, b []byte) {
	for i, c := range b {
		if a := at + arch.Addr(i); a >= base && a-base < arch.Addr(len(p)) {
			p[a-base] = c
		}
	}
}

// Join makes one write of those that follow one another at a distance, in order of address. The
// bytes between them are filled with a pattern.
func Join(ws []Write, distance int, fill []byte) (joined []Write) {
	slices.SortFunc(ws, func(a, b Write) int { return cmp.Compare(a.Addr, b.Addr) })
	for i, w := range ws {
		if i == 0 || w.Addr != ws[i-1].Addr+arch.Addr(distance) {
			joined = append(joined, Write{Addr: w.Addr, New: slices.Clone(w.New)})
			continue
		}
		last := &joined[len(joined)-1]
		for last.Addr+arch.Addr(len(last.New)) < w.Addr {
			last.New = append(last.New, fill...)
		}
		last.New = append(last.New, w.New...)
	}
	return joined
}
