package kernel_test

import (
	"os"
	"testing"

	"kprobe/arch"
	"kprobe/internal/vm"
	symbols "kprobe/symbol/kernel"
)

// outsider reads a guest's kernel in the file that is its memory, with no help of the stub.
type outsider struct {
	*symbols.Paged
	kernel *symbols.Kernel
	of     *vm.VM
	ram    *os.File
}

func (o *outsider) Kernel() *symbols.Kernel { return o.kernel }

// lastOutside is of the guest that was looked at last: to find a kernel in memory takes a tenth of a second.
var lastOutside *outsider

// outside looks at a guest that does not boot again.
func outside(t testing.TB, v *vm.VM) *outsider {
	t.Helper()
	if lastOutside != nil && lastOutside.of == v {
		return lastOutside
	}
	ram, err := os.Open(v.RAM())
	if err != nil {
		t.Fatal(err)
	}
	if lastOutside != nil {
		lastOutside.ram.Close()
	}
	st, err := ram.Stat()
	if err != nil {
		t.Fatal(err)
	}
	found, err := symbols.Find(ram, st.Size(), arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	paged, err := symbols.NewPaged(&found[0], ram)
	for len(found) > 1 && err != nil { // a copy that was not moved into its place
		found = found[1:]
		paged, err = symbols.NewPaged(&found[0], ram)
	}
	if err != nil {
		t.Fatal(err)
	}
	k, err := symbols.Open(found[0].Table, paged, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	lastOutside = &outsider{paged, k, v, ram}
	return lastOutside
}
