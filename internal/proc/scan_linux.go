package proc

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// scanArg is struct pm_scan_arg of PAGEMAP_SCAN (linux/fs.h, Linux 6.7).
type scanArg struct {
	size, flags           uint64
	start, end, walkEnd   uint64
	vec, vecLen, maxPages uint64
	inverted, mask, anyOf uint64 // categories
	returned              uint64
}

// region is struct page_region of PAGEMAP_SCAN.
type region struct{ start, end, categories uint64 }

// The categories that count here.
const (
	pageIsFile    = 1 << 2
	pageIsPresent = 1 << 3
	pageIsSwapped = 1 << 4
)

// pagemapScan is _IOWR('f', 16, struct pm_scan_arg).
const pagemapScan = 3<<30 | uint(unsafe.Sizeof(scanArg{}))<<16 | 'f'<<8 | 16

// scan asks for the pages by PAGEMAP_SCAN, which passes over ranges without page tables. Errors:
// f's; the system's; ErrUnsupported where the kernel does not know the request.
func scan(pages *os.File, start, end uint64, own bool, f func(from, to uint64) error) error {
	page := uint64(os.Getpagesize())
	regions := make([]region, 1024)
	arg := scanArg{
		size: uint64(unsafe.Sizeof(scanArg{})), start: start &^ (page - 1), end: (end + page - 1) &^ (page - 1),
		vec: uint64(uintptr(unsafe.Pointer(&regions[0]))), vecLen: uint64(len(regions)), anyOf: pageIsPresent | pageIsSwapped,
	}
	if own {
		arg.mask, arg.inverted = pageIsFile, pageIsFile
	}
	for arg.start < arg.end {
		n, _, errno := unix.Syscall(unix.SYS_IOCTL, pages.Fd(), uintptr(pagemapScan), uintptr(unsafe.Pointer(&arg)))
		runtime.KeepAlive(regions)
		switch errno {
		case 0:
		case unix.ENOTTY:
			return errors.ErrUnsupported
		default:
			return fmt.Errorf("pagemap: %w", errno)
		}
		for _, r := range regions[:n] {
			if err := f(max(start, r.start), min(end, r.end)); err != nil {
				return err
			}
		}
		if arg.walkEnd <= arg.start {
			return errors.New("pagemap: the scan does not get on")
		}
		arg.start = arg.walkEnd
	}
	return nil
}
