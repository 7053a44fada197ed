package inside

import (
	"errors"
	"runtime"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// A Go program's C functions keep values below the stack pointer, where its Go functions have nothing. A probe on each
// instruction of one leaves them alone, be it a count or a program.
func TestCInGo(t *testing.T) {
	testprog.ReadsFSBase.Need(t)
	p := testprog.Start(t, testprog.Build(t, "cgo", "CGO_ENABLED=1"))
	want := p.Round("300")
	s := harness.Attach(t, p.Pid, nil)
	fn, err := s.Lookup("cgo_leaf")
	harness.OK(t, err)
	programs := []*kprobe.Program{kprobe.CountOnly}
	if runtime.GOARCH != "arm64" { // which has no programs in Go
		counts, _ := runCounter(t, s)
		programs = append(programs, counts)
	}
	probed := 0
	for off := range fn.Size {
		for _, program := range programs {
			kp := &kprobe.Kprobe{Addr: fn.Start() + arch.Addr(off), Program: program}
			if err := s.RegisterKprobe(kp); errors.Is(err, syscall.EILSEQ) || errors.Is(err, syscall.EINVAL) {
				break // no instruction begins there
			} else {
				harness.OK(t, err)
			}
			s.WaitOptimized()
			harness.SameLines(t, p.Round("300"), want)
			if kp.Hits() < 300 {
				t.Errorf("+%#x: %d hits", off, kp.Hits())
			}
			harness.OK(t, s.UnregisterKprobe(kp))
			probed++
		}
	}
	if probed < 8*len(programs) {
		t.Errorf("%d probes", probed)
	}
	harness.Detach(t, s)
	harness.SameLines(t, p.Round("300"), want)
}

// A jprobe on a C function of a Go program has C's arguments.
func TestJprobeOnCInGo(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "cgo", "CGO_ENABLED=1"))
	want := p.Round("300")
	s := harness.Attach(t, p.Pid, nil)
	var a, b int
	jp := &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "cgo_leaf"}, Entry: func(x, y int) { a, b = x, y }}
	harness.OK(t, s.RegisterJprobe(jp))
	harness.SameLines(t, p.Round("300"), want)
	harness.OK(t, s.UnregisterJprobe(jp))
	if a != 299 || b != 7 {
		t.Errorf("C's arguments are %d and %d", a, b)
	}
	harness.Detach(t, s)
	harness.SameLines(t, p.Round("300"), want)
}
