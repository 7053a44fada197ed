package kernel_test

import (
	"bytes"
	"fmt"
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
	addresses := make(map[string]arch.Addr)
	for line := range strings.Lines(run(t, v, "grep -e '\\[conform\\]' -e ' init_task$' /proc/kallsyms")) {
		var at uint64
		var kind, name string
		if _, err := fmt.Sscanf(line, "%x %s %s", &at, &kind, &name); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		addresses[name] = arch.Addr(at)
	}
	memory := outside(t, v)
	text := func(t testing.TB) []byte {
		t.Helper()
		page := make([]byte, 4096) // all of its code
		if err := memory.ReadAt(addresses["jumper"]&^4095, page); err != nil {
			t.Fatal(err)
		}
		return page
	}
	before := text(t)
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
			Data: addresses["init_task"], Nowhere: ^arch.Addr(4095),
		}
	}, conform.Briefly()...)
}
