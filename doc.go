// Package kprobe is Linux Kprobes for any running code, from outside: kprobes, jprobes
// and return probes on any instruction, and watchpoints on data, of a live process by
// ptrace, or of a live kernel or program behind a GDB stub.
// Sections named below are those of the kernel's kprobes.txt, whose names, in
// Go's spelling, are the names here. What the tool of this module shows is in
// the README, why things are as they are in docs/RATIONALE.md.
//
// # Registering
//
// RegisterKprobe, RegisterJprobe, RegisterKretprobe and their plurals (4.1-4.3,
// 4.5), RegisterWatchpoint, and Register for probes of any kind together are
// effective when they return; all probes of a batch are placed, or none is, in one stop of
// the target, more than 4,096 in several. So are UnregisterKprobes (4.4, 4.6), DisableKprobe and
// EnableKprobe (4.7, 4.8), and SetEnabled, the global switch (appendix A). When an
// Unregister has returned, no handler of the probe runs any more. Every
// error is, by errors.Is and errors.As, the errno that the kernel gives; see Error.
// OpenContext and CloseContext give up waiting when a context says so. The calls in
// between wait for the calls before them, for handlers that run, and for moments
// in which the target cannot be stopped (two seconds at most).
//
// Close leaves the target as it was found: text, return addresses, mappings. A
// controller that is killed leaves it alive, and a guardian process restores it.
//
// # Handlers
//
// At one address the newest probe's handlers run first, a jprobe's last. A
// pre-handler that answers other than 0 has moved the PC: neither the
// instruction, nor post-handlers, nor further probes at that address come then
// (4.1). What handlers change in Regs, and in memory, is what the program goes
// on with; of a jprobe's arguments they see copies (1.2).
//
//   - By default handlers run one after another, on the session's own thread,
//     while other threads of the target run on until they hit a probe too. With
//     Options.Concurrent those of different threads run at the same time: they
//     must lock what they share, and may wait for one another.
//   - The thread that hit the probe is stopped until its handlers are done. A
//     handler must not wait for anything that this thread would have to do.
//   - Handlers must not make calls that wait for the session: to register, remove or
//     switch probes, to plan or look up, to close. The answer is EDEADLK, at any time.
//     Hand such a call to another goroutine, and do not wait for it there: the
//     session cannot tell a goroutine that a handler waits for from any other, so
//     the two would wait for each other. What only tells what there is (List,
//     Pending, Symbols, counts, memory, registers) never waits, and is for handlers too.
//   - A Regs, and an instance with its Data, are valid until the handler returns.
//   - A handler that panics has faulted: its probe's fault-handler is told, as it
//     is when the probed instruction faults (4.1), and the program goes on.
//   - Handlers run in the controller and never recurse: what they call is not
//     the target's code. NMissed of a kprobe counts handlers that panicked; of a
//     return probe, calls beyond MaxActive (1.3.1, 5).
//
// # Programs
//
// A handler runs in the controller, while its thread waits: microseconds. A Program, eBPF that
// Session.Load has verified and compiled, runs in the target: nanoseconds. CountOnly counts.
// UpdateProgram swaps one while it runs.
//
// # Known dangers and limits
//
//   - The compiler may have inlined the function, split it (.cold, .part), or
//     made calls to it jumps: a probe sees what the machine code does (5).
//   - A function that the program's own signal handlers, or its allocator, call is
//     probed there too; that costs time, and no more.
//   - Return probes swap return addresses where that is provably safe (RATIONALE, "When is
//     swapping the return address not safe?"). Elsewhere (Go, code that exceptions unwind
//     through, functions that look at their caller, shadow stacks) every exit of the
//     function is probed. Functions that return twice are refused (ENOTSUP).
//   - A call left by longjmp is known for one when its stack is used again; until
//     then it keeps its instance. Abandoned counts them. With MaxActive calls in use,
//     a coroutine that sleeps inside the function may be taken for one: its return is
//     right, but not reported.
//   - Nobody else can trace a process meanwhile: one tracer at a time is the kernel's
//     rule. Breakpoints of others that are there already are EBUSY, and left alone.
//   - A hit costs a stop of the thread and two changes of the host's thread, some
//     microseconds; see bench/.
//   - Children are not probed unless Options.Follow takes them. They get clean memory before
//     they run, vfork's run in the target's own, probes and all, until they exec.
//   - Hits, NMissed and Lost begin at 0 when a probe is registered again: read
//     them before.
//   - A program that is the parent of its target, too, waits for it (os/exec's Wait) when
//     the session is Done or closed, not before: to the kernel, who waits for a
//     child waits for its stops as well, and they are the session's.
//
// # The words
//
//   - target: the program that is probed; controller: the one that probes it.
//   - probe: one registration. Point: an address with all the probes on it (the
//     kernel's aggregate).
//   - breakpoint: the trap instruction over an instruction's first bytes; a point
//     is armed while it is there. Nothing is disarmed to step over it.
//   - slot: memory in the target where a displaced instruction runs, followed by
//     a jump back; or by a trap, where post-handlers wait (kprobes.txt 1.1, 1.4).
//     What cannot run elsewhere is emulated.
//   - detour: code in the target that runs probes' programs, and then what stood at
//     the point; a trap leads there, or a jump (kprobes.txt 1.4).
//   - trampoline: the breakpoint that swapped return addresses lead to (1.3.1).
//   - watchpoint: a probe on data. It has no point: the processor fires it.
//   - instance: one call that a return probe watches (1.3.1).
//   - owner: the one host thread that may stop, read and resume the target.
//   - pending: a probe that waits for its library. Gone: one whose code has been
//     unmapped, or whose callers have no stack for it; it cannot be enabled again.
//
// # The road of a probe
//
// Code is laid out along the way of the data; read it from top to bottom.
//
//	step                              value that comes out       where
//	----                              --------------------       -----
//	definition, text or Go struct     *spec.Spec, *Kprobe        spec/, trace/, kprobe.go, probe.go
//	name to address, once             symbol.Loc: Kprobe.Loc,    symbol/, internal/image/
//	                                  the point's
//	may there be a probe?             an error and its reason    internal/image/, internal/roles/
//	bytes to instruction and verdict  isa.Insn, isa.Verdict      internal/isa/<machine>/
//	what will be written where        *patch.Site, *patch.Slot   internal/patch/
//	what should stand where           *probed.Point, text.Kind   internal/probed/
//	the order of all this             a batch, all or nothing    internal/engine/
//	the writing, and its undo         *change.Change             internal/change/, internal/parts/,
//	                                                             internal/links/, internal/text/
//	a hit                             which probe, how to go on  internal/stops/, internal/calls/,
//	                                                             internal/roles/dispatch.go
//	a handler                         your function              handlers.go, jprobe.go, kretprobe.go,
//	                                                             watch.go, internal/owner/
//	or a program in the target        *Program                   program.go, internal/within/, bpf/,
//	                                                             internal/inject/
//	a trap becomes a jump             "[OPTIMIZED]"              switch.go, internal/optimize/
//	an event                          *event.Event, a line       trace/, event/
//
// Beside it: internal/engine (a session from its begin to its end: the owner thread's loop, libraries, children,
// exec), internal/text/lifeline.go and internal/lifeline (what keeps
// a target alive whose controller dies), internal/roles (in what the kinds of probes differ),
// internal/kind (in what the kinds of targets differ),
// internal/machine (one record per machine), errors.go. docs/ARCHITECTURE.md draws it.
// A target is an interface, target.Target; target/ptrace is a live process, target/kernel
// a kernel behind a stub, target/gdbremote a program behind one.
//
// # Lock order
//
// the session's turns (a registration or removal, planning included), then that of the calls under way, then
// Ground.View. The owner thread takes neither a turn nor anything that is held
// while it is waited for; it reads what only itself changes without a lock. Nothing
// of the user's is called with a lock held: no handler, and not Options.Report.
package kprobe
