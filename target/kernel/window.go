package kernel

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"kprobe/arch"
	"kprobe/target"
)

// window is memory for code and data of ours that the kernel knows nothing of: that
// of an ivshmem device, which is a file here. Two or more entries in the kernel's
// page tables, where the kernel has none and will never have, put it next to the
// kernel's code, in every address space.
type window struct {
	file    *os.File
	mem     []byte     // all of it
	at      arch.Range // in the kernel
	entries arch.Addr  // of the page tables
	first   uint64     // of these
	taken   []piece
	journal journal
}

// piece is a part of it that was asked for.
type piece struct {
	arch.Range
	shared bool // we have another mapping of it
}

// The entries of the kernel's page tables that map the top 2 GiB, as far as it is the
// kernel's image that may be there (Linux: level2_kernel_pgt, KERNEL_IMAGE_SIZE).
const (
	imageTable   = "level2_kernel_pgt"
	imageStart   = arch.Addr(0xffff_ffff_8000_0000)
	imageEntries = 512
	entrySize    = 2 << 20

	// present, writable, accessed, dirty, large; executable, and not global: a CPU forgets it with
	// the next switch of its page tables.
	entryFlags = 1<<0 | 1<<1 | 1<<5 | 1<<6 | 1<<7

	// watermark is the number of bytes at the window's end that mark it as ours, for a moment.
	watermark = 16
)

// openWindow takes the file that an ivshmem device shows to the guest; of none, there is no window.
func openWindow(path string) (*window, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w := &window{file: f}
	size := st.Size()
	if size == 0 || size%entrySize != 0 || size > imageEntries/2*entrySize {
		err = fmt.Errorf("%s has %d bytes, not a few times 2 MiB", path, size)
	} else {
		w.mem, err = w.mmap(0, int(size))
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	w.journal.b = w.mem[len(w.mem)-journalSize:]
	return w, nil
}

func (w *window) mmap(off int64, size int) ([]byte, error) {
	b, err := unix.Mmap(int(w.file.Fd()), off, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	return b, os.NewSyscallError("mmap", err)
}

var errNoWindow = errors.New("the guest has no memory for code of ours: it needs an ivshmem-plain device, as kprobe vm has it, and we its file")

// windowless says why no code of ours can be in the guest. No device is asked for where none would
// help.
func (t *Target) windowless() error {
	switch {
	case !t.on().Inside:
		return fmt.Errorf("code of ours in kernels is not made for %s yet", t.Arch().Name)
	case t.window == nil:
		return errNoWindow
	}
	return nil
}

// Window maps it.
func (t *Target) Window() (start, end arch.Addr, err error) {
	if err := t.windowless(); err != nil {
		return 0, 0, err
	}
	if w := t.window; w.at.Start == 0 {
		// Memory that could not be taken out again is not put in.
		if _, err := t.findStacks(); err != nil {
			return 0, 0, err
		}
		if err := t.mapWindow(); err != nil {
			return 0, 0, err
		}
	}
	at := t.window.at
	return at.Start, at.End - journalSize - askSize, nil
}

func (t *Target) mapWindow() error {
	w := t.window
	table, ok := t.kernel.Table().Addr(imageTable)
	if !ok {
		return errors.New("the kernel's page tables are not where they were expected: no " + imageTable)
	}
	have := make([]byte, 8*imageEntries)
	if err := t.Target.ReadAt(table, have); err != nil {
		return err
	}
	n := len(w.mem) / entrySize
	first := freeEntries(have, n)
	if first < 0 {
		return fmt.Errorf("no %d MiB are free beside the kernel's image", len(w.mem)>>20)
	}
	places, err := t.devices(len(w.mem))
	if err != nil {
		return err
	}
	mark := w.mem[len(w.mem)-watermark:]
	for _, physical := range places {
		var entries []byte
		for i := range n {
			entries = binary.LittleEndian.AppendUint64(entries, physical+uint64(i*entrySize)|entryFlags)
		}
		at := table + arch.Addr(8*first)
		w.first = binary.LittleEndian.Uint64(entries)
		w.journal.begin(t.boot, at, w.first, n)
		rand.Read(mark)
		if err := t.Target.WriteAt(at, entries); err != nil {
			return err
		}
		start := imageStart + arch.Addr(first*entrySize)
		seen := make([]byte, watermark)
		err := t.Target.ReadAt(start+arch.Addr(len(w.mem)-watermark), seen)
		same := err == nil && bytes.Equal(seen, mark)
		clear(mark)
		if same {
			w.at, w.entries = arch.Range{Start: start, End: start + arch.Addr(len(w.mem))}, at
			return t.watchRewriters()
		}
		if err := t.Target.WriteAt(at, make([]byte, len(entries))); err != nil {
			return err
		}
		clear(w.journal.b)
	}
	return errors.New("the file is not the memory of a device that this guest has")
}

// freeEntries finds the highest run of n entries that map nothing, -1 for none.
func freeEntries(table []byte, n int) int {
	run := 0
	for i := len(table)/8 - 1; i >= 0; i-- {
		if run++; binary.LittleEndian.Uint64(table[8*i:]) != 0 {
			run = 0
		}
		if run == n {
			return i
		}
	}
	return -1
}

// memoryLine is one of QEMU's about a piece of the guest's physical memory.
var memoryLine = regexp.MustCompile(`(?m)^\s*([0-9a-f]{16})-([0-9a-f]{16}) \(prio \d+, ram\)`)

// devices are the places where the guest has memory of a size; one of them is the device's.
func (t *Target) devices(size int) (places []uint64, err error) {
	list, err := t.Monitor("info mtree -f")
	if err != nil {
		return nil, fmt.Errorf("QEMU does not say what memory the guest has: %w", err)
	}
	for _, m := range memoryLine.FindAllStringSubmatch(list, -1) {
		start, err1 := strconv.ParseUint(m[1], 16, 64)
		last, err2 := strconv.ParseUint(m[2], 16, 64)
		if err1 == nil && err2 == nil && last-start+1 == uint64(size) && start%entrySize == 0 && !slices.Contains(places, start) {
			places = append(places, start)
		}
	}
	if len(places) == 0 {
		return nil, fmt.Errorf("the guest has no device with %d MiB of memory", size>>20)
	}
	return places, nil
}

// PageSize is x86-64's: only its kernels have windows.
func (t *Target) PageSize() int { return 4096 }

// Alloc gives a piece of the window, zeros. Errors: EEXIST.
func (t *Target) Alloc(addr arch.Addr, size int) error {
	w := t.window
	r := arch.Range{Start: addr, End: addr + arch.Addr(size)}
	if w == nil || r.Start < w.at.Start || r.End > w.at.End || size <= 0 {
		return syscall.ENOMEM
	}
	if slices.ContainsFunc(w.taken, func(o piece) bool { return o.Start < r.End && r.Start < o.End }) {
		return syscall.EEXIST
	}
	w.taken = append(w.taken, piece{Range: r})
	clear(w.bytes(r))
	return nil
}

func (w *window) bytes(r arch.Range) []byte {
	return w.mem[r.Start-w.at.Start : r.End-w.at.Start]
}

// Free takes it back. Code becomes zeros; memory that was shared stays readable for us until it is
// given out again.
func (t *Target) Free(addr arch.Addr, size int) error {
	w := t.window
	r := arch.Range{Start: addr, End: addr + arch.Addr(size)}
	i := slices.IndexFunc(w.taken, func(p piece) bool { return p.Range == r })
	if i < 0 {
		return syscall.EINVAL
	}
	if !w.taken[i].shared {
		clear(w.bytes(r))
	}
	w.taken = slices.Delete(w.taken, i, i+1)
	return nil
}

// Share is Alloc of memory that we have too.
func (t *Target) Share(addr arch.Addr, size int) ([]byte, error) {
	if err := t.Alloc(addr, size); err != nil {
		return nil, err
	}
	ours, err := t.window.mmap(int64(addr-t.window.at.Start), size)
	if err != nil {
		return nil, errors.Join(err, t.Free(addr, size))
	}
	t.window.taken[len(t.window.taken)-1].shared = true
	return ours, nil
}

// Reshare: no kernel executes another one under our eyes.
func (t *Target) Reshare(arch.Addr, []byte) error { return syscall.ENOTSUP }

// Unshare gives up our side of a Share.
func (t *Target) Unshare(ours []byte) error { return os.NewSyscallError("munmap", unix.Munmap(ours)) }

// closeWindow takes it out of the kernel's page tables. A piece that is still in use stays, and
// that is an error.
func (t *Target) closeWindow() (err error) {
	w := t.window
	if w == nil || w.file == nil {
		return nil
	}
	if n := len(w.mem) / entrySize; w.at.Start != 0 && t.mapsWindow(w.entries, w.first, n) {
		if a := t.asks.want.Load(); a != nil {
			err = t.endAsk(a)
		}
		if t.asks.made.Load() {
			err = errors.Join(err, t.settle(func() bool { return t.nobodyIn(askCode(t.askPage()).Contains) }))
		}
		if err != nil {
			return errors.Join(err, w.file.Close())
		}
		if len(w.taken) > 0 || len(w.journal.records) > 0 {
			err = errors.New("the kernel is still in code of ours, which therefore stays in its memory: the next session takes it out")
		} else if err = t.Target.WriteAt(w.entries, make([]byte, 8*n)); err == nil {
			clear(w.journal.b)
		}
	}
	err = errors.Join(err, w.file.Close())
	w.file = nil
	if errors.Is(err, target.ErrGone) {
		err = nil
	}
	return err
}
