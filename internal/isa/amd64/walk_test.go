package amd64

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// recordSize is the distance between encodings in the walk's file. Behind an encoding comes a nop
// made long by prefixes, whose every tail is a nop too, so that objdump is back in step at the next
// however it cut this one.
const recordSize = 16

// walk collects encodings and compares them with objdump, all in one run of it.
type walk struct {
	mode int
	code []byte
	met  int
}

// add takes an encoding. Briefly it takes every fifth: the step shares no factor with any loop's
// length, so that all values of each byte come up.
func (w *walk) add(encoding ...byte) {
	if w.met++; testing.Short() && w.met%5 != 0 {
		return
	}
	w.code = append(w.code, encoding...)
	for len(w.code)%recordSize != recordSize-1 {
		w.code = append(w.code, 0x66)
	}
	w.code = append(w.code, 0x90)
}

func (w *walk) compare(t *testing.T) {
	path := filepath.Join(t.TempDir(), "walk")
	if err := os.WriteFile(path, w.code, 0o600); err != nil {
		t.Fatal(err)
	}
	machine := map[int]string{64: "i386:x86-64", 32: "i386"}[w.mode]
	judged, counts := 0, map[string]int{}
	err := disassemble([]string{"-D", "-b", "binary", "-m", machine, path}, func(l line) {
		if l.len == 0 || l.addr%recordSize != 0 {
			return
		}
		judged++
		code := w.code[l.addr:min(int(l.addr)+recordSize, len(w.code))]
		v := judge(l, code, w.mode)
		if v == "" {
			return
		}
		if v[0] == '[' {
			counts[v]++
		} else if counts["wrong"]++; counts["wrong"] <= 20 {
			t.Errorf("% x: %s: %s", code[:8], l.text, v)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.code) / recordSize; judged < n*99/100 {
		t.Errorf("objdump was out of step at %d of %d encodings", n-judged, n)
	}
	t.Logf("%d encodings, %s", judged, tally(counts))
}

// modRMs are the ModRM bytes that matter: every register form, every reg field
// with memory, and each addressing form.
func modRMs() (ms []byte) {
	for m := 0; m < 256; m++ {
		reg, rm := m>>3&7, m&7
		if m >= 0xc0 || rm == 1 || reg == 1 && (rm == 4 || rm == 5 || rm == 6) {
			ms = append(ms, byte(m))
		}
	}
	return ms
}

func TestWalkLegacy(t *testing.T) {
	escapes := [][]byte{{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}}
	prefixes := [][]byte{{}, {0x66}, {0xf3}, {0xf2}}
	for _, mode := range []int{64, 32} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			w := walk{mode: mode}
			for _, p := range prefixes {
				for _, e := range escapes {
					for op := range 256 {
						if len(e) == 0 && (op == 0x0f || prefixOf[op] != 0) {
							continue
						}
						for _, m := range modRMs() {
							if len(e) == 0 && op == 0x9b && prefixOf[m] != 0 {
								continue // objdump folds fwait as a prefix
							}
							w.add(bytes.Join([][]byte{p, e, {byte(op), m}}, nil)...)
						}
					}
				}
			}
			w.compare(t)
		})
	}
}

func TestWalkPrefixes(t *testing.T) {
	for _, mode := range []int{64, 32} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			w := walk{mode: mode}
			prefixes := [][]byte{{0x67}, {0x66, 0xf3}, {0xf2, 0x66}, {0xf3, 0xf2}, {0xf2, 0xf3}, {0x2e, 0x66, 0x67}, {0x64}, {0xf0}}
			if mode == 64 {
				prefixes = append(prefixes, []byte{0x48}, []byte{0x41}, []byte{0x66, 0x48}, []byte{0xf3, 0x48}, []byte{0xf2, 0x4f}, []byte{0x67, 0x48})
			}
			for _, p := range prefixes {
				for _, e := range [][]byte{{}, {0x0f}, {0x0f, 0x38}, {0x0f, 0x3a}} {
					for op := range 256 {
						if len(e) == 0 && (op == 0x0f || prefixOf[op] != 0) {
							continue
						}
						for _, m := range []byte{0xc1, 0x01, 0x05, 0x44, 0x86} {
							w.add(bytes.Join([][]byte{p, e, {byte(op), m}}, nil)...)
						}
					}
				}
			}
			w.compare(t)
		})
	}
}

func TestWalkVEX(t *testing.T) {
	for _, mode := range []int{64, 32} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			w := walk{mode: mode}
			for m := byte(0); m <= 4; m++ {
				for op := range 256 {
					for p1 := range 256 { // W vvvv L pp
						if v := p1 >> 3 & 15; v != 15 && v != 10 {
							continue
						}
						for _, modrm := range []byte{0xc2, 0xcb, 0x01, 0x0c, 0x3c, 0x25} {
							w.add(0xc4, 0xe0|m, byte(p1), byte(op), modrm)
						}
						if m == 1 && p1 < 0x80 {
							w.add(0xc5, byte(p1)|0x80, byte(op), 0xca)
						}
					}
				}
			}
			w.compare(t)
		})
	}
}

func TestWalkXOP(t *testing.T) {
	w := walk{mode: 64}
	for m := byte(7); m <= 11; m++ {
		for op := range 256 {
			for p1 := range 256 {
				if v := p1 >> 3 & 15; v != 15 && v != 10 {
					continue
				}
				for _, modrm := range []byte{0xc2, 0xcb, 0xd3, 0x01, 0x0c, 0x3d} {
					w.add(0x8f, 0xe0|m, byte(p1), byte(op), modrm)
				}
			}
		}
	}
	w.compare(t)
}

func TestWalkEVEX(t *testing.T) {
	for _, mode := range []int{64, 32} {
		t.Run(fmt.Sprint(mode), func(t *testing.T) {
			w := walk{mode: mode}
			n := 0
			for m := byte(0); m < 8; m++ {
				for op := range 256 {
					for pp := byte(0); pp < 4; pp++ {
						for f := range 256 { // W, vvvv used, V' used, L'L, b, z, masked
							for _, modrm := range []byte{0xc2, 0xcb, 0xd3, 0x01, 0x0c, 0x3d} {
								if n++; n%37 != 0 {
									continue
								}
								p1 := byte(f)&1<<7 | 0x7c - byte(f)&2<<4 | pp
								p2 := byte(f)&4<<1 ^ 8 | byte(f)>>3&3<<5 | byte(f)&0x20>>1 | byte(f)&0x40<<1 | byte(f)>>7
								w.add(0x62, 0xf0|m, p1, p2, byte(op), modrm)
							}
						}
					}
				}
			}
			w.compare(t)
		})
	}
}
