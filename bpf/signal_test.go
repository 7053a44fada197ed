package bpf_test

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"

	"kprobe/bpf"
	"kprobe/bpf/verify"
)

// TestSignals has programs ask for signals, which are refused unless they are allowed.
func TestSignals(t *testing.T) {
	for _, version := range versions {
		c := load(t, "testdata/signals.bpf.c", version)
		if _, err := verify.Program(c.Programs[0]); err == nil || !strings.Contains(err.Error(), "(bpf_send_signal) is not supported here unless it is allowed: --unsafe does") {
			t.Errorf("%s: not allowed: %v", version, err)
		}
		for range 2 { // the second changes nothing
			if err := c.AllowSignals(); err != nil {
				t.Fatal(err)
			}
		}
		l := verified(t, c)
		ring, err := bpf.NewReader(l.mapOf(t, bpf.SignalsMap))
		if err != nil {
			t.Fatal(err)
		}
		asked := func() (all []bpf.Signal) {
			for {
				rec, more, err := ring.Read()
				if err != nil {
					t.Fatal(err)
				}
				if !more {
					return all
				}
				s, err := bpf.ParseSignal(rec.Data)
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, s)
			}
		}
		answers := func() [2]int64 {
			b, err := l.Var("answers").In(l.mapOf(t, ".bss"))
			if err != nil {
				t.Fatal(err)
			}
			return [2]int64{int64(binary.LittleEndian.Uint64(b)), int64(binary.LittleEndian.Uint64(b[8:]))}
		}
		for _, tt := range []struct {
			process, thread uint64
			answers         [2]int64
			asked           []bpf.Signal
		}{
			{10, 12, [2]int64{}, []bpf.Signal{{Number: 10}, {Thread: 1001, Number: 12}}},
			{64, 1<<32 | 1, [2]int64{}, []bpf.Signal{{Number: 64}, {Thread: 1001, Number: 1}}},
			{0, 65, [2]int64{0, -bpf.EINVAL}, nil},
			{1 << 31, 0, [2]int64{-bpf.EINVAL, 0}, nil},
		} {
			l.run(t, "tell", map[string]uint64{"rdi": tt.process, "rsi": tt.thread})
			if got, a := asked(), answers(); !slices.Equal(got, tt.asked) || a != tt.answers {
				t.Errorf("%s: %+v: %v, answers %d", version, tt, got, a)
			}
		}
		// A ring that is not read is full some time, and says so.
		sent, full := 0, false
		for n := 0; n < 10000 && !full; n++ {
			l.run(t, "tell", map[string]uint64{"rdi": 10, "rsi": 10})
			for _, a := range answers() {
				switch {
				case a == 0 && !full:
					sent++
				case a == -bpf.EBUSY:
					full = true
				default:
					t.Fatalf("%s: answer %d after %d signals", version, a, sent)
				}
			}
		}
		if got := len(asked()); !full || sent < 50 || got != sent {
			t.Errorf("%s: %d signals are there, %d were sent, full: %v", version, got, sent, full)
		}
	}
	for _, record := range [][]byte{nil, make([]byte, 16), append(make([]byte, 8), 65, 0, 0, 0, 0, 0, 0, 0), make([]byte, 24)} {
		if _, err := bpf.ParseSignal(record); !errors.Is(err, bpf.ErrInvalid) {
			t.Errorf("% x: %v", record, err)
		}
	}
}
