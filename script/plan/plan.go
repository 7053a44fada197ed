// Package plan is what scripts are compiled to. A Plan says where the programs go, which maps
// they share, and what the records that they send mean.
package plan

import (
	"kprobe/bpf"
	"kprobe/script/point"
	"kprobe/script/settings"
	"kprobe/script/syntax"
	"kprobe/script/types"
)

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
	Variables []Variable        // whose addresses StartName's value has, from FactVariables on, once a target is there
	Asked     map[string]Option // those that getopt names
	Specs     []*bpf.MapSpec    // of all maps that programs use, ours too
}

// Variable is one of a file that uprobes are at.
type Variable struct {
	Target, Name string
	Addr         uint64 // virtual, in the file
}

// Leaves tells whether there are tracepoints behind system calls.
func (p *Plan) Leaves() bool {
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

// KeylessHeader is the bytes before the value of a map without a key: a word that says whether there is one.
const KeylessHeader = 8

// What the word says: 0 that no value has been put there ever.
const (
	KeylessSet  = 1
	KeylessGone = 2 // it was deleted
)

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
	FactProcess      = 32 // of several processes, which this is: from 1 on
	FactTAI          = 40 // what international atomic time is ahead of the time since boot, in ns
	FactVariables    = 48 // the addresses of the plan's Variables
)

// ProcessShift is where in an address of one of several processes that process's number is, in bits; a trace's number has
// it from bit 32 on.
const ProcessShift = 48

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

// Option is one of the command line that a script asks for, as the script writes it.
type Option struct{ Default, Help string }

// Loss counts what went wrong at a place. Each has a word of LossName, from the second on.
type Loss struct {
	At   syntax.Span
	Map  string // that could not be changed; "" for what is reckoned
	Busy bool   // because another thread kept it for too long: else it was full

	Elements int // of an array whose index was beyond them; 0 for a division by 0
}
