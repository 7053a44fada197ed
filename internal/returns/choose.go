// Package returns is what return probes are made of that touches no target:
// which of the two engines serves a function, and why (choose.go), with the exits
// of the function (plan.go), and which calls are under way (calls.go).
//
// The first engine swaps the return address on the stack for that of a
// trampoline: one trap for whichever way the function takes out, but whoever
// reads return addresses (an unwinder, a runtime that moves stacks, a CPU with a
// shadow stack) sees the trampoline. The second engine leaves the stack alone and
// probes every instruction that leaves the function.
//
// It imports symbol, patch, isa (the interface only) and arch.
package returns

import (
	"slices"
	"strings"
)

// Engine is how a return is noticed.
type Engine uint8

const (
	None  Engine = iota // neither is right: there is no return probe
	Swap                // the return address is swapped
	Exits               // the exits are probed
)

// Facts are what the choice is made by.
type Facts struct {
	Name        string        // of the function, as its file has it
	Start       bool          // its file says that the program begins there
	Uncalled    bool          // its file says that it has no return address (symbol.File.Uncalled)
	Jumped      bool          // it is code of a compiler's that calls nothing
	Go          bool          // its module is Go code
	GoProgram   string        // the name of the program if it is a Go program, else ""
	Register    bool          // calls leave the return address in a register
	Untouched   bool          // nothing of ours may be left in the program, should we die
	ShadowStack bool          // the kernel keeps a shadow stack for the target
	NoFile      bool          // the code is in no file
	Unwinds     string        // why exceptions may pass through the function's module; "" if they may not
	KnowsCaller bool          // it begins by reading its return address
	Pops        func() string // why its return may take more off the stack than an address; nil: it does not
	Scanner     string        // the runtime that reads the return addresses on its stacks; "" for none that is known
	Throwers    func() string // why exceptions may pass through any other module; asked only for functions that call back
}

// Functions that need more than the ordinary, by base name: leading underscores
// are ignored.
var (
	// These store their return address and return through it once more, from a
	// stack frame that another call may have taken meanwhile.
	returnTwice = []string{"setjmp", "sigsetjmp", "savectx", "vfork", "getcontext", "swapcontext"}

	// These walk the stack from their own caller on, end the frames they find, and
	// with them their own.
	neverReturn = []string{"Unwind_RaiseException", "Unwind_Resume", "Unwind_Resume_or_Rethrow", "Unwind_ForcedUnwind",
		"cxa_throw", "cxa_rethrow", "pthread_exit", "pthread_unwind"}

	// These are not called but fallen into, or returned to: no return address is on the stack. Of others of the kind
	// their file says so, and of those that it does not say it of each hit shows it (see Origin).
	notCalled = []string{"dl_start_user", "start_context"}

	// These look at the return address to learn who called.
	knowCaller = []string{"dlopen", "dlmopen", "dlsym", "dlvsym", "mcount", "fentry__", "cyg_profile_func_enter",
		"cyg_profile_func_exit", "tls_get_addr_slow"}

	// These take what the table of imports has put on the stack, above the return address.
	resolvers = []string{"dl_runtime_resolve", "dl_runtime_profile"}

	// These walk the stack, and begin at their own caller.
	walkStack = []string{"Unwind_Backtrace", "backtrace"}

	// These call back into the program, which may throw through them.
	callBack = []string{"qsort", "qsort_r", "bsearch", "pthread_once", "call_once", "ftw", "nftw", "scandir", "glob",
		"twalk", "tsearch", "tdestroy", "dl_iterate_phdr", "start_thread", "libc_start_main", "libc_start_call_main", "clone", "clone3"}

	// Go functions that come back on another stack than they were called on, or
	// were never called: all of package runtime.
	goSwitches = map[string]string{
		"gogo": "it continues another goroutine, and never comes back", "mcall": "it leaves the goroutine's stack",
		"systemstack": "it runs its argument on another stack", "systemstack_switch": "it is only a mark on a stack",
		"gosave_systemstack_switch": "it stores its caller's place for later",
		"morestack":                 "it exchanges the stack", "morestack_noctxt": "it exchanges the stack",
		"newstack": "it exchanges the stack", "asmcgocall": "it leaves the goroutine's stack",
		"asmcgocall_no_g": "it leaves the goroutine's stack", "asmcgocall_landingpad": "it is only a mark on a stack",
		"cgocallback": "it is called on another stack than it works on", "cgocallbackg": "its frame may be another's when it returns",
		"setg":   "it changes what goroutine the thread runs",
		"goexit": "it is where goroutines begin and end, not a function that is called", "goexit0": "it never returns",
		"goexit1": "it never returns", "gdestroy": "the goroutine ends in it", "mstart": "it ends with its thread", "mstart0": "it ends with its thread",
		"mstart1": "it ends with its thread", "schedule": "it never returns", "execute": "it never returns",
		"settls": "it gives the thread the storage that goroutines are found by", "rt0_go": isStart, "sigreturn__sigaction": "unwinders know signal frames by its bytes",
		"sigtramp": "the kernel calls it", "cgoSigtramp": "the kernel calls it", "sigpanic": "it is not called but put behind an instruction that faulted",
		"asyncPreempt": "it is not called but put behind an instruction that was interrupted",
		"recovery":     "it continues another frame", "clone": "it returns on two stacks", "debugCallV2": "a debugger calls it",
	}
)

// isStart: the kernel and the linker do not call what a program begins with. Where a return address would be is the number of its arguments.
const isStart = "it is the program's start"

// The reasons of what is known by its name, and of what its file says it of.
const (
	isNotCalled = "it is not called, and returns to nobody"
	isUncalled  = isNotCalled + ": by its unwind table it has no return address"
	isJumped    = isNotCalled + ": Haskell's functions are jumped to"
)

// Choose picks the engine that is right for a function, with the reason in
// words. Neither is right for what has None.
func Choose(f Facts) (Engine, string) {
	base := baseName(f.Name)
	if f.Start {
		return None, isStart
	}
	if f.Uncalled {
		return None, isUncalled
	}
	if f.Jumped {
		return None, isJumped
	}
	if f.Go {
		if name, ok := strings.CutPrefix(strings.TrimSuffix(f.Name, ".abi0"), "runtime."); ok && goSwitches[name] != "" {
			return None, goSwitches[name]
		}
		if strings.HasPrefix(f.Name, "_rt0_") {
			return None, isStart
		}
		return Exits, "Go code: its stacks move, and a swapped return address with them"
	}
	switch {
	case slices.Contains(notCalled, base):
		return None, isNotCalled
	case slices.Contains(returnTwice, base):
		return None, "it returns more than once, or on another stack"
	case slices.Contains(neverReturn, base):
		return None, "it unwinds the stack from its own return address, and never returns"
	case f.Register:
		return Exits, "its return address is in a register, and on the stack only if it calls"
	case f.Untouched:
		return Exits, "behind a stub a program's memory stays as it is"
	case f.ShadowStack:
		return Exits, "the program has a shadow stack, which a swapped return address does not match"
	case f.GoProgram != "":
		return Exits, f.GoProgram + " is a Go program, whose runtime reads return addresses"
	case f.Scanner != "":
		return Exits, f.Scanner + "'s runtime reads the return addresses on its stacks"
	case slices.Contains(knowCaller, base), f.KnowsCaller, slices.ContainsFunc(resolvers, func(s string) bool { return strings.HasPrefix(base, s) }):
		return Exits, "it looks at its return address to learn who called it"
	case slices.Contains(walkStack, base):
		return Exits, "it unwinds the stack from its own return address"
	case f.NoFile:
		return Exits, "nothing is known about exceptions in code that is in no file"
	case f.Unwinds != "":
		return Exits, "exceptions may unwind through it (" + f.Unwinds + ")"
	}
	if f.Pops != nil {
		if why := f.Pops(); why != "" {
			return Exits, why
		}
	}
	if slices.Contains(callBack, base) {
		if why := f.Throwers(); why != "" {
			return Exits, "it calls back into code that may throw through it (" + why + ")"
		}
	}
	return Swap, "nothing unwinds through it or moves its stack"
}

func baseName(name string) string {
	name, _, _ = strings.Cut(name, "@")
	return strings.TrimLeft(name, "_")
}

// IsPart tells by its name whether a function that another one jumps to is a
// part of that one: what GCC and LLVM split off (NAME.cold, NAME.cold.1), and code
// that only its unwind entry bounds, where all names are stripped. Should that
// be a function in its own right after all, its exits are then watched for its
// callers' returns, and that is right too: the stack pointer tells them apart.
func IsPart(name string) bool {
	return name == "" || strings.HasSuffix(name, ".cold") || strings.Contains(name, ".cold.")
}
