package script

import (
	"errors"
	"os"

	"github.com/cilium/ebpf/btf"

	"kprobe/script/debug"
	"kprobe/script/point"
	"kprobe/script/types"
)

// kernelTypes are a kernel's, read when they are asked for first: point.KernelTypes.
type kernelTypes struct {
	spec *btf.Spec // nil: of a file
	file string    // "": the one that the system's kernel shows
	read *debug.Kernel
	err  error
}

// systemTypes is where Linux shows the types of the kernel that runs.
const systemTypes = "/sys/kernel/btf/vmlinux"

func (k *kernelTypes) known() (*debug.Kernel, error) {
	if k.read == nil && k.err == nil {
		if k.spec == nil {
			k.spec, k.err = k.load()
		}
		if k.err == nil {
			k.read = debug.OfKernel(k.spec)
		}
	}
	return k.read, k.err
}

func (k *kernelTypes) load() (*btf.Spec, error) {
	name := k.file
	if name == "" {
		name = systemTypes
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, errors.New("the kernel's types are not known (BPFTRACE_BTF names a file of them)")
	}
	defer file.Close()
	return btf.LoadSpecFromReader(file)
}

func (k *kernelTypes) Functions(target string, name point.Name) ([]point.Function, error) {
	read, err := k.known()
	if err != nil {
		return nil, err
	}
	return read.Functions(target, name)
}

func (k *kernelTypes) Type(target, name string) *types.Type {
	read, err := k.known()
	if err != nil {
		return nil
	}
	return read.Type(target, name)
}

func (k *kernelTypes) Complete(t *types.Type) {
	if k.read != nil { // else none of its types was given out
		k.read.Complete(t)
	}
}

func (k *kernelTypes) Constant(target, name string) (uint64, *types.Type, bool) {
	read, err := k.known()
	if err != nil {
		return 0, nil, false
	}
	return read.Constant(target, name)
}
