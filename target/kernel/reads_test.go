package kernel_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"kprobe/event"
	"kprobe/internal/vm/vmtest"
	"kprobe/trace"
)

// Memory is read in the guest, without a stop: the same values as the guest's own probes read of
// the same calls. Where there is no memory a fault is told, not taken. The guest's work on two CPUs
// comes out as ever.
func TestReadsInside(t *testing.T) {
	v := vmtest.Shared(t, "amd64")
	s, _ := openWindow(t, v)
	defer s.Close()
	const events = "cd /sys/kernel/tracing; "
	off := events + "echo 0 >events/kprobes/x/enable; echo >kprobe_events; echo >trace"
	defer v.Run(off)
	// The system call's argument is in the task's registers, which are memory here.
	run(t, v, events+"echo 'p:x __x64_sys_openat name=+0(+0x68(%di)):ustring' >kprobe_events; echo >trace; echo 1 >events/kprobes/x/enable")
	var mu sync.Mutex
	var opened, dentries []string
	faults, whole := 0, 0
	tr := trace.New(s, func(e *event.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Comm != "dd" {
			return
		}
		switch e.Name {
		case "o":
			opened = append(opened, e.Args[0].Text)
		case "d":
			dentries = append(dentries, e.Args[0].Text)
		case "b":
			for _, a := range e.Args[:len(e.Args)-1] {
				if a.Fault {
					faults++
				}
			}
			if last := e.Args[len(e.Args)-1]; !last.Fault && last.Bits == 0 {
				whole++
			}
		}
	})
	tr.Inside = true
	if err := tr.Add(
		"p:o do_sys_openat2 name=+0(%si):ustring",
		"p:d vfs_open name=path->dentry->d_name.name:string",
		// A page that no task has, the unused half of the address space, both ends of the kernel's;
		// and of the user's buffer, zeros.
		"p:b write_null +0(%dx):x64 +0x1000000000000000(%si):string @0x8000000000000000:x8 @0xfffffffffffff000:string +0(%si):x8",
	); err != nil {
		t.Fatal(err)
	}
	optimized(t, s, 3)
	const n = 2000
	dd := fmt.Sprintf("dd if=/dev/zero of=/dev/null bs=7 count=%d 2>/tmp/dd$1", n)
	const work = "dd if=/dev/zero of=/tmp/z$1 bs=4k count=100 2>/tmp/dd$1; md5sum </tmp/z$1; rm /tmp/z$1 /tmp/dd$1"
	out := run(t, v, "w() { "+dd+"; "+work+"; }; w 1 >/tmp/1 & w 2; wait; cat /tmp/1; rm /tmp/1")
	if sum, _, _ := strings.Cut(out, " "); len(sum) != 32 || strings.Count(out, sum) != 2 {
		t.Errorf("the guest's work came out as\n%s", out)
	}
	tr.Flush()
	out = run(t, v, "grep dd- /sys/kernel/tracing/trace")
	run(t, v, off)
	var own []string
	for _, m := range regexp.MustCompile(`(?m)^ *dd-.*: x: \(.*\) name="(.*)"$`).FindAllStringSubmatch(out, -1) {
		own = append(own, m[1])
	}
	slices.Sort(own)
	slices.Sort(opened)
	if len(own) < 8 || !slices.Equal(own, opened) {
		t.Errorf("opened:\n%q\nby the guest's own account\n%q\nof %+v", opened, own, tr.Counts())
	}
	for _, name := range []string{"null", "zero", "z1", "z2"} {
		if !slices.Contains(dentries, name) {
			t.Errorf("no %s among the entries opened: %q", name, dentries)
		}
	}
	lost := 0 // a busy machine comes late to empty the rings
	for _, c := range tr.Counts() {
		if c.NMissed() != 0 {
			t.Errorf("%+v", c)
		}
		if c.Name == "b" {
			lost = int(c.Missed[event.Lost])
		}
	}
	if whole+lost != 2*n || faults != 4*whole || whole < n/10 {
		t.Errorf("%d faults and %d good reads in %d calls, %d events lost", faults, whole, 2*n, lost)
	}
	if out := run(t, v, "dmesg | grep -c -e BUG -e 'WARNING: CPU' -e Oops || true"); strings.TrimSpace(out) != "0" {
		t.Errorf("the kernel complains: %s", run(t, v, "dmesg | tail -40"))
	}
}
