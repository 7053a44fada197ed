package inject_test

import (
	"bytes"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
)

// TestReads reads memory that is there, that is not, and that ends.
func TestReads(t *testing.T) {
	d := newDriver(t)
	end := d.area.Addr + areaRoom // of memory
	text := []byte("some text\x00and more than eight bytes")
	d.put(end-arch.Addr(len(text)), text)
	s := d.step()
	at := uint64(end) - uint64(len(text))
	size := uint64(len(text))
	filled := bytes.Repeat([]byte{0xee}, 48)
	tests := []struct {
		helper     int32
		size, from uint64
		answer     uint64
		want       string // the beginning of the destination; what follows is as it was
		faults     int
	}{
		{bpf.FnProbeRead, size, at, 0, string(text), 0},
		{bpf.FnProbeReadUser, 3, at + 5, 0, string(text[5:8]), 0},
		{bpf.FnProbeReadKernel, 0, 1, 0, "", 0},
		{bpf.FnProbeRead, size, at + 1, errno(bpf.EFAULT), strings.Repeat("\x00", int(size)), 1},
		{bpf.FnProbeRead, 8, uint64(end) - 4, errno(bpf.EFAULT), strings.Repeat("\x00", 8), 1},
		{bpf.FnProbeRead, 5, 0, errno(bpf.EFAULT), strings.Repeat("\x00", 5), 1},
		{bpf.FnProbeRead, 8, 1 << 63, errno(bpf.EFAULT), strings.Repeat("\x00", 8), 1},
		{bpf.FnProbeReadStr, 40, at, 10, "some text\x00", 0},
		{bpf.FnProbeReadUserStr, 4, at, 4, "som\x00", 0},
		{bpf.FnProbeReadKernelStr, 1, at, 1, "\x00", 0},
		{bpf.FnProbeReadStr, 0, at, 0, "", 0},
		{bpf.FnProbeReadStr, 40, uint64(end) - 5, errno(bpf.EFAULT), strings.Repeat("\x00", 40), 1},
		{bpf.FnProbeReadStr, 5, uint64(end) - 5, 5, "byte\x00", 0},
	}
	for i, tt := range tests {
		addr, mem := d.buffer(filled)
		d.later(tt.helper, addr, tt.size, tt.from)
		answers, faults := d.mended(s)
		if narrow() && tt.from >= 1<<32 {
			tt.faults = 0 // it is not tried
		}
		want := append([]byte(tt.want), filled[len(tt.want):]...)
		if answers[0] != tt.answer || faults != tt.faults || !bytes.Equal(mem, want) {
			t.Errorf("%d: answer %d, %d faults, %q; want %d, %d, %q", i, int64(answers[0]), faults, mem, int64(tt.answer), tt.faults, want)
		}
	}
}

// TestWrites writes memory that is there, that is not, and that ends: then some may have been written.
func TestWrites(t *testing.T) {
	d := newDriver(t)
	text, want := []byte("a text of twenty-four..."), bytes.Repeat([]byte{0xee}, 48)
	last := uint64(d.area.Addr+areaRoom) - 48 // 48 bytes, and the end of memory
	d.put(arch.Addr(last), want)
	s := d.step()
	for i, tt := range []struct {
		to, size uint64
		answer   uint64
		written  uint64
		faults   int
	}{
		{last, 24, 0, 24, 0},
		{last + 3, 8, 0, 8, 0},
		{last + 20, 5, 0, 5, 0},
		{last + 47, 1, 0, 1, 0},
		{last + 9, 0, 0, 0, 0},
		{last + 32, 24, errno(bpf.EFAULT), 16, 1},
		{last + 46, 3, errno(bpf.EFAULT), 2, 1},
		{48, 16, errno(bpf.EFAULT), 0, 1},
		{1 << 63, 3, errno(bpf.EFAULT), 0, 1},
	} {
		from, _ := d.buffer(text)
		back, have := d.buffer(make([]byte, 48))
		d.later(bpf.FnProbeWriteUser, tt.to, from, tt.size)
		d.later(bpf.FnProbeRead, back, 48, last)
		answers, faults := d.mended(s)
		if narrow() && tt.to >= 1<<32 {
			tt.faults = 0 // it is not tried
		}
		if tt.written > 0 {
			copy(want[tt.to-last:], text[:tt.written])
		}
		if answers[0] != tt.answer || answers[1] != 0 || faults != tt.faults || !bytes.Equal(have, want) {
			t.Errorf("%d: answer %d, %d faults, %q; want %d, %d, %q", i, int64(answers[0]), faults, have, int64(tt.answer), tt.faults, want)
		}
	}
}
