package inject

import (
	"encoding/binary"
	"slices"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/asm/x86"
	"kprobe/internal/jit"
)

// TestKernelStacks has a kernel's function walk, which is played by a stub here: it is given the registers as the kernel's own, and
// room for as many addresses as the map has.
func TestKernelStacks(t *testing.T) {
	const depth = 6
	d := newDriver(t, &bpf.MapSpec{Name: "stacks", Type: bpf.StackTrace, KeySize: 4, ValueSize: 8 * depth, MaxEntries: 64})
	a := newAsm(d.code(256), false)
	for i, w := range []int{wordIP, wordSP, wordFP, wordOf[arch.R10], wordCS} {
		a.load(arch.R9, arch.DI, 8*w)
		a.store(arch.SI, 8*i, arch.R9)
	}
	a.registers(x86.OpStore, arch.R8, arch.DX) // at most
	a.shift(8, x86.Shl, arch.R8, 8)
	a.registers(x86.Or.ToRM(), arch.R8, arch.CX) // skipped
	a.store(arch.SI, 8*5, arch.R8)
	a.movConst(arch.AX, depth)
	for _, r := range []arch.Reg{arch.DX, arch.CX, arch.DI, arch.SI, arch.R8, arch.R9, arch.R10, arch.R11} {
		a.movConst(r, 1) // like all that C does not keep
	}
	a.ret()
	d.put(a.base, a.code)
	target := &Target{Machine: hostMachine, Segment: d.seg, Readers: &Readers{Kernel: a.base, KernelText: a.base, User: a.base, UserText: a.base, Stack: a.base}}
	d.area = target.Area(d.code(target.AreaSize()))
	d.put(d.area.Addr, d.area.Image())
	s := d.step()

	var words [jit.ContextWords]uint64
	for i := range words {
		words[i] = uint64(0x100 + i)
	}
	var context []byte
	for _, w := range words {
		context = binary.LittleEndian.AppendUint64(context, w)
	}
	addr, _ := d.buffer(context)
	want := []uint64{0x100 + wordIP, 0x100 + wordSP, 0x100 + wordFP, 0x107, 0x10, depth<<8 | 3}
	var ids []uint64
	for _, tt := range []struct{ flags, answer uint64 }{
		{bpf.StackEntry | 3, 0}, {3, 0}, {1 << 8, errno(bpf.EFAULT)}, {1 << 20, errno(bpf.EINVAL)}, {1 << 40, errno(bpf.EINVAL)},
	} {
		d.later(bpf.FnGetStackid, addr, d.mapAddr(0), tt.flags)
		answers, _ := d.mended(s)
		if tt.answer != 0 {
			if answers[0] != tt.answer {
				t.Errorf("flags %#x: answer %d", tt.flags, int64(answers[0]))
			}
			continue
		}
		value, err := d.maps.Map(0).Lookup(binary.LittleEndian.AppendUint32(nil, uint32(answers[0])))
		if err != nil || int64(answers[0]) < 0 {
			t.Fatal(int64(answers[0]), err)
		}
		var got []uint64
		for ; len(value) > 0; value = value[8:] {
			got = append(got, binary.LittleEndian.Uint64(value))
		}
		if !slices.Equal(got, want) {
			t.Errorf("flags %#x: %x, want %x", tt.flags, got, want)
		}
		ids = append(ids, answers[0])
	}
	if len(ids) != 2 || ids[0] != ids[1] {
		t.Errorf("one stack is %v", ids)
	}
}
