package inject_test

import (
	"encoding/binary"
	"slices"
	"testing"

	"kprobe/arch"
	"kprobe/bpf"
	"kprobe/internal/asm/x86"
	"kprobe/internal/inject"
	x86code "kprobe/internal/inject/x86"
	"kprobe/internal/jit"
)

// TestKernelStacks has a kernel's function walk, which is played by a stub here: it is given the registers as the kernel's own, and
// room for as many addresses as the map has.
func TestKernelStacks(t *testing.T) {
	const depth = 6
	d := newDriver(t, &bpf.MapSpec{Name: "stacks", Type: bpf.StackTrace, KeySize: 4, ValueSize: 8 * depth, MaxEntries: 64})
	a := x86code.NewAsm(d.code(256), false)
	for i, w := range []int{x86code.WordIP, x86code.WordSP, x86code.WordFP, x86code.WordOf[arch.R10], x86code.WordCS} {
		a.Load(arch.R9, arch.DI, 8*w)
		a.Store(arch.SI, 8*i, arch.R9)
	}
	a.Registers(x86.OpStore, arch.R8, arch.DX) // at most
	a.Shift(8, x86.Shl, arch.R8, 8)
	a.Registers(x86.Or.ToRM(), arch.R8, arch.CX) // skipped
	a.Store(arch.SI, 8*5, arch.R8)
	a.MovConst(arch.AX, depth)
	for _, r := range []arch.Reg{arch.DX, arch.CX, arch.DI, arch.SI, arch.R8, arch.R9, arch.R10, arch.R11} {
		a.MovConst(r, 1) // like all that C does not keep
	}
	a.Ret()
	d.put(a.Base, a.Code)
	target := &inject.Target{Machine: hostMachine, Segment: d.seg, Readers: &inject.Readers{Kernel: a.Base, KernelText: a.Base, User: a.Base, UserText: a.Base, Stack: a.Base}}
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
	want := []uint64{0x100 + x86code.WordIP, 0x100 + x86code.WordSP, 0x100 + x86code.WordFP, 0x107, 0x10, depth<<8 | 3}
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
