package bpf_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"

	"kprobe/bpf/bpftest"
)

// TestSnprintf compares what bpf_snprintf writes with what fmt does.
func TestSnprintf(t *testing.T) {
	const at = bpftest.PageAddr + bpftest.PageText // "some text"
	for _, version := range versions {
		l := verified(t, load(t, "testdata/texts.bpf.c", version))
		check := func(variable string, answer int, size int, want string) {
			t.Helper()
			b, err := l.Var(variable).In(l.mapOf(t, ".bss"))
			if err != nil {
				t.Fatal(err)
			}
			answers, err := l.Var("answers").In(l.mapOf(t, ".bss"))
			if err != nil {
				t.Fatal(err)
			}
			if n := binary.LittleEndian.Uint64(answers[8*answer:]); n != uint64(len(want)+1) {
				t.Errorf("%s: %s: answer %d, want %d", version, variable, n, len(want)+1)
			}
			if size > 0 {
				want = want[:min(len(want), size-1)]
			}
			if got := string(b[:min(len(want)+1, len(b))]); got != want+"\x00" {
				t.Errorf("%s: %s is %q, want %q", version, variable, got, want)
			}
		}
		for _, v := range []uint64{0, 1, 9, 10, 65, 100, 12345678, 99999999, math.MaxInt32, 1 << 31, math.MaxUint32, 1 << 32, math.MaxInt64, 1 << 63, math.MaxUint64, math.MaxUint64 - 41} {
			l.run(t, "put_numbers", map[string]uint64{"rdi": v})
			i, u := int32(v), uint32(v)
			if byte(v) != 0 { // that one does not count as a character
				check("numbers", 0, 96, fmt.Sprintf("%d %d %x %X %d %d %x %d|%s%%", i, u, u, u, int64(v), v, v, i, []byte{byte(v)}))
				l.run(t, "put_fields", map[string]uint64{"rdi": v})
				check("fields", 1, 96, fmt.Sprintf("[%6d|%-6d|%06d|%+d|% d|%+05d|%08x|%-4x|  %s|%s  ]", i, i, i, i, i, i, u, u, []byte{byte(v)}, []byte{byte(v)}))
			}
			for size := range uint64(8) {
				l.run(t, "put_cut", map[string]uint64{"rdi": v, "rsi": size})
				if want := fmt.Sprintf("%d of 100%%", i); size > 0 {
					check("cut", 4, int(size), want)
				} else {
					check("cut", 3, 8, fmt.Sprintf("size %d", v)) // as it was before
				}
			}
		}
		l.vm.Env.Comm = "redis"
		l.run(t, "put_words", map[string]uint64{"rdi": at})
		check("words", 2, 96, fmt.Sprintf("%s:%12s:%-12s:%016x:%016x:%s, redis", "some text", "some text", "some text", uint64(at), uint64(at), "some text"))
		l.run(t, "put_words", map[string]uint64{"rdi": 1})
		check("words", 2, 96, fmt.Sprintf(":%12s:%-12s:%016x:%016x:, redis", "", "", 1, 1))
		l.run(t, "put_local", nil)
		check("local", 5, 40, "tid 1001")
		check("plain", 6, 96, "100% all of it")
		for _, comm := range []string{"", "redis", "a-thread-of-15b"} {
			l.vm.Env.Comm = comm
			for addr, text := range map[uint64]string{at: "some text", at + 9: ""} {
				l.run(t, "put_own", map[string]uint64{"rdi": addr})
				check("own", 7, 96, fmt.Sprintf("%s is %s|%12s|%-12s|%3s|%-3s|%d", comm, text, text, text, text, text, 7))
				check("cut_own", 8, 8, comm+"+"+text)
			}
		}
	}
}
