package bench

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/testprog"
)

// BenchmarkPeer is the same hit by others: a debugger's breakpoint, and the
// kernel's uprobes, which need root and count without leaving the kernel.
func BenchmarkPeer(b *testing.B) {
	b.Run("gdb-ignored-breakpoint", benchGDB)
	b.Run("uprobe", func(b *testing.B) { benchUprobe(b, false) })
	b.Run("uretprobe", func(b *testing.B) { benchUprobe(b, true) })
}

func benchGDB(b *testing.B) {
	path, err := exec.LookPath("gdb")
	if err != nil {
		absent(b, "no gdb")
	}
	p := testprog.Start(b, jumpers(b))
	gdb := exec.Command(path, "-nx", "-batch", "-p", strconv.Itoa(p.Pid),
		"-ex", "break *"+hitFunc, "-ex", "ignore 1 2000000000", "-ex", "continue")
	if err := gdb.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		p.CloseStdin() // which ends the program, and that gdb
		gdb.Wait()
	})
	testprog.Until(b, "gdb places its breakpoint", gdb.Process.Pid, func() bool {
		diffs, err := testprog.TextDiff(p.Pid)
		return err == nil && len(diffs) > 0
	})
	besideFloor(b, func(hits int) float64 { return timed(b, p, hits) })
}

// benchUprobe counts hits by a perf event of the uprobe PMU.
func benchUprobe(b *testing.B, ret bool) {
	kind, err := pmuType("uprobe")
	if err != nil {
		absent(b, "no uprobes: %v", err)
	}
	path := jumpers(b)
	p := testprog.Start(b, path)
	name, err := unix.BytePtrFromString(path)
	if err != nil {
		b.Fatal(err)
	}
	attr := unix.PerfEventAttr{
		Type: kind,
		Size: uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Ext1: uint64(uintptr(unsafe.Pointer(name))),
		Ext2: symbolOf(b, path, hitFunc).fileOff,
	}
	if ret {
		attr.Config = 1 // format/retprobe says bit 0
	}
	fd, err := unix.PerfEventOpen(&attr, p.Pid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		absent(b, "perf_event_open: %v", err)
	}
	count := os.NewFile(uintptr(fd), "uprobe")
	defer count.Close()
	besideFloor(b, func(hits int) float64 { return timed(b, p, hits) })
	var n [8]byte
	if _, err := count.Read(n[:]); err != nil {
		b.Fatal(err)
	}
	allHit(b, *(*uint64)(unsafe.Pointer(&n)))
}

// pmuType is the number that perf_event_open knows a kind of events by.
func pmuType(name string) (uint32, error) {
	text, err := os.ReadFile("/sys/bus/event_source/devices/" + name + "/type")
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	return uint32(n), err
}
