// Package compile makes eBPF programs of a script: it expands what is written short,
// finds the types of variables and maps, refuses what has no sense, and generates code.
// What comes out, a Plan, says where the programs go, which maps they share, and what
// the records that they send mean. Nothing here touches a target.
package compile

import (
	"kprobe/bpf"
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

	// Settings are those of the environment, by their names in a config block.
	Settings map[string]string
}

// Plan is a compiled script.
type Plan struct {
	Source   *syntax.Source
	File     *syntax.File
	Settings Settings
	Warnings syntax.Errors

	Probes  []*Probe
	Maps    []*Map // the script's, by name
	Actions []*Action
	Specs   []*bpf.MapSpec // of all maps that programs use, ours too
}

// Probe is one body's program for attach points of one shape.
type Probe struct {
	Points  []*Point
	Program *bpf.Program
	At      syntax.Span
}

// Map is a map of the script.
type Map struct {
	Name  string
	Key   *types.Type // nil without a key
	Value *types.Type
	Spec  *bpf.MapSpec
}

// KeylessHeader is the bytes before the value of a map without a key: a word that is
// not 0 where a value was put.
const KeylessHeader = 8

// Names of the maps that are ours.
const (
	RingName    = ".events" // the records
	ScratchName = ".scratch"
	StackName   = ".stacks"
	StartName   = ".start" // one word: when the script began, by the boot clock
	LossName    = ".losses"
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
	Join
)

// Action is what a record asks for.
type Action struct {
	Kind   ActionKind
	Format string        // of Printf, Cat, System, and of Clock
	Args   []*types.Type // at RecordArgs and on, each in its slot
	Map    *Map
	At     syntax.Span
}

// Loss counts what went wrong at a place: an index into LossName's words.
type Loss struct {
	At  syntax.Span
	Map string
}

// MaxLosses is how many words there are.
const MaxLosses = 64
