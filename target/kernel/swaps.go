package kernel

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"kprobe/arch"
	"kprobe/internal/lifeline"
	"kprobe/target"
)

// swaps are the notes that the next controller needs if we are killed. The stub
// keeps our breakpoints, and they are found there; but a return address that was
// swapped for a trampoline's is nowhere else. A file holds them, with a line for
// each swap; it is gone when all is put back.
//
//	PID START BOOT         the controller, 0 if it has let go; the boot that it probes (boot.go)
//	SLOT REAL TRAMPOLINE   hexadecimal
type swaps struct {
	path string
	boot boot
	file *os.File
	real map[arch.Addr]swap // by slot, the last one
	rows int
}

type swap struct{ real, trampoline arch.Addr }

// machineFile is a file of ours about the machine at an address.
func machineFile(address, what string) (string, error) {
	dir, err := lifeline.MakeDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, fmt.Sprintf("%.12x.%s", sha256.Sum256([]byte(Place(address))), what)), nil
}

// Place is a stub's address as a controller in another folder would give it.
func Place(address string) string {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		if abs, err := filepath.Abs(path); err == nil {
			return "unix:" + abs
		}
	}
	return address
}

// noteSwap notes a write that is about to be made, if it is of a trampoline's address.
func (t *Target) noteSwap(addr arch.Addr, p []byte) error {
	if len(p) != t.Arch().PtrSize {
		return nil
	}
	if to := arch.Addr(t.Arch().Order.Uint64(p)); t.padding[to] {
		return t.swaps.note(addr, t.pointer(addr), to)
	}
	return nil
}

// note writes down one swap.
func (s *swaps) note(slot, real, trampoline arch.Addr) error {
	if s.path == "" {
		return errors.New("there is no folder for notes on what has to be put back")
	}
	const slack = 4096
	if s.file == nil || s.rows > slack && s.rows > 4*len(s.real) {
		if err := s.renew(os.Getpid()); err != nil {
			return err
		}
	}
	s.real[slot] = swap{real, trampoline}
	s.rows++
	_, err := fmt.Fprintf(s.file, "%x %x %x\n", uint64(slot), uint64(real), uint64(trampoline))
	return err
}

// renew writes the file anew, as a process's, with the last swap of each slot.
func (s *swaps) renew(pid int) error {
	if s.real == nil {
		s.real = make(map[arch.Addr]swap)
	}
	f, err := os.OpenFile(s.path+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	fmt.Fprintf(w, "%d %d %x\n", pid, lifeline.StartTime(pid), s.boot)
	for slot, sw := range s.real {
		fmt.Fprintf(w, "%x %x %x\n", uint64(slot), uint64(sw.real), uint64(sw.trampoline))
	}
	if err := errors.Join(w.Flush(), os.Rename(s.path+".new", s.path)); err != nil {
		f.Close()
		return err
	}
	if s.file != nil {
		s.file.Close()
	}
	s.file, s.rows = f, len(s.real)
	return nil
}

// end takes the file away: everything is back.
func (s *swaps) end() error {
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.file.Close(), os.Remove(s.path))
	s.file = nil
	return err
}

// leave keeps the file for the next one: we cannot put anything back any more.
func (s *swaps) leave() error {
	if s.file == nil {
		return nil
	}
	err := errors.Join(s.renew(0), s.file.Close())
	s.file = nil
	return err
}

// swapBack restores the return addresses that a controller left which is no more. The machine
// stands, and has no breakpoints.
func (t *Target) swapBack() error {
	f, err := os.Open(t.swaps.path)
	if err != nil {
		return nil // nothing was left
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	var pid int
	var start uint64
	if !lines.Scan() {
		return os.Remove(t.swaps.path)
	}
	var of string
	if _, err := fmt.Sscanf(lines.Text(), "%d %d %s", &pid, &start, &of); err == nil && start != 0 && lifeline.StartTime(pid) == start {
		return fmt.Errorf("process %d probes it", pid)
	}
	if of != fmt.Sprintf("%x", t.boot) {
		return os.Remove(t.swaps.path) // a reset took them all
	}
	all := make(map[arch.Addr]swap)
	for lines.Scan() {
		var slot, real, trampoline uint64
		if _, err := fmt.Sscanf(lines.Text(), "%x %x %x", &slot, &real, &trampoline); err == nil { // its last line may be half a one
			all[arch.Addr(slot)] = swap{arch.Addr(real), arch.Addr(trampoline)}
		}
	}
	if err := t.mend(all); err != nil {
		return err
	}
	return os.Remove(t.swaps.path)
}

// mend puts swaps back. While the kernel may be on its way with an address it is let run a little;
// a task that comes to a trampoline meanwhile stops there.
func (t *Target) mend(all map[arch.Addr]swap) (err error) {
	for _, sw := range all {
		if err := t.Target.SetBreak(sw.trampoline); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, t.Target.ClearBreak(sw.trampoline)) }()
	}
	var failed error
	err = t.settle(func() bool {
		failed = t.mendWhatIsThere(all)
		return failed != nil || len(all) == 0 || !t.Carried()
	})
	return errors.Join(failed, err)
}

// mendWhatIsThere puts back the swaps that are found, and takes them from all. The others have
// returned long ago, or are carried.
func (t *Target) mendWhatIsThere(all map[arch.Addr]swap) error {
	for _, cpu := range t.Threads() {
		var r arch.Regs
		if err := t.Regs(cpu, &r); err != nil {
			return err
		}
		// Just returned to it; the slot is the word that was popped.
		slot := r.Addr(t.Arch().SP) - arch.Addr(t.Arch().PtrSize)
		if sw, ok := all[slot]; ok && r[t.Arch().PC] == uint64(sw.trampoline) {
			r[t.Arch().PC] = uint64(sw.real)
			if err := t.SetRegs(cpu, &r); err != nil {
				return err
			}
			delete(all, slot)
		}
	}
	word := make([]byte, t.Arch().PtrSize)
	for slot, sw := range all {
		at := []arch.Addr{slot}
		if t.pointer(slot) != sw.trampoline {
			at = t.Kept(slot, sw.trampoline)
		}
		if len(at) > 0 {
			t.Arch().Order.PutUint64(word, uint64(sw.real))
			if err := t.Target.WriteAt(at[0], word); err != nil {
				return err
			}
			delete(all, slot)
		}
	}
	return nil
}

var _ target.Keeper = (*Target)(nil)
