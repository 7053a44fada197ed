package proc_test

import (
	"errors"
	"os"
	"slices"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/proc"
)

// TestPresent holds that both ways to look see the same pages: those that were written, of which
// some are a file's still.
func TestPresent(t *testing.T) {
	page := uint64(os.Getpagesize())
	pages, err := proc.Process(os.Getpid()).Open("pagemap")
	if err != nil {
		t.Fatal(err)
	}
	defer pages.Close()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	for name, tt := range map[string]struct {
		fd, flags int
		size      uint64
		read      []uint64 // pages
		written   []uint64
	}{
		"anonymous": {-1, unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_NORESERVE, 1 << 30, nil, []uint64{0, 1, 2, 700, 70000, 1<<30/page - 1}},
		"shared":    {-1, unix.MAP_SHARED | unix.MAP_ANONYMOUS, 1 << 26, nil, []uint64{3, 5, 511, 512}},
		"a file's":  {int(self.Fd()), unix.MAP_PRIVATE, 16 * page, []uint64{2, 3, 4}, []uint64{3, 9}},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := unix.Mmap(tt.fd, 0, int(tt.size), unix.PROT_READ|unix.PROT_WRITE, tt.flags)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Munmap(b)
			unix.Madvise(b, unix.MADV_NOHUGEPAGE)
			sum := byte(0)
			for _, n := range tt.read {
				sum += b[n*page]
			}
			for _, n := range tt.written {
				b[n*page] = sum | 1
			}
			start := uint64(uintptr(unsafe.Pointer(&b[0])))
			end := start + tt.size
			for _, own := range []bool{false, true} {
				gather := func(by func(*os.File, uint64, uint64, bool, func(from, to uint64) error) error) (found []uint64, err error) {
					err = by(pages, start, end, own, func(from, to uint64) error {
						for a := from; a < to; a += page {
							found = append(found, (a-start)/page)
						}
						return nil
					})
					return found, err
				}
				looked, err := gather(proc.Look)
				if err != nil {
					t.Fatal(err)
				}
				want := tt.written
				if own && name == "shared" {
					want = nil
				}
				if own && !slices.Equal(looked, want) || !own && !contains(looked, want) {
					t.Errorf("own %v: %v, want %v", own, looked, want)
				}
				scanned, err := gather(proc.Scan)
				if errors.Is(err, errors.ErrUnsupported) {
					continue // before Linux 6.7: it is looked page by page there
				}
				if err != nil || !slices.Equal(scanned, looked) {
					t.Errorf("own %v: %v, %v; page by page %v", own, scanned, err, looked)
				}
			}
		})
	}
}

func contains(all, some []uint64) bool {
	return !slices.ContainsFunc(some, func(n uint64) bool { return !slices.Contains(all, n) })
}
