//go:build linux

package guardian

import "debug/elf"

var (
	Needed   = needed
	InitName = initName
)

// Packages lists the packages that this program initialises.
func Packages() (all []string, err error) {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	tasks, err := tasksOf(f)
	for _, t := range tasks {
		all = append(all, t.pkg)
	}
	return all, err
}
