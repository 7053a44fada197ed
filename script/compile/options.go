// Package compile makes eBPF programs of a script: it expands what is written short,
// finds the types of variables and maps, refuses what has no sense, and generates code.
// What comes out is a plan.Plan. Nothing here touches a target.
package compile

import (
	"kprobe/script/headers"
	"kprobe/script/imports"
	"kprobe/script/machine"
	"kprobe/script/point"
)

// Options are what a script is compiled with.
type Options struct {
	Params  []string          // $1, $2, ...
	Named   map[string]string // --name=value; of --name, "" is the value
	Unsafe  bool              // system() and the like may be used
	CPID    int               // of the command that was started; 0 for none
	Kernel  bool              // the target is a kernel
	Several bool              // the targets are several processes, with one set of maps
	Told    bool              // reads that fail, and keys that are not there, are told of
	Target  *machine.Machine  // nil: x86-64
	Headers []string          // that the script includes without saying so: <name>, or "name"

	// Program is the path of the process's; attach points need not name it. "" without a process.
	Program string
	// Events are the kernel's trace events.
	Events func() (*point.TraceEvents, error)

	// Statics are the static probes of the file that an attach point names.
	Statics func(target string) ([]point.Static, error)

	// Header finds a header of C that is included; nil: none are found.
	Header headers.Open

	// Import finds the scripts that an import of the script named from names; nil: none can be imported.
	Import func(from, path string) ([]imports.Script, error)

	// Variable finds a variable of a file: its virtual address and its size.
	Variable func(target, name string) (addr, size uint64, err error)

	// Lines finds where in a file the code of a source line begins: virtual addresses.
	Lines func(target, file string, line int) ([]uint64, error)

	// Inlined finds the inlined copies of a function of a file; nil: none are known.
	Inlined point.Inlined

	// CPUs are how many processors the kernel has that is the target; nil: that is not known.
	CPUs func() (int, error)

	// KernelSymbol finds a symbol of the kernel that the controller runs on.
	KernelSymbol func(name string) (uint64, error)

	// Debug tells what debug data of files says; nil: nothing.
	Debug point.Files

	// Types tell what the kernel's do; nil: nothing.
	Types point.KernelTypes

	// Settings are those of the environment, by their names in a config block.
	Settings map[string]string
}
