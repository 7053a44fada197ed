package samples

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"kprobe/internal/proc"
)

// Sampler takes samples of one event.
type Sampler struct {
	pid   int
	of    *registers
	fds   []int
	rings []ring
	lost  uint64
	flat  []byte // a record that goes over a ring's end, in one piece
}

// ring is the memory that the kernel writes samples of one processor to.
type ring struct {
	mem  []byte
	page *unix.PerfEventMmapPage
	data []byte
}

const (
	ringPages = 64      // a power of two; an ordinary user may have some 512 KiB a processor
	stackSize = 8 << 10 // of each sample
)

// Open begins to take samples of a process's threads: of those that it has now, and those that they
// start. machine is the program's, by the name that package arch has for it. Errors: EACCES where
// the kernel lets this user have none, ENOENT where the machine has no such event, ENOTSUP where
// registers are not known.
func Open(pid int, machine string, e Event) (s *Sampler, err error) {
	of := machines[machine]
	if of == nil {
		return nil, fmt.Errorf("of a program of %s samples are not taken: %w", machine, unix.ENOTSUP)
	}
	tids, err := proc.Process(pid).Threads()
	if err != nil {
		return nil, err
	}
	cpus, err := online()
	if err != nil {
		return nil, err
	}
	s = &Sampler{pid: pid, of: of}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	attr := unix.PerfEventAttr{Type: e.Type, Config: e.Config, Sample: e.Period, Wakeup: 1 << 30, Clockid: unix.CLOCK_MONOTONIC,
		Sample_type:      unix.PERF_SAMPLE_TID | unix.PERF_SAMPLE_TIME | unix.PERF_SAMPLE_CPU | unix.PERF_SAMPLE_REGS_USER | unix.PERF_SAMPLE_STACK_USER,
		Sample_regs_user: of.mask, Sample_stack_user: stackSize,
		Bits: unix.PerfBitInherit | unix.PerfBitExcludeHv | unix.PerfBitUseClockID}
	attr.Size = uint32(unsafe.Sizeof(attr))
	for _, cpu := range cpus {
		first := -1
		for _, tid := range tids {
			fd, err := unix.PerfEventOpen(&attr, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
			if errors.Is(err, unix.EACCES) && attr.Bits&unix.PerfBitExcludeKernel == 0 {
				attr.Bits |= unix.PerfBitExcludeKernel // which an ordinary user may not count
				fd, err = unix.PerfEventOpen(&attr, tid, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
			}
			if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENODEV) {
				continue // the thread, or the processor, is gone
			}
			if err != nil {
				return nil, refusal(err)
			}
			s.fds = append(s.fds, fd)
			if first >= 0 {
				err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_OUTPUT, first)
			} else if first = fd; err == nil {
				err = s.mapRing(fd)
			}
			if err != nil {
				return nil, err
			}
		}
	}
	if len(s.rings) == 0 {
		return nil, unix.ESRCH
	}
	return s, nil
}

// refusal adds a remedy to the kernel's answer.
func refusal(err error) error {
	switch {
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("the kernel lets this user take no samples (kernel.perf_event_paranoid): %w", err)
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("this machine counts no such event: %w", err)
	}
	return err
}

func (s *Sampler) mapRing(fd int) error {
	page := os.Getpagesize()
	mem, err := unix.Mmap(fd, 0, (1+ringPages)*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("memory for samples (kernel.perf_event_mlock_kb): %w", err)
	}
	s.rings = append(s.rings, ring{mem, (*unix.PerfEventMmapPage)(unsafe.Pointer(unsafe.SliceData(mem))), mem[page:]})
	return nil
}

// online are the numbers of the processors.
func online() (all []int, err error) {
	text, err := os.ReadFile("/sys/devices/system/cpu/online")
	if err != nil {
		return nil, err
	}
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), ",") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if err == nil && isRange {
			b, err = strconv.Atoi(to)
		}
		if err != nil {
			return nil, fmt.Errorf("processors %q: %w", text, err)
		}
		for ; a <= b; a++ {
			all = append(all, a)
		}
	}
	return all, nil
}

// Read gives the samples since the last time, processor by processor. A sample is good until use
// returns.
func (s *Sampler) Read(use func(*Sample) error) error {
	one := Sample{of: s.of}
	for _, r := range s.rings {
		head, tail := atomic.LoadUint64(&r.page.Data_head), r.page.Data_tail
		for tail < head {
			header := s.bytes(r, tail, 8)
			kind, size := binary.LittleEndian.Uint32(header), uint64(binary.LittleEndian.Uint16(header[6:]))
			if size < 8 {
				break
			}
			body := s.bytes(r, tail, size)[8:]
			switch {
			case kind == unix.PERF_RECORD_LOST && len(body) >= 16:
				s.lost += binary.LittleEndian.Uint64(body[8:])
			case kind == unix.PERF_RECORD_SAMPLE && parse(body, &one) && one.PID == s.pid: // children are counted with their parents
				if err := use(&one); err != nil {
					return err
				}
			}
			tail += size
		}
		atomic.StoreUint64(&r.page.Data_tail, tail)
	}
	return nil
}

// bytes are some of a ring, in one piece.
func (s *Sampler) bytes(r ring, at, n uint64) []byte {
	from := at % uint64(len(r.data))
	if from+n <= uint64(len(r.data)) {
		return r.data[from : from+n]
	}
	s.flat = append(append(s.flat[:0], r.data[from:]...), r.data[:from+n-uint64(len(r.data))]...)
	return s.flat
}

// Lost is the number of samples that found no room so far.
func (s *Sampler) Lost() uint64 { return s.lost }

// Close ends it.
func (s *Sampler) Close() {
	for _, r := range s.rings {
		_ = unix.Munmap(r.mem) // it is ours
	}
	for _, fd := range s.fds {
		_ = unix.Close(fd) // nothing was written
	}
	s.rings, s.fds = nil, nil
}
