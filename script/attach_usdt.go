package script

import (
	"slices"

	"kprobe/script/point"
)

// Attach points at static probes: usdt.

// atStatic is the probe's place in each copy of its file that is mapped. Its semaphore is raised later.
func (t *target) atStatic(pt *point.Point, module string) (all []spot, err error) {
	for _, m := range t.session.Symbols().ModulesNamed(module) {
		all = append(all, t.inFile(pt, m, pt.Static.Vaddr))
		if at := m.InProcess(pt.Static.Semaphore); pt.Static.Semaphore != 0 && !slices.Contains(t.semaphores, at) {
			t.semaphores = append(t.semaphores, at)
		}
	}
	if len(all) == 0 {
		return nil, notMapped(module)
	}
	return all, nil
}
