//go:build linux && (ppc64le || riscv64 || s390x)

package tracee

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What machines have in common whose functions take arguments in floating point registers of 8 bytes;
// floatState is each machine's set of the former.

func getFloat(tid int, s *floatState) error {
	_, err := regset(unix.PTRACE_GETREGSET, tid, setFloat, unsafe.Pointer(s), int(unsafe.Sizeof(*s)))
	return RegsError(err)
}

// Vector reads floating point register n, which is all that functions take arguments in. A short number is in its
// first half.
func Vector(tid, n int, v *[16]byte) error {
	var s floatState
	if n < 0 || n >= len(s.f) {
		return unix.EINVAL
	}
	if err := getFloat(tid, &s); err != nil {
		return err
	}
	*v = [16]byte{}
	binary.NativeEndian.PutUint64(v[:], s.f[n])
	return nil
}

// SetVector writes floating point register n.
func SetVector(tid, n int, v *[16]byte) error {
	var s floatState
	if n < 0 || n >= len(s.f) {
		return unix.EINVAL
	}
	if err := getFloat(tid, &s); err != nil {
		return err
	}
	s.f[n] = binary.NativeEndian.Uint64(v[:])
	_, err := regset(unix.PTRACE_SETREGSET, tid, setFloat, unsafe.Pointer(&s), int(unsafe.Sizeof(s)))
	return RegsError(err)
}

// SkipCall keeps a task, which is about to make a call, from making it.
func SkipCall(tid int) error {
	return Insist(func() error {
		var r Registers
		if err := GetRegs(tid, &r); err != nil {
			return err
		}
		r.callNone()
		return SetRegs(tid, &r)
	})
}
