package kernel_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/conform"
	"kprobe/internal/vm/vmtest"
)

// The rules of kprobes.txt for processes and kernels alike. Faults of probed instructions are left
// out, since they are signals in a process (TestFaultHandlers). And all CPUs stand at a stop, so
// handlers never run at the same time.
func TestConform(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	run(t, v, "insmod /conform.ko")
	t.Cleanup(func() { run(t, v, "rmmod conform") })
	const parameter = "/sys/module/conform/parameters/round"
	code, err := strconv.ParseUint(strings.TrimSpace(run(t, v, "cat "+moduleText)), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	memory := outside(t, v)
	data, ok := memory.Kernel().Table().Addr("init_task")
	if !ok {
		t.Fatal("no init_task")
	}
	text := func(t testing.TB) []byte {
		t.Helper()
		page := make([]byte, 4096) // all of its code
		if err := memory.ReadAt(arch.Addr(code)&^4095, page); err != nil {
			t.Fatal(err)
		}
		return page
	}
	before := text(t)
	without := conform.Briefly()
	if testing.Short() { // each is a session; the engine does these, and stubs and processes are held to them
		without = append(without, "OrderAtOneAddress", "ReturnsTogether", "AddrAndOffset", "Flags", "ReturnRefused", "BatchRollsBack",
			"DisableAndEnable", "HandlersRunOneAfterAnother")
	}
	conform.Run(t, func(t testing.TB) *conform.Victim {
		return &conform.Victim{
			Start: func(t testing.TB, round string) func() []string {
				type answer struct {
					out string
					err error
				}
				done := make(chan answer, 1)
				go func() {
					out, err := v.Run("echo " + round + " >" + parameter + " && while read -r line; do echo \"$line\"; done <" + parameter)
					done <- answer{out, err}
				}()
				return func() []string {
					a := <-done
					if a.err != nil {
						t.Fatal(a.err)
					}
					return strings.Split(strings.TrimSpace(a.out), "\n")
				}
			},
			Attach: func(t testing.TB, o *kprobe.Options) *kprobe.Session {
				s := attach(t, v, v.RAM(), o)
				t.Cleanup(func() {
					s.Close()
					if !bytes.Equal(text(t), before) {
						t.Error("the module's text is not what it was")
					}
				})
				return s
			},
			Text: text,
			Home: "conform",
			Data: data, Nowhere: ^arch.Addr(4095),
		}
	}, without...)
}
