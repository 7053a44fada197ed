package bpf_test

import (
	"encoding/binary"
	"strings"
	"syscall"
	"testing"

	"github.com/cilium/ebpf/asm"

	"kprobe/bpf"
	"kprobe/bpf/verify"
)

// A program that writes is refused unless it is allowed; then the target's memory answers.
func TestWrites(t *testing.T) {
	p, err := bpf.FromAsm("change", bpf.Kprobe, asm.Instructions{
		asm.Mov.Imm(asm.R0, 4711),
		asm.StoreMem(asm.RFP, -8, asm.R0, asm.DWord),
		asm.Mov.Imm(asm.R1, 0x1000),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -8),
		asm.Mov.Imm(asm.R3, 8),
		asm.BuiltinFunc(bpf.FnProbeWriteUser).Call(),
		asm.Return(),
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &bpf.Collection{Programs: []*bpf.Program{p}}
	const want = "(bpf_probe_write_user) is not supported here unless it is allowed: --unsafe does (Collection.AllowWrites)"
	if _, err := verify.Program(p); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("not allowed: %v", err)
	}
	c.AllowWrites()
	l := verified(t, c)
	if r := l.run(t, "change", nil); int64(r.R0) != -bpf.EFAULT {
		t.Errorf("of no memory it answers %d", int64(r.R0))
	}
	var at, value uint64
	l.vm.Env.Write = func(addr uint64, b []byte) error {
		at, value = addr, binary.LittleEndian.Uint64(b)
		return nil
	}
	if r := l.run(t, "change", nil); r.R0 != 0 || at != 0x1000 || value != 4711 {
		t.Errorf("answer %d, %d at %#x", int64(r.R0), value, at)
	}
	l.vm.Env.Write = func(uint64, []byte) error { return syscall.EFAULT }
	if r := l.run(t, "change", nil); int64(r.R0) != -bpf.EFAULT {
		t.Errorf("where it may not, it answers %d", int64(r.R0))
	}
}
