package main

import (
	"strings"
	"testing"

	"kprobe/internal/vm"
)

// A guest's first line promises no more than there is: kernels of ppc64le are not probed.
func TestVMPromises(t *testing.T) {
	for _, machine := range vm.Machines() {
		line := promise(vm.Config{Machine: machine, Dir: "guest"})
		if probed := strings.HasPrefix(line, "kprobe trace -k guest "); probed != (machine != "ppc64le") {
			t.Errorf("%s: %s", machine, line)
		}
	}
}
