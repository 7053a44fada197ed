package image

import (
	"cmp"
	"slices"
	"syscall"

	"kprobe/arch"
	"kprobe/internal/errno"
	"kprobe/internal/untouchable"
	"kprobe/target"
)

// Forbid finds the places that must not be probed, and adds some more. Some sorts are left out here
// and looked for at each address anew. Errors: EIO.
func (im *Image) Forbid(more []arch.Blocked) error {
	var all []arch.Blocked
	if t, ok := im.t.(target.Blacklister); ok {
		areas, err := t.BlackList()
		if err != nil {
			return &errno.Error{Errno: syscall.EIO, Reason: "where it must not be probed cannot be told", Err: err}
		}
		all = append(all, areas...)
	}
	for _, m := range im.Space.Modules() {
		if m.Special {
			all = append(all, arch.Blocked{Start: m.Start, End: m.End, Symbol: m.Name, Reason: "it belongs to the kernel"})
		}
		if m.File == nil {
			continue
		}
		for _, r := range m.File.RseqAreas() {
			all = append(all, untouchable.Restartable(im.Text, im.Arch.Order, m.InProcess(r.Start), m.InProcess(r.End), m.Name)...)
		}
	}
	all = append(all, more...)
	im.forbidden.Store(&all)
	return nil
}

// Forbidden tells whether and why an address must not be probed.
func (im *Image) Forbidden(addr arch.Addr) (arch.Blocked, bool) {
	if p := im.forbidden.Load(); p != nil {
		for _, a := range *p {
			if a.Contains(addr) {
				return a, true
			}
		}
	}
	return im.Machine.Sigreturns.At(im.Arch, im.Text, addr)
}

// AllForbidden lists the ranges that must not be probed, in order of address. The whole text is
// searched for signal trampolines.
func (im *Image) AllForbidden() ([]arch.Blocked, error) {
	all := slices.Clone(*im.forbidden.Load())
	maps, err := im.t.Maps()
	if err != nil {
		return nil, err
	}
	for _, m := range maps {
		if !m.Exec || m.Path == "" || m.Path[0] == '[' {
			continue
		}
		text := make([]byte, m.End-m.Start)
		if im.own.ReadAt(m.Start, text) == nil {
			all = append(all, im.Machine.Sigreturns.Find(text, m.Start)...)
		}
	}
	slices.SortFunc(all, func(a, b arch.Blocked) int { return cmp.Compare(a.Start, b.Start) })
	return all, nil
}
