package image

import (
	"bytes"
	"errors"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/isa"
	"kprobe/internal/mem"
	"kprobe/internal/patch"
	"kprobe/internal/returns"
	"kprobe/symbol"
	"kprobe/target"
)

// Analyse decides whether and how the instruction at a place can be probed.
// Errors: EINVAL, EILSEQ, EBUSY, ENOTSUP.
func (im *Image) Analyse(loc symbol.Loc) (*patch.Site, error) {
	addr := loc.Addr
	if !im.executable(addr) {
		return nil, errno.New(syscall.EINVAL, "%v is not executable memory of a private mapping", addr)
	}
	if e, bad := im.Forbidden(addr); bad {
		return nil, errno.New(syscall.EINVAL, "%s must not be probed: %s", e.Symbol, e.Reason)
	}
	if t, ok := im.t.(target.Reserver); ok {
		if no, reason := t.Reserved(addr); no != 0 {
			return nil, errno.New(no, "%v must not be probed: %s", addr, reason)
		}
	}
	if err := im.checkMoved(loc); err != nil {
		return nil, err
	}
	if err := im.checkBoundary(loc); err != nil {
		return nil, err
	}
	code, err := im.code(addr)
	if err != nil {
		return nil, err
	}
	if brk := im.Arch.Break; len(code) >= len(brk) && string(code[:len(brk)]) == string(brk) {
		if own, _ := im.ownTrap(loc.Module, loc.Addr); own {
			return nil, errno.New(syscall.EINVAL, "the program has a trap of its own at %v", addr)
		}
		return nil, errno.New(syscall.EBUSY, "there is someone else's breakpoint at %v", addr)
	}
	near := addr
	if m := loc.Module; m != nil && addr-m.Start < im.ISA.Reach() {
		near = m.Start
	}
	site, err := patch.Analyse(im.ISA, code, addr, near)
	var refusal *patch.Refusal
	switch {
	case errors.Is(err, isa.ErrUnknown):
		return nil, errno.New(syscall.EILSEQ, "the bytes at %v are no instruction: % x", addr, code)
	case errors.As(err, &refusal):
		return nil, &errno.Error{Errno: syscall.EINVAL, Err: err}
	case err == nil && site.Kind == isa.InPlace && !im.inPlace:
		return nil, errno.New(syscall.ENOTSUP, "instructions of %s run where they stand only, which takes a target behind a GDB stub", im.Arch.Name)
	}
	return site, err
}

// IsEntry tells whether a place is a function's entry.
func (im *Image) IsEntry(loc symbol.Loc) bool { return returns.IsEntry(loc, im.ISA, im.code) }

// executable tells whether code can be probed at an address.
func (im *Image) executable(addr arch.Addr) bool {
	m := symbol.MappingAt(im.maps, addr)
	return m != nil && m.Exec && !m.Shared
}

// code reads the bytes of the instruction at addr, fewer where the mapping ends.
func (im *Image) code(addr arch.Addr) ([]byte, error) {
	b := make([]byte, im.Arch.MaxInsn)
	err := im.Text(addr, b)
	if err != nil {
		b = b[:min(len(b), int(mem.LeastPage-uint64(addr)%mem.LeastPage))]
		err = im.Text(addr, b)
	}
	if err != nil {
		return nil, &errno.Error{Errno: syscall.EINVAL, Err: err}
	}
	return b, nil
}

// checkBoundary decodes from the function's start to the place: nothing else
// tells where instructions begin on a machine with variable lengths.
func (im *Image) checkBoundary(loc symbol.Loc) error {
	start, addr := loc.Start(), loc.Addr
	if loc.Off == 0 {
		return nil
	}
	if loc.Func.Size == 0 {
		return errno.New(syscall.EILSEQ, "no function is known at %v, so it cannot be told where its instructions begin", addr)
	}
	if im.decoded == nil || im.decoded.Start != start {
		code := make([]byte, loc.Func.Size)
		if err := im.Text(start, code); err != nil {
			return &errno.Error{Errno: syscall.EINVAL, Err: err}
		}
		im.decoded = patch.FindBounds(im.ISA, start, code, im.Arch.Break, func(at arch.Addr) bool {
			own, known := im.ownTrap(loc.Module, at)
			return known && !own
		})
	}
	switch b := im.decoded; {
	case b.Tries(addr):
		return errno.New(syscall.EINVAL, "%v is between a load and a store exclusive: with a probe there, the store would fail for ever", addr)
	case b.Executed(addr):
		return errno.New(syscall.EINVAL, "another instruction carries out the one at %v where it stands itself", addr)
	case b.Delayed(addr):
		return errno.New(syscall.EINVAL, "%v is in the delay slot of a jump, which is under way there", addr)
	case b.Has(addr):
		return nil
	case b.Failed == 0 || addr <= b.Failed:
		return errno.New(syscall.EILSEQ, "%s is not the start of an instruction", loc)
	case b.Hidden:
		return errno.New(syscall.EBUSY, "someone else's breakpoint at %v hides where the instructions behind it begin", b.Failed)
	default:
		return errno.New(syscall.EILSEQ, "the bytes at %v, on the way from the function's start, are no instruction", b.Failed)
	}
}

// ownTrap tells a trap that the text has of its own from a breakpoint that was put there.
// The file has something else in a breakpoint's place. Of text that others rewrite, as a kernel's,
// the target knows it (target.Reserver).
func (im *Image) ownTrap(m *symbol.Module, addr arch.Addr) (own, known bool) {
	if t, ok := im.t.(target.Reserver); ok {
		return t.OwnTrap(addr), true
	}
	b, known := im.fileBytes(m, addr)
	return known && bytes.Equal(b, im.Arch.Break), known
}

// fileBytes reads as much as a breakpoint takes from the file that is mapped at
// an address; false where there is none, or it cannot be read.
func (im *Image) fileBytes(m *symbol.Module, addr arch.Addr) ([]byte, bool) {
	if m == nil || m.File == nil || m.Special {
		return nil, false
	}
	b, err := m.File.Bytes(m.InFile(addr), uint64(len(im.Arch.Break)))
	return b, err == nil
}

// checkMoved refuses a function whose module has other memory there than its file, unless
// it is the same code: programs copy their text to huge pages. Names say nothing of
// other code.
func (im *Image) checkMoved(loc symbol.Loc) error {
	if loc.Module == nil || loc.Module.File == nil || loc.Module.Special || loc.Size == 0 {
		return nil
	}
	if m := symbol.MappingAt(im.maps, loc.Addr); m == nil || loc.Module.Loaded(m) {
		return nil
	}
	there := make([]byte, loc.Size)
	file, err := loc.Module.File.Bytes(loc.Func.Addr, loc.Size)
	if err == nil {
		err = im.Text(loc.Start(), there)
	}
	if err != nil || !bytes.Equal(file, there) {
		return errno.New(syscall.EINVAL, "the memory at %v is not of %s any more, and has other code than that", loc.Addr, loc.Module.Name)
	}
	return nil
}
