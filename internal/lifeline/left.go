package lifeline

import (
	"bytes"

	"kprobe/arch"
)

// A recovery may have to leave a session's code mapped, for a thread that may come back to it. The
// next controller can give that back, so the code's places are noted in the memory of the session's
// Trap, in that table of swapped return addresses which is not in use:
//
//	leftMagic, how many, and the start and end of each
const (
	leftMagic = "KPROBE\x00L"
	leftMost  = 256
)

// Left plans the note on a session's code, for the session whose Trap is at base and that will be
// Over. Ranges beyond leftMost are left out.
func (f *Found) Left(a *arch.Arch, base arch.Addr, code []arch.Range) Write {
	code = code[:min(len(code), leftMost)]
	b := append([]byte(leftMagic), words(a, uint64(len(code)))...)
	for _, r := range code {
		b = append(b, words(a, uint64(r.Start), uint64(r.End))...)
	}
	return Write{otherTable(base, f.framesAt), b}
}

// otherTable is the address of the table that is not at table.
func otherTable(base, table arch.Addr) arch.Addr {
	if at := base + tablesAt; table != at {
		return at
	}
	return base + tablesAt + tableSize
}

// ReadLeft reads the note back of a Trap that may be at base; nil where there is none, or no
// recovered session's.
func ReadLeft(a *arch.Arch, base arch.Addr, read func(arch.Addr, []byte) error) (code []arch.Range) {
	head := make([]byte, headerSize)
	if read(base, head) != nil || string(head[:offID]) != Magic || a.Order.Uint64(head[offID:]) != 0 {
		return nil
	}
	at := otherTable(base, arch.Addr(a.Order.Uint64(head[offFrames:])))
	note := make([]byte, len(leftMagic)+8)
	if read(at, note) != nil || !bytes.HasPrefix(note, []byte(leftMagic)) {
		return nil
	}
	n := a.Order.Uint64(note[len(leftMagic):])
	if n > leftMost {
		return nil
	}
	list := make([]byte, n*16)
	if len(list) > 0 && read(at+arch.Addr(len(note)), list) != nil {
		return nil
	}
	for ; len(list) > 0; list = list[16:] {
		code = append(code, arch.Range{Start: arch.Addr(a.Order.Uint64(list)), End: arch.Addr(a.Order.Uint64(list[8:]))})
	}
	return code
}
