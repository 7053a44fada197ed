package bench

import (
	"os/exec"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
)

// BenchmarkFloor is the bare stop, SETREGS and CONT that every figure of the
// trap engine is held against: from C; from C with tracer and child wherever
// the kernel puts them; from Go with raw system calls, which
// shows what Go's runtime adds; and through target/ptrace with GETREGS, which
// shows what keeping the books of threads adds.
func BenchmarkFloor(b *testing.B) {
	b.Run("c", func(b *testing.B) {
		p := floor(b)
		besideFloor(b, func(hits int) float64 { return timed(b, p, hits) })
	})
	b.Run("c-apart", func(b *testing.B) {
		p := floor(b, "apart")
		besideFloor(b, func(hits int) float64 { return timed(b, p, hits) })
	})
	b.Run("go", func(b *testing.B) {
		var regs unix.PtraceRegs
		known := false
		tracer(b, func(p *ptrace.Process) error {
			var ws unix.WaitStatus
			if _, err := unix.Wait4(p.PID(), &ws, unix.WALL, nil); err != nil {
				return err
			}
			if !known {
				if err := unix.PtraceGetRegs(p.PID(), &regs); err != nil {
					return err
				}
				known = true
			}
			if err := unix.PtraceSetRegs(p.PID(), &regs); err != nil {
				return err
			}
			return unix.PtraceCont(p.PID(), 0)
		})
	})
	b.Run("backend", func(b *testing.B) {
		var regs arch.Regs
		tracer(b, func(p *ptrace.Process) error {
			st, err := p.Wait()
			if err != nil {
				return err
			}
			if err := p.Regs(st.Thread, &regs); err != nil {
				return err
			}
			if err := p.SetRegs(st.Thread, &regs); err != nil {
				return err
			}
			return p.Resume(st.Thread, 0)
		})
	})
}

// tracer measures a way of serving stops, on the CPU of a child that does
// nothing but trap.
func tracer(b *testing.B, serve func(p *ptrace.Process) error) {
	child := testprog.StartCmd(b, exec.Command(floorProg, "child"))
	child.Expect("ready")
	p, err := ptrace.Attach(child.Pid)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { p.Close() })
	child.Send("go")
	besideFloor(b, func(hits int) float64 {
		var took time.Duration
		p.Run(func() {
			if err = together(child.Pid); err != nil {
				return
			}
			start := time.Now()
			for range hits {
				if err = serve(p); err != nil {
					return
				}
			}
			took = time.Since(start)
		})
		if err != nil {
			b.Fatal(err)
		}
		return float64(took) / float64(hits)
	})
}

// together puts the calling thread and a process on one CPU: that where the
// thread is after it was free to go to the idle one.
func together(pid int) error {
	var set unix.CPUSet
	for cpu := range runtime.NumCPU() {
		set.Set(cpu)
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	var cpu uint32
	if _, _, e := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), 0, 0); e != 0 {
		return e
	}
	set.Zero()
	set.Set(int(cpu))
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return err
	}
	return unix.SchedSetaffinity(pid, &set)
}
