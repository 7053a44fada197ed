package kernel_test

import (
	"bytes"
	"os"
	"syscall"
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
	ram    []byte
}

func (o *outsider) Kernel() *symbols.Kernel { return o.kernel }

// lastOutside is of the guest that was looked at last: to find a kernel in memory takes a tenth of a second.
var lastOutside *outsider

// outside looks at a guest that does not boot again. Its memory is mapped, as each page costs some reads.
func outside(t testing.TB, v *vm.VM) *outsider {
	t.Helper()
	if lastOutside != nil && lastOutside.of == v {
		return lastOutside
	}
	f, err := os.Open(v.RAM())
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	ram, err := syscall.Mmap(int(f.Fd()), 0, int(st.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	if lastOutside != nil {
		syscall.Munmap(lastOutside.ram)
	}
	memory := bytes.NewReader(ram)
	found, err := symbols.Find(memory, st.Size(), arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	paged, err := symbols.NewPaged(&found[0], memory)
	for len(found) > 1 && err != nil { // a copy that was not moved into its place
		found = found[1:]
		paged, err = symbols.NewPaged(&found[0], memory)
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
