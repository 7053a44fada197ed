// Package segment is the memory that a target and its controller share: its layout, the states of
// threads in it, and the calls that are under way there. It knows no machine's instructions; the
// code that works in it is package inject's, and Names has its offsets for routines in assembler.
//
// One shared mapping (a memfd), which the controller has mapped too. New
// prepares it; its memory exists only where it is touched.
//
//	head      the word that says whether the controller lives; the table of threads
//	away      calls that lie in no other of their thread's
//	the pool  calls that are on lists, and the private data of calls
//	extra     maps and rings (package bpf)
//	the sink  a state for threads that get none: what is counted there was lost
//	state 0   ... private stack | frame | state | instances | counters
//	state 1   ...                       ^ what r12 holds while programs run (jit.StateReg)
//	...       as many as may be given out: what is behind them need not be there (states.go, layout.go)
//
// A thread finds its state by a key that is one word of it, its fs base or what
// is as good (ThreadKey): a multiplication, one look into the table, one comparison. Nothing on
// that way is written by two threads, and nothing is locked. The controller fills the
// table in before threads run (Segment.Assign): it sees each one's birth. A thread that is not in it
// takes an entry by one cmpxchg and asks for its id, once.
//
// A thread's end and a new thread with the same key: the controller sees both, in
// this order or the other. Forget at an exit leaves a tombstone; Assign at the birth starts the
// state anew, id and name included, whether the key was given up or not. If nobody was there
// to do either, the newcomer goes on with the dead one's state: no other thread
// has that key, so it is its own, but id and name are the old ones until the next Assign.
//
// Threads that have the same key at the same time are a danger, because the private
// stack would be both's: a vfork child is none (its parent sleeps), nor is a fork's,
// provided that its copy of the mapping is taken away before it runs; for what
// clone without CLONE_SETTLS makes there is Share. Threads of Go's runtime are born with their
// parent's fs base, and set their own in runtime.clone and runtime.settls, which are not for jumps,
// therefore; they are not to be assigned at birth, and enter the table by themselves.
package segment
