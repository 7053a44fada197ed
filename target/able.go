package target

// The things in a target that our code inside it needs, and that only some targets tell. Each is
// asked for once, as the interfaces beside Target are.

// Clocked is a target whose processor has a counter that its kernel tells the time by.
type Clocked interface {
	// CounterClock gives the numbers that turn the counter into nanoseconds: base + counter*mult >>
	// shift, with a product of 128 bits. CLOCK_BOOTTIME is ahead by boot. Errors: the time is not
	// told by the counter.
	CounterClock() (base, mult uint64, shift uint8, boot uint64, err error)
}

// Counting is a target whose counter can be read for a program that may not.
type Counting interface {
	// Counter is its value now.
	Counter() uint64
}

// Owned is a target that has an owner.
type Owned interface {
	// Owner is the owner's ids; 0 and 0 where they cannot be read.
	Owner() (uid, gid uint32)
}

// Locker is a target that may keep its memory from being swapped out.
type Locker interface {
	// LocksMemory tells whether it does, or may, and has a limit for that which addresses of ours may reach.
	LocksMemory() bool
}

// BaseReader is a target whose processor may let programs read their fs base (rdfsbase).
type BaseReader interface {
	// UserFSBase tells whether it does.
	UserFSBase() bool
}

// ThreadPointed is a target whose thread pointers are in a register that is not among the general
// ones.
type ThreadPointed interface {
	// ThreadPointer is a stopped thread's.
	ThreadPointer(th Thread) (uint64, error)
}

// Borrower is a target in which a child of vfork may run with its parent's memory and thread
// pointer.
type Borrower interface {
	// Borrows tells whether a thread is such a child, and which thread waits for it.
	Borrows(th Thread) (lender Thread, ok bool)
}

// Ender is a target whose threads end some time before that is reported.
type Ender interface {
	// Ending tells whether a thread runs no instruction any more.
	Ending(th Thread) bool
}

// Mortal is a target that can be told at once that its controller has died.
type Mortal interface {
	// Living has a word of shared memory, at an offset in ours, be marked when the controller dies,
	// before the target is let go. There is one such word.
	Living(ours []byte, offset int) error
}

// ShadowStacked is a target whose kernel may keep a shadow stack for it.
type ShadowStacked interface {
	// ShadowStack tells whether it does.
	ShadowStack() bool
}

// Withholder is a target that may have been started with less rights than its program's file gives.
type Withholder interface {
	Withheld() error // nil where it has them all
}

// Latecomer is a target that may be a child which is followed, and had to be attached to before it went on by itself.
type Latecomer interface {
	Late() bool // it has gone on
}

// Starter is a target that may be a program that was just started: see StartOf.
type Starter interface {
	// Fresh tells whether it was, with its thread, and whether its own program has begun.
	Fresh() (th Thread, begun, ok bool)
}
