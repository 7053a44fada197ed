package script

import (
	"fmt"

	"kprobe/script/point"
)

// Attach points at addresses of files: uprobe:PATH:ADDRESS, and lines of sources, which are addresses by now.

// atAddress is an address as symbols have it, or else a byte of the file.
func (t *target) atAddress(pt *point.Point, module string) (all []spot, err error) {
	space := t.session.Symbols()
	if len(space.ModulesNamed(module)) == 0 && t.r.pool != nil {
		return nil, notMapped(module)
	}
	for _, m := range space.ModulesNamed(module) {
		if pt.Virtual && m.File != nil && m.File.IsText(pt.Address) {
			all = append(all, t.inFile(pt, m, pt.Address))
		}
	}
	if len(all) > 0 {
		return all, nil
	}
	for _, loc := range space.AtFileOffset(module, pt.Address) {
		if m := loc.Module; m != nil && m.File != nil && m.File.IsText(m.InFile(loc.Addr)) {
			all = append(all, spot{loc: loc, text: pt.Text})
		}
	}
	if len(all) == 0 {
		return nil, sentence(fmt.Sprintf("Could not resolve address: %s:%#x", pt.Target, pt.Address))
	}
	return all, nil
}
