// Package compile makes eBPF programs of a script: it expands what is written short,
// finds the types of variables and maps, refuses what has no sense, and generates code.
// What comes out, a Plan, says where the programs go, which maps they share, and what
// the records that they send mean. Nothing here touches a target.
package compile

import (
	"kprobe/bpf"
	"kprobe/script/machine"
	"kprobe/script/point"
	"kprobe/script/settings"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

// Options are what a script is compiled with.
type Options struct {
	Params []string          // $1, $2, ...
	Named  map[string]string // --name=value; of --name, "" is the value
	Unsafe bool              // system() and the like may be used
	CPID   int               // of the command that was started; 0 for none
	Kernel bool              // the target is a kernel
	Told   bool              // reads that fail, and keys that are not there, are told of
	Target *machine.Machine  // nil: x86-64

	// Program is the path of the process's; attach points need not name it. "" without a process.
	Program string
	// Statics are the static probes of the file that an attach point names.
	Statics func(target string) ([]point.Static, error)

	// Import finds the scripts that an import of the script named from names; nil: none can be imported.
	Import func(from, path string) ([]Imported, error)

	// Variable finds a variable of a file: its virtual address and its size.
	Variable func(target, name string) (addr, size uint64, err error)

	// Lines finds where in a file the code of a source line begins: virtual addresses.
	Lines func(target, file string, line int) ([]uint64, error)

	// KernelSymbol finds a symbol of the kernel that the controller runs on.
	KernelSymbol func(name string) (uint64, error)

	// Debug tells what debug data of files says; nil: nothing.
	Debug Debug

	// Types tell what the kernel's do; nil: nothing.
	Types KernelTypes

	// Settings are those of the environment, by their names in a config block.
	Settings map[string]string
}

// Imported is another script.
type Imported struct{ Name, Text string }

// Debug is what debug data of the files that attach points name says.
type Debug interface {
	// Functions are those that a pattern matches, with their parameters.
	Functions(target, pattern string) ([]Function, error)

	// Type is a type by its name, "struct foo" or "foo_t"; nil for none.
	Type(target, name string) *types.Type

	// Constant is one that an enumeration names.
	Constant(target, name string) (value uint64, t *types.Type, ok bool)
}

// KernelTypes is what a kernel says of its functions and types. Records come without their members, until these are
// asked for.
type KernelTypes interface {
	Debug

	// Complete gives a record its members.
	Complete(t *types.Type)
}

// Function is one of a file, or of the kernel.
type Function struct {
	Name   string
	Offset uint64 // in the file
	Params []point.Param
	Err    error       // why they are not known
	Result *types.Type // of a kernel's; nil where it is not known
}

// Plan is a compiled script.
type Plan struct {
	Source   *syntax.Source
	File     *syntax.File
	Settings settings.Settings
	Warnings syntax.Errors

	Probes    []*Probe
	Noter     *bpf.Program // to be at every system call whose number is not known beforehand; nil where nobody asks
	Maps      []*Map       // the script's, by name
	Actions   []*Action
	Losses    []*Loss
	Variables []Variable      // whose addresses StartName's value has, from FactVariables on, once a target is there
	Asked     map[string]bool // the options that getopt names
	Specs     []*bpf.MapSpec  // of all maps that programs use, ours too
}

// Variable is one of a file that uprobes are at.
type Variable struct {
	Target, Name string
	Addr         uint64 // virtual, in the file
}

// leaves tells whether there are tracepoints behind system calls.
func (p *Plan) leaves() bool {
	for _, probe := range p.Probes {
		if s := probe.Points[0].Syscall; s != nil && s.Exit && !s.Kernel {
			return true
		}
	}
	return false
}

// Probe is one body's program for attach points of one shape.
type Probe struct {
	Points  []*point.Point
	Program *bpf.Program
	At      syntax.Span

	Entry *bpf.Program // of a return's: runs where the function is entered, and keeps Kept bytes for it; nil for none
	Kept  int
}

// Programs are its program, and the one at entries where there is one.
func (p *Probe) Programs() []*bpf.Program {
	if p.Entry == nil {
		return []*bpf.Program{p.Program}
	}
	return []*bpf.Program{p.Program, p.Entry}
}

// Map is a map of the script.
type Map struct {
	Name  string
	Key   *types.Type // nil without a key
	Value *types.Type
	Spec  *bpf.MapSpec
	Count int // where in CountName's value its keys are counted, in bytes; -1 where nobody counts them
}

// KeylessHeader is the bytes before the value of a map without a key: a word that is
// not 0 where a value was put.
const KeylessHeader = 8

// Names of the maps that are ours.
const (
	RingName    = ".events" // the records
	ScratchName = ".scratch"
	StackName   = ".stacks"
	StartName   = ".start" // words: when the script began, by the boot clock; the controller's control group, and the target's
	LossName    = ".losses"
	CountName   = ".counts" // how many keys each map has that may have no more than so many
	NoteName    = ".call"   // of each thread: 1 more than the number of the system call that it is in
	NoterName   = "note"
)

// Words of StartName's value, in bytes.
const (
	FactStart        = 0
	FactCgroup       = 8
	FactTargetCgroup = 16
	FactTargetStart  = 24 // when a kernel was asked first, by its own clock
	FactVariables    = 32 // the addresses of the plan's Variables
)

// Record is what every record begins with: the action's number and the time.
const (
	RecordID   = 0
	RecordTime = 8
	RecordArgs = 16
)

// ActionKind is what the controller is to do.
type ActionKind uint8

// The actions.
const (
	Printf ActionKind = iota
	Errorf
	Warnf
	PrintMap // args: top, div
	PrintValue
	Clear
	Zero
	Exit // args: code
	Clock
	Cat
	System
	Join    // args: strings
	Signal  // args: the number, and the process's and thread's ids
	Unwatch // args: the address
	Failed  // a helper did not do what it was asked for; Format is its name; args: what it gave
)

// DeleteFailed is the helper whose failure says that there was no such key, where nobody asked whether there was.
const DeleteFailed = "map_delete_elem"

// Action is what a record asks for.
type Action struct {
	Kind   ActionKind
	Format string        // of Printf, Cat, System, and of Clock
	Args   []*types.Type // at RecordArgs and on, each in its slot
	Map    *Map
	Code   int  // of an Exit without arguments
	Thread bool // of a Signal: for the thread alone
	At     syntax.Span
}

// Loss counts what went wrong: with a map that is full, or at a place. Each has a word of LossName, from the
// second on.
type Loss struct {
	At   syntax.Span
	Map  string
	Zero bool // a division by 0
}

// MaxLosses is how many words there are.
const MaxLosses = 64
