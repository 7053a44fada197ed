package ptrace

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// tried is the word that debugRegistersWork watches. It is no variable of a function's: a stack may
// move.
var tried atomic.Uint64

// debugRegistersWork tells whether the debug registers of this system report the accesses they are
// set for. Under some hypervisors they can be set, read back as they were set, and report nothing,
// to any debugger: a watchpoint would count no access, without a word. So this process watches a
// word of its own, once, by the kernel's perf events (perf_event_open(2), PERF_TYPE_BREAKPOINT),
// and writes to it. Where the kernel lends this process no such event, nothing is known against
// them.
var debugRegistersWork = sync.OnceValue(func() error {
	runtime.LockOSThread() // the event is this thread's
	defer runtime.UnlockOSThread()
	fd, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type:    unix.PERF_TYPE_BREAKPOINT,
		Size:    uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample:  1,
		Bits:    unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv,
		Bp_type: 2, // HW_BREAKPOINT_W
		Ext1:    uint64(uintptr(unsafe.Pointer(&tried))),
		Ext2:    8, // its length
	}, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	tried.Store(1)
	var count [8]byte
	if n, err := unix.Read(fd, count[:]); err != nil || n != len(count) || binary.NativeEndian.Uint64(count[:]) != 0 {
		return nil
	}
	return fmt.Errorf("the processor's debug registers report no access on this system, a hypervisor's quirk: no data can be watched: %w", unix.ENOTSUP)
})
