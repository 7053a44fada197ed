package conform

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"kprobe"
	"kprobe/bpf"
	"kprobe/internal/testprog"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// A probe's program is swapped again and again under fire, by trap and by jump: each call
// runs the one or the other, once.
func TestUpdateProgramLosesNoHit(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "threads", "-O2"), "3")
	s := harness.Attach(t, p.Pid, nil)
	maps := []*bpf.MapSpec{{Name: "runs", Type: bpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 2}}
	count := func(which int) string {
		return fmt.Sprintf(`
			*(u32 *)(r10 -4) = %d
			r1 = map runs
			r2 = r10
			r2 += -4
			call map_lookup_elem
			if r0 == 0 goto end
			r1 = 1
			lock fetch_add *(u64 *)(r0 +0), r1
		end:
			r0 = 0
			exit`, which)
	}
	ps := harness.Load(t, s, maps, nil, map[string]string{"a": count(0), "b": count(1)})
	var programs [2]*kprobe.Program
	for i, name := range []string{"a", "b"} {
		var err error
		programs[i], err = ps.Program(name)
		harness.OK(t, err)
	}
	kp := &kprobe.Kprobe{SymbolName: "hammer_add", Program: programs[0]}
	harness.Errno(t, s.UpdateProgram(kp, programs[1]), syscall.EINVAL)
	harness.OK(t, s.RegisterKprobe(kp))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 1; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			harness.OK(t, s.UpdateProgram(kp, programs[i%2]))
			if i%4 == 0 {
				harness.OK(t, s.WaitOptimized())
			}
		}
	}()
	const rounds, calls = 10, 3 * 2000
	for range rounds {
		p.Round("2000")
	}
	close(stop)
	<-stopped
	m, err := ps.Map("runs")
	harness.OK(t, err)
	var ran [2]uint64
	for i := range ran {
		v, err := m.Lookup(binary.LittleEndian.AppendUint32(nil, uint32(i)))
		harness.OK(t, err)
		ran[i] = binary.LittleEndian.Uint64(v)
	}
	if ran[0]+ran[1] != rounds*calls || ran[0] == 0 || ran[1] == 0 || kp.Hits() != rounds*calls {
		t.Errorf("the programs ran %v times, %d hits; want %d in all", ran, kp.Hits(), rounds*calls)
	}
	if !kp.IsEnabled() {
		t.Error("it is not enabled")
	}
	harness.OK(t, s.DisableKprobe(kp))
	harness.OK(t, s.UpdateProgram(kp, kprobe.CountOnly)) // for when it is enabled
	if kp.IsEnabled() {
		t.Error("it is enabled")
	}
	harness.Errno(t, s.UpdateProgram(kp, nil), syscall.EINVAL)
	harness.OK(t, s.UnregisterKprobe(kp))
	harness.Ends(t, p)
}

// A context ends the wait for a program that is stopped before it has loaded its libraries, and for
// a handler that does not end.
func TestContexts(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	harness.OK(t, err)
	defer null.Close()
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	tr, err := ptrace.Start([]string{"/bin/true"}, &os.ProcAttr{Files: []*os.File{null, null, null}})
	harness.OK(t, err)
	s, err := kprobe.OpenContext(ended, tr, nil)
	if err == nil { // it was as fast as that
		harness.OK(t, s.Continue())
		harness.OK(t, s.Close())
	} else if !errors.Is(err, context.Canceled) {
		t.Error(err)
	}

	p, s := harness.Jumper(t, &kprobe.Options{Concurrent: true})
	entered, leave := make(chan struct{}), make(chan struct{})
	harness.Register(t, s, &kprobe.Kprobe{SymbolName: "jumper", PreHandler: harness.Pre(func(*kprobe.Regs) { close(entered); <-leave })})
	p.Send("1")
	<-entered
	short, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := s.CloseContext(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("closed under a handler: %v", err)
	}
	close(leave)
	<-s.Done()
	harness.Ends(t, p)
}
