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

// The same for s390x, with instructions of all three lengths.
func TestRunS390X(t *testing.T) {
	m := S390X(t)
	const text, data = 0x40000000, 0x50000000
	m.Map(text, 1<<12)
	m.Map(data, 1<<12)
	m.Write(text, []byte{
		0xb9, 0xe8, 0x30, 0x12, // agrk %r1, %r2, %r3
		0xe3, 0x10, 0x40, 0x00, 0x00, 0x24, // stg %r1, 0(%r4)
		0x15, 0x23, // clr %r2, %r3
		0x00, 0x01,
	})
	s := S390XState{Mask: 0x0705000180000000, PC: text}
	s.R[2], s.R[3], s.R[4], s.R[15], s.F[15], s.A[7] = 5, 7, data+8, data+256, 9, 3
	stop := m.RunS390X(&s)
	if stop.Signal != SIGILL || s.PC != text+14 || s.R[1] != 12 || s.F[15] != 9 || s.R[15] != data+256 || s.A[7] != 3 || s.Mask>>44&3 != 1 {
		t.Errorf("%+v: %+v", stop, s)
	}
	if b := m.Read(data, 16); !bytes.Equal(b, append(make([]byte, 15), 12)) {
		t.Errorf("stored % x", b)
	}
	s.PC = data + 1<<20
	if stop := m.RunS390X(&s); stop.Signal != SIGSEGV || stop.Addr != data+1<<20 {
		t.Errorf("%+v", stop)
	}
}

// The same for ppc64le.
func TestRunPPC64LE(t *testing.T) {
	m := PPC64LE(t)
	const text, data = 0x40000000, 0x50000000
	m.Map(text, 1<<16)
	m.Map(data, 1<<16)
	m.Write(text, []byte{
		0x14, 0x2a, 0x64, 0x7c, // add r3, r4, r5
		0x00, 0x00, 0x66, 0xf8, // std r3, 0(r6)
		0x08, 0x00, 0xe0, 0x7f, // trap
	})
	s := PPC64LEState{PC: text, CTR: 3, LR: 4, CR: 5}
	s.R[1], s.R[2], s.R[4], s.R[5], s.R[6], s.R[12], s.R[13], s.F[31] = data+1024, 1, 5, 7, data+8, 2, 6, 9
	stop := m.RunPPC64LE(&s)
	if stop.Signal != SIGTRAP || s.PC != text+8 || s.R[3] != 12 || s.F[31] != 9 || s.R[13] != 6 || s.R[1] != data+1024 || s.R[12] != 2 || s.CTR != 3 || s.LR != 4 || s.CR != 5 {
		t.Errorf("%+v: %+v", stop, s)
	}
	if b := m.Read(data, 17); !bytes.Equal(b, append([]byte{8: 12}, make([]byte, 8)...)) {
		t.Errorf("stored % x", b)
	}
	s = PPC64LEState{PC: data + 1<<20} // QEMU (7.2) does not tell of a fetch where it went
	if stop := m.RunPPC64LE(&s); stop.Signal != SIGSEGV || s.PC != data+1<<20 {
		t.Errorf("%+v: %+v", stop, s)
	}
}
