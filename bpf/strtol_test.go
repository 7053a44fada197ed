package bpf_test

import (
	"encoding/binary"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/bpftest"
)

// strtoul does in Go what the kernel's helper does: it returns the value without its sign, and the
// number of characters.
func strtoul(text string, base uint64) (value uint64, negative bool, n int) {
	if base != 0 && base != 8 && base != 10 && base != 16 {
		return 0, false, -bpf.EINVAL
	}
	rest := text
	for rest != "" && (rest[0] == ' ' || rest[0] >= '\t' && rest[0] <= '\r' || rest[0] == 0xa0) {
		rest = rest[1:]
	}
	rest, negative = strings.CutPrefix(rest, "-")
	n = len(text) - len(rest)
	rest = rest[:min(len(rest), 63)]
	isHex := func(c byte) bool { return strings.IndexByte("0123456789abcdefABCDEF", c) >= 0 }
	hex := strings.HasPrefix(rest, "0x") || strings.HasPrefix(rest, "0X")
	switch {
	case base == 16 && hex, base == 0 && hex && len(rest) > 2 && isHex(rest[2]):
		rest, base, n = rest[2:], 16, n+2
	case base == 0 && strings.HasPrefix(rest, "0"):
		base = 8
	case base == 0:
		base = 10
	}
	digits := 0
	for digits < len(rest) && isHex(rest[digits]) {
		if _, err := strconv.ParseUint(rest[digits:digits+1], int(base), 8); err != nil {
			break
		}
		digits++
	}
	if digits == 0 {
		return 0, false, -bpf.EINVAL
	}
	value, err := strconv.ParseUint(rest[:digits], int(base), 64)
	if err != nil {
		return 0, false, -bpf.ERANGE
	}
	return value, negative, n + digits
}

// TestStrtol compares bpf_strtol and bpf_strtoul with that.
func TestStrtol(t *testing.T) {
	texts := []string{"", " ", "-", "--1", "+1", "0", "-0", "08", "0x", "0x1g", "0xg", "0Xff", "1_0", "12\x0034", "\xa0 \t7", "0b1", "077", "fF", "9223372036854775807", "9223372036854775808",
		"-9223372036854775808", "-9223372036854775809", "18446744073709551615", "18446744073709551616", "-18446744073709551616", "0xffffffffffffffff", "0x10000000000000000",
		"1777777777777777777777", "2000000000000000000000", strings.Repeat("0", 62) + "12", strings.Repeat("0", 63) + "12", strings.Repeat(" ", 79) + "1", strings.Repeat(" ", 80)}
	rng := rand.New(rand.NewPCG(5, 6))
	for range 200 {
		var b strings.Builder
		for _, part := range []string{" \t\n", "-", "0xX", "0123456789", "0123456789abcdefABCDEF", "0123456789abcdefgxX -"} {
			for range rng.IntN(1 + rng.IntN(6)) {
				b.WriteByte(part[rng.IntN(len(part))])
			}
		}
		texts = append(texts, b.String())
	}
	for _, version := range versions {
		l := verified(t, load(t, "testdata/numbers.bpf.c", version))
		global := func(name string) []byte {
			b, err := l.Var(name).In(l.mapOf(t, ".bss"))
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		signed := func(name string) int64 { return int64(binary.LittleEndian.Uint64(global(name))) }
		bss := l.mapOf(t, ".bss")
		put := func(text string) {
			value, err := bss.Lookup(key4(0))
			if err != nil {
				t.Fatal(err)
			}
			v := l.Var("text")
			clear(value[v.Offset:][:v.Size])
			copy(value[v.Offset:][:v.Size], text)
			if err := bss.Update(key4(0), value, bpf.UpdateAny); err != nil {
				t.Fatal(err)
			}
		}
		for _, text := range texts {
			put(text)
			for _, flags := range []uint64{0, 8, 10, 16, 2, 32, 1 << 40} {
				l.run(t, "numbers", map[string]uint64{"rdi": uint64(len(text)), "rsi": flags})
				u, negative, n := strtoul(text[:min(len(text), 80)], flags)
				want, wantN := int64(u), n
				switch {
				case n > 0 && negative:
					if want = -want; want > 0 {
						want, wantN = 0, -bpf.ERANGE
					}
				case want < 0:
					want, wantN = 0, -bpf.ERANGE
				}
				if got, gotN := signed("value"), signed("answer"); got != want || gotN != int64(wantN) {
					t.Errorf("%s: strtol(%q, %d) is %d, answer %d, want %d, %d", version, text, flags, got, gotN, want, wantN)
				}
				if negative {
					u, n = 0, -bpf.EINVAL
				}
				if got, gotN := uint64(signed("positive")), signed("positive_answer"); got != u || gotN != int64(n) {
					t.Errorf("%s: strtoul(%q, %d) is %d, answer %d, want %d, %d", version, text, flags, got, gotN, u, n)
				}
			}
		}
		l.run(t, "of_target", map[string]uint64{"rdi": bpftest.PageAddr + bpftest.PageText}) // "some text"
		if v, n := signed("value"), signed("answer"); v != 0 || n != -bpf.EINVAL {
			t.Errorf("%s: %d, %d of a text", version, v, n)
		}
		l.vm.Env.Read = func(_ uint64, p []byte) error { copy(p, make([]byte, len(p))); copy(p, " -123z"); return nil }
		l.run(t, "of_target", map[string]uint64{"rdi": 0x5000})
		if v, n := signed("value"), signed("answer"); v != -123 || n != 5 {
			t.Errorf("%s: %d, %d of the target's -123", version, v, n)
		}
		l.vm.Env.Now = func(int32) uint64 { return 12_345_999_999 }
		l.run(t, "time_of", nil)
		if ticks, hz := signed("ticks"), signed("hz"); ticks != 12345999999*hz/1e9 || hz == 0 {
			t.Errorf("%s: %d ticks, %d in a second", version, ticks, hz)
		}
	}
}
