//go:build linux && (amd64 || arm64 || ppc64le || riscv64 || s390x)

package ptrace

import "kprobe/target"

// The abilities that the engine asks of a process. It asks by type, so a method that lost its name
// would not be missed: here the compiler misses it.
var _ interface {
	target.Target
	target.Allocator
	target.Sharer
	target.Pooler
	target.Driver
	target.Lapser
	target.Nursery
	target.Catcher
	target.Dumper
	target.Guarded
	target.Vectors
	target.Faulter
	target.Filer
	target.Tasks

	target.Clocked
	target.Owned
	target.Locker
	target.BaseReader
	target.Borrower
	target.Ender
	target.Mortal
	target.ShadowStacked
	target.Starter
} = (*Process)(nil)
