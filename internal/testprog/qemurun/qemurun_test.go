package qemurun

import (
	"bytes"
	"testing"
)

// An addition, a store, and a trap.
func TestRun(t *testing.T) {
	m := ARM64(t)
	const text, data = 0x40000000, 0x50000000
	m.Map(text, 1<<12)
	m.Map(data, 1<<12)
	m.Write(text, []byte{
		0x20, 0x00, 0x02, 0x8b, // add x0, x1, x2
		0x60, 0x00, 0x00, 0xf9, // str x0, [x3]
		0x00, 0x00, 0x20, 0xd4, // brk 0
	})
	s := State{PC: text, SP: data + 256}
	s.X[1], s.X[2], s.X[3], s.V[63] = 5, 7, data+8, 9
	stop := m.Run(&s)
	if stop.Signal != SIGTRAP || s.PC != text+8 || s.X[0] != 12 || s.V[63] != 9 || s.SP != data+256 {
		t.Errorf("%+v: %+v", stop, s)
	}
	if b := m.Read(data, 17); !bytes.Equal(b, append([]byte{8: 12}, make([]byte, 8)...)) {
		t.Errorf("stored % x", b)
	}
	s = State{PC: data + 1<<20}
	if stop := m.Run(&s); stop.Signal != SIGSEGV || stop.Addr != data+1<<20 {
		t.Errorf("%+v", stop)
	}
}

// The same for riscv64, with instructions of both lengths.
func TestRunRISCV64(t *testing.T) {
	m := RISCV64(t)
	const text, data = 0x40000000, 0x50000000
	m.Map(text, 1<<12)
	m.Map(data, 1<<12)
	m.Write(text, []byte{
		0x33, 0x85, 0xc5, 0x00, // add a0, a1, a2
		0x88, 0xe2, // c.sd a0, 0(a3)
		0x02, 0x90, // c.ebreak
	})
	s := RISCV64State{PC: text}
	s.X[2], s.X[1], s.X[3] = 1, data+256, 2 // gp, sp, tp
	s.X[10], s.X[11], s.X[12], s.F[31] = 5, 7, data+8, 9
	stop := m.RunRISCV64(&s)
	if stop.Signal != SIGTRAP || s.PC != text+6 || s.X[9] != 12 || s.F[31] != 9 || s.X[1] != data+256 || s.X[2] != 1 {
		t.Errorf("%+v: %+v", stop, s)
	}
	if b := m.Read(data, 17); !bytes.Equal(b, append([]byte{8: 12}, make([]byte, 8)...)) {
		t.Errorf("stored % x", b)
	}
	s = RISCV64State{PC: data + 1<<20}
	if stop := m.RunRISCV64(&s); stop.Signal != SIGSEGV || stop.Addr != data+1<<20 {
		t.Errorf("%+v", stop)
	}
}
