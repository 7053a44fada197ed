//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import (
	"slices"

	"kprobe/arch"
	"kprobe/internal/leftover"
	"kprobe/internal/lifeline"
)

// A controller that is killed leaves code of ours in the process: the lifeline, slots, detours and
// their routines. The recovery gives that back where no thread can come to it any more, and else
// leaves a note (lifeline.Left) for the next controller.

// codeOf are the mappings with code of a dead session's, whose jumps stand in the text still. The
// process is frozen.
func (p *Process) codeOf(j *lifeline.Journal, found *lifeline.Found) (code []arch.Range) {
	places := found.Places(j.Base)
	for _, e := range found.Entries {
		const most = 12 // bytes of a jump, with those that may stand before it
		have := make([]byte, most)
		if e.Len == 0 || p.ReadAt(e.Addr, have) != nil {
			continue
		}
		if to, ok := p.abi().Lifeline.JumpsTo(e.Addr, have); ok {
			places = append(places, to)
		}
	}
	maps, err := p.Maps()
	if err != nil {
		return nil
	}
	slices.Sort(places)
	for _, m := range maps {
		r := m.Range()
		if i, _ := slices.BinarySearch(places, r.Start); leftover.IsCode(m) && i < len(places) && places[i] < r.End {
			code = append(code, r)
		}
	}
	return code
}

// GiveBackLeft implements target.Heir.
func (p *Process) GiveBackLeft() {
	maps, err := p.Maps()
	if err != nil {
		return
	}
	var all [][]arch.Range // of each controller
	for _, m := range maps {
		if !leftover.IsCode(m) {
			continue
		}
		if code := lifeline.ReadLeft(p.arch, m.Start, p.ReadAt); len(code) > 0 {
			all = append(all, code)
		}
	}
	if len(all) > 0 {
		p.Together(func() error { return leftover.FreeCode(p, all, p.fresh) }) // the rest is for the next session
	}
}
