// The routines that live in an arm64 target beside the detours (area.go): the one that finds a
// thread's state, and the helpers that programs call. The names in capitals are offsets and
// numbers of package bpf, internal/jit and this one; a test passes them in. General registers only.

	// MAY_FAULT is the next instruction's: if what it reads is not there, the controller sends the
	// thread to the label.
	.macro MAY_FAULT to
	.pushsection .faults, "a"
	.long 99f - start, \to - start
	.popsection
99:
	.endm

	// A routine that is known outside by its name. Inside it is name_.
	.macro ROUTINE name
	.p2align 4
	.globl \name
\name:
\name\()_:
	.endm

	// A place that the controller knows, where it does for a thread what cannot be done in
	// steps: see arm64_steps.go.
	.macro MARK name
	.globl \name
\name:
	.endm

	// A constant of 64 bits.
	.macro CONSTANT reg, value
	movz	\reg, #((\value) & 0xffff)
	movk	\reg, #(((\value) >> 16) & 0xffff), lsl #16
	movk	\reg, #(((\value) >> 32) & 0xffff), lsl #32
	movk	\reg, #(((\value) >> 48) & 0xffff), lsl #48
	.endm

	.text
area:	.org	AREA_CODE
start:

// ---- Called by detours, on the program's own stack ----

// Who is it that runs here? Leaves x1 at the thread's state, or at the sink; changes x0 and x2, and
// keeps all else, the flags too. See internal/segment/keys.go: the thread pointer is a register that every program may read.
ROUTINE identify
	stp	x3, x4, [sp, #-64]!
	stp	x5, x6, [sp, #16]
	stp	x7, x8, [sp, #32]
	mrs	x3, nzcv
	str	x3, [sp, #48]
	ldr	x3, area+AREA_HEAD
	mrs	x0, tpidr_el0
	cbz	x0, by_id
	tst	x0, #KEY_ALIGN
	b.ne	by_id
	ldr	x4, [x3, #HEAD_ANY_SHARED]
	cbnz	x4, by_id
	add	x4, x3, #HEAD_SHARED
1:	ldr	x5, [x4], #8
	cbz	x5, search_table
	cmp	x5, x0
	b.ne	1b
by_id:	mov	x8, #SYS_GETTID
	svc	#0
	lsl	x0, x0, #2
	add	x0, x0, #ODD_KEY
	orr	x0, x0, #(1 << ODD_BIT)
search_table:
	movz	x4, #(KEY_FACTOR & 0xffff)
	movk	x4, #((KEY_FACTOR >> 16) & 0xffff), lsl #16
	mul	x4, x0, x4
	lsr	x4, x4, #HASH_SHIFT64
	and	w4, w4, #HASH_MASK
	ldr	x1, area+AREA_TABLE
	add	x1, x1, x4
	add	x4, x1, #(TABLE_WINDOW*ENTRY_SIZE)
look:	mov	x5, #0			// the first entry that could be taken
	mov	x6, x1
next:	ldr	x7, [x6]
	cmp	x7, x0
	b.eq	known
	cmp	x7, #TOMBSTONE
	b.hi	other
	cmp	x5, #0
	csel	x5, x6, x5, eq
	cbz	x7, claim		// never used: the key is not further on
other:	add	x6, x6, #ENTRY_SIZE
	cmp	x6, x4
	b.lo	next
claim:	cbz	x5, sink
	ldr	x7, [x5]
	cmp	x7, #TOMBSTONE
	b.hi	look			// somebody was faster
	MARK	take_entry
1:	ldaxr	x6, [x5]
	cmp	x6, x7
	b.ne	2f
	stlxr	w8, x0, [x5]
	cbnz	w8, 1b
	MARK	entry_taken
	mov	x6, x5
	b	mine
	MARK	entry_lost
2:	clrex
	b	look
known:	ldr	x5, [x6, #8]
	cbnz	x5, done
	// The entry is this thread's, and has no state yet. A signal handler that gets here too
	// leaves a state unused, no more.
mine:	ldr	x5, [x6, #8]
	cbnz	x5, renew		// that of a thread that is dead
	add	x7, x3, #HEAD_NEXT
	MARK	next_state
1:	ldaxr	w2, [x7]
	add	w4, w2, #1
	stlxr	w8, w4, [x7]
	cbnz	w8, 1b
	MARK	state_given
	ldr	w4, [x3, #HEAD_MAX]
	cmp	w2, w4
	b.hs	none
	add	w4, w2, #1		// the sink is the first
	lsr	w8, w4, #GROUP_SHIFT
	and	w4, w4, #GROUP_MASK
	ldr	x5, [x3, #HEAD_SPAN]
	mul	x8, x8, x5
	ldr	x5, [x3, #HEAD_STRIDE]
	madd	x8, x4, x5, x8
	ldr	x5, [x3, #HEAD_STATES]
	add	x5, x5, x8
	// What Segment.initState does, and in its order: until the first free instance is there this
	// is no state to others, and until the entry has it to no signal handler of this thread's.
	str	x2, [x5, #STATE_SLOT]
	ldr	x4, [x3, #HEAD_TGID]
	str	x4, [x5, #STATE_PID_TGID]
	mov	x4, #-1
	str	x4, [x5, #(CALLS_AT+CALL_PROBE)]
	dmb	ish
	add	x4, x5, #(CALLS_AT+CALL_SIZE)
	str	x4, [x5, #STATE_CALLS]
	dmb	ish
	str	x5, [x6, #8]
renew:	ldr	x4, [x3, #(HEAD_SINK+8)]
	cmp	x5, x4
	b.eq	done
	str	x0, [x5, #STATE_KEY]
	add	x4, x5, #(CALLS_AT+CALL_SIZE)
	str	x4, [x5, #STATE_CALLS]
	str	xzr, [x5, #STATE_STACK_LOW]
	str	xzr, [x5, #STATE_STACK_HIGH]
	strb	wzr, [x5, #STATE_OVERRIDE]
	ldrb	w4, [x5, #STATE_CLOSED]
	strb	w4, [x5, #STATE_BUSY]
	mov	x8, #SYS_GETTID
	svc	#0
	str	w0, [x5, #STATE_PID_TGID]
done:	mov	x1, x5
	ldr	x3, [sp, #48]
	msr	nzcv, x3
	ldp	x7, x8, [sp, #32]
	ldp	x5, x6, [sp, #16]
	ldp	x3, x4, [sp], #64
	ret
none:	ldr	x5, [x3, #(HEAD_SINK+8)]
	str	x5, [x6, #8]
	b	done
sink:	ldr	x5, [x3, #(HEAD_SINK+8)]
	b	done

// Where a detour begins that no routine follows: see Area.Identifies.
ROUTINE abandon
	ret

// One hit more is missed: x2 is the address of the counter, which threads may share. Keeps all else but x0, the flags too.
ROUTINE lose
	stp	x8, x10, [sp, #-16]!
	MARK	lose_one
1:	ldaxr	x0, [x2]
	add	x10, x0, #1
	stlxr	w8, x10, [x2]
	cbnz	w8, 1b
	MARK	one_lost
	ldp	x8, x10, [sp], #16
	ret

// ---- The pool of calls: called by detours, on the program's own stack too ----
//
// The thread's state is x1. A call is known by the stack pointer, x2, which is the same where a function is entered and
// where it is left; x0 is the return address. x3 is the segment, x4 the thread as an owner of calls, x5 the
// probe, x16 the return address. All registers but x0 are kept, the flags too.

	.macro KEEP
	stp	x2, x3, [sp, #-160]!
	stp	x4, x5, [sp, #16]
	stp	x6, x7, [sp, #32]
	stp	x8, x9, [sp, #48]
	stp	x10, x11, [sp, #64]
	stp	x12, x13, [sp, #80]
	stp	x14, x15, [sp, #96]
	stp	x16, x17, [sp, #112]
	mrs	x3, nzcv
	stp	x3, x30, [sp, #128]
	mov	x16, x0
	ldr	x3, area+AREA_HEAD
	add	x4, x1, #STATE_OWN
	.endm

	.macro KEPT
	ldp	x3, x30, [sp, #128]
	msr	nzcv, x3
	ldp	x16, x17, [sp, #112]
	ldp	x14, x15, [sp, #96]
	ldp	x12, x13, [sp, #80]
	ldp	x10, x11, [sp, #64]
	ldp	x8, x9, [sp, #48]
	ldp	x6, x7, [sp, #32]
	ldp	x4, x5, [sp, #16]
	ldp	x2, x3, [sp], #160
	ret
	.endm

	// Counts the call \node as lost; changes x10, x11.
	.macro LOSE node, why
	ldr	w10, [\node, #NODE_PROBE]
	mov	w11, #(STATE_COUNTERS+\why)
	add	x10, x11, x10, lsl #3
	ldr	x11, [x1, x10]
	add	x11, x11, #1
	str	x11, [x1, x10]
	.endm

	.macro ADD_TO word, base, n
	ldr	w10, [\base, #\word]
	add	w10, w10, #\n
	str	w10, [\base, #\word]
	.endm

	// x10 becomes what may be about to begin anew: the probe x5 at the place x2.
	.macro AGAIN
	orr	x10, x5, x2, lsl #32
	.endm

// The calls are given up that the place x2 shows to be over: they are below it. Changes x8 to x15.
over:	mov	x17, x30
1:	ldr	x9, [x4, #OWNER_TOP]
	cbz	x9, 2f
	ldr	x10, [x9, #NODE_PLACE]
	cmp	x10, x2
	b.hs	2f
	ldr	x11, [x1, #STATE_STACK_LOW]
	cmp	x10, x11
	b.lo	2f			// of another stack
	ldr	x11, [x1, #STATE_STACK_HIGH]
	cmp	x2, x11
	b.hs	2f
	LOSE	x9, LOST_UNWOUND
	bl	pop_call
	b	1b
2:	ret	x17

// The newest call x9 of the owner is over. Changes x8, x10 to x15.
pop_call:
	ldr	x10, [x9, #NODE_NEXT]
	str	x10, [x4, #OWNER_TOP]
	ADD_TO	OWNER_COUNT, x4, -1
// The call x9 is free again. What is in it stays until the thread needs one.
free_call:
	ldr	x10, [x1, #STATE_FREE]
	str	x10, [x9, #NODE_NEXT]
	str	x9, [x1, #STATE_FREE]
	ldr	w11, [x1, #STATE_FREES]
	add	w11, w11, #1
	str	w11, [x1, #STATE_FREES]
	cmp	w11, #(2*POOL_BATCH)
	b.lo	3f
	mov	x11, x10		// a batch is given away: those behind the first
	mov	w12, #(POOL_BATCH-1)
1:	ldr	x11, [x11, #NODE_NEXT]
	sub	w12, w12, #1
	cbnz	w12, 1b
	ldr	x12, [x11, #NODE_NEXT]
	str	x12, [x9, #NODE_NEXT]
	str	xzr, [x11, #NODE_NEXT]
	ldr	w12, [x1, #STATE_FREES]
	sub	w12, w12, #POOL_BATCH
	str	w12, [x1, #STATE_FREES]
	ldr	x12, [x3, #POOL_CALLS]
	sub	x12, x10, x12
	lsr	x12, x12, #NODE_SHIFT
	add	w12, w12, #1
	add	x13, x3, #POOL_GIVEN
giving:	ldr	x14, [x13]
	str	w14, [x10, #NODE_BATCH]
	lsr	x15, x14, #32
	add	w15, w15, #1
	orr	x15, x12, x15, lsl #32
	MARK	give_batch
2:	ldaxr	x11, [x13]
	cmp	x11, x14
	b.ne	4f
	stlxr	w8, x15, [x13]
	cbnz	w8, 2b
	MARK	batch_given
3:	ret
	MARK	batch_kept
4:	clrex
	b	giving

// x9 becomes a free call, 0 where there is none; its private data, as much as is asked for,
// zeros. Changes x8, x10 to x15.
take_call:
	ldr	x9, [x1, #STATE_FREE]
	cbz	x9, 1f
	ldr	x10, [x9, #NODE_NEXT]
	str	x10, [x1, #STATE_FREE]
	ADD_TO	STATE_FREES, x1, -1
	b	6f
1:	add	x13, x3, #POOL_GIVEN
taking:	ldr	x14, [x13]
	mov	w10, w14
	subs	w10, w10, #1
	b.mi	3f			// there are no batches
	ldr	x9, [x3, #POOL_CALLS]
	add	x9, x9, x10, lsl #NODE_SHIFT
	ldr	w12, [x9, #NODE_BATCH]
	lsr	x15, x14, #32
	add	w15, w15, #1
	orr	x15, x12, x15, lsl #32
	MARK	take_batch
2:	ldaxr	x11, [x13]
	cmp	x11, x14
	b.ne	5f
	stlxr	w8, x15, [x13]
	cbnz	w8, 2b
	MARK	batch_taken
	ldr	x10, [x9, #NODE_NEXT]
	str	x10, [x1, #STATE_FREE]
	mov	w10, #(POOL_BATCH-1)
	str	w10, [x1, #STATE_FREES]
	b	6f
	MARK	batch_lost
5:	clrex
	b	taking
3:	mov	x9, #0
	ldr	w10, [x3, #POOL_NEXT]
	ldr	w11, [x3, #POOL_MAX]
	cmp	w10, w11
	b.hs	9f
	add	x13, x3, #POOL_NEXT
	MARK	next_call
4:	ldaxr	w10, [x13]
	add	w12, w10, #1
	stlxr	w8, w12, [x13]
	cbnz	w8, 4b
	MARK	call_given
	cmp	w10, w11
	b.hs	9f
	ldr	x9, [x3, #POOL_CALLS]
	add	x9, x9, x10, lsl #NODE_SHIFT
6:	ldr	x10, [x3, #POOL_CALLS]
	sub	x10, x9, x10
	ldr	x11, [x3, #POOL_DATA]
	add	x10, x11, x10, lsl #DATA_SHIFT
	ldr	w11, [x1, #(STATE_ASKED+8)]
7:	cbz	w11, 9f
	str	xzr, [x10], #8
	sub	w11, w11, #1
	b	7b
9:	ret

// x6 becomes the call of the probe x5 at the place x2, 0 for none, and x7 where the address of it is. Changes x10.
find_call:
	add	x7, x4, #OWNER_TOP
1:	ldr	x6, [x7]
	cbz	x6, 3f
	ldr	x10, [x6, #NODE_PLACE]
	cmp	x10, x2
	b.ne	2f
	ldr	w10, [x6, #NODE_PROBE]
	cmp	w10, w5
	b.eq	3f
2:	add	x7, x6, #NODE_NEXT
	b	1b
3:	ret

// The call x6, whose address is at x7, is taken from its owner, and becomes x9.
	.macro UNLINK
	mov	x9, x6
	ldr	x10, [x9, #NODE_NEXT]
	str	x10, [x7]
	ADD_TO	OWNER_COUNT, x4, -1
	.endm

// A function has been entered. STATE_ASKED has the probe, the most calls, and the words of private data. Leaves the
// call in x0 and in STATE_CALL; or 0 if it cannot be watched; or 1 if it is none: the function begins anew.
ROUTINE enter_call
	KEEP
	bl	over
	ldr	w5, [x1, #STATE_ASKED]
	mov	x0, #0
	AGAIN
	ldr	x11, [x4, #OWNER_AGAIN]
	cbz	x11, 1f
	str	xzr, [x4, #OWNER_AGAIN]
	cmp	x11, x10
	b.ne	1f
	mov	x0, #1
	b	entered
1:	bl	find_call
	cbz	x6, 2f
	LOSE	x6, LOST_UNWOUND	// its place is used again
	UNLINK
	bl	free_call
2:	ldr	w11, [x1, #(STATE_ASKED+4)]
	ldr	w10, [x4, #OWNER_COUNT]
	cmp	w10, w11
	b.lo	5f
	ldr	x6, [x4, #OWNER_TOP]	// calls of whatever probes
3:	cbz	x6, 4f
	ldr	w10, [x6, #NODE_PROBE]
	ldr	x6, [x6, #NODE_NEXT]
	cmp	w10, w5
	b.ne	3b
	sub	w11, w11, #1
	b	3b
4:	cmp	w11, #0
	b.le	entered
5:	bl	take_call
	mov	x0, x9
	cbz	x9, entered
	ldr	x10, [x4, #OWNER_TOP]
	str	x10, [x9, #NODE_NEXT]
	str	x2, [x9, #NODE_PLACE]
	str	x16, [x9, #NODE_RET]
	str	w5, [x9, #NODE_PROBE]
	str	x9, [x4, #OWNER_TOP]
	ADD_TO	OWNER_COUNT, x4, 1
	str	x9, [x1, #STATE_CALL]
	str	x4, [x1, #STATE_OWNER]
entered:
	KEPT

// A function is left. STATE_ASKED has the probe, and in the fourth word 1 if the function is to begin anew. Leaves its
// call in x0 and in STATE_CALL, or 0 if it was not watched. It is taken from its owner, and stays as it is until
// the thread makes another one.
ROUTINE leave_call
	KEEP
	bl	over
	ldr	w5, [x1, #STATE_ASKED]
	mov	x0, #0
	ldr	w10, [x1, #(STATE_ASKED+12)]
	cbz	w10, 1f
	AGAIN
	str	x10, [x4, #OWNER_AGAIN]
	b	left
1:	bl	find_call
	cbz	x6, left
	UNLINK
	mov	x0, x9
	ldr	x10, [x9, #NODE_RET]
	cmp	x10, x16
	b.eq	2f
	LOSE	x9, LOST_UNWOUND	// another call has its place, that was not seen to begin
	mov	x0, #0
2:	str	x0, [x1, #STATE_CALL]
	bl	free_call
left:	KEPT

// The call STATE_CALL, its owner's newest, is not to be watched.
ROUTINE forget_call
	KEEP
	ldr	x9, [x1, #STATE_CALL]
	bl	pop_call
	KEPT

// ---- Called by programs, on the private stack ----

// Where a program's detour goes on that the controller wants to have back. Should nobody be there any
// more, the lifeline has the thread go on behind the trap. x2 is free there.
ROUTINE trap_exit
	brk	#0
	ldr	x2, [x28, #STATE_BACK]
	br	x2

ROUTINE helpers

// The helpers: see package bpf for what they do, and for the layout of what they work on.
// Arguments in x0 to x4; the answer in x7. They may change x0 to x17, and have the thread's state
// in x28.

	// x11 = the 8 bytes at x10, or the w9, less than 8, that are left, padded with zeros; changes
	// x12, x14, x15
	.macro NEXT_WORD
	cmp	w9, #8
	b.lt	7f
	ldr	x11, [x10]
	b	8f
7:	mov	x12, x30
	bl	partial
	mov	x30, x12
8:
	.endm

	.macro FAIL errno
	mov	x7, #-\errno
	ret
	.endm

	// \to becomes the address of the tag of the element \n; changes x10
	.macro TAG_OF n, to
	lsr	\to, \n, #3
	lsl	\to, \to, #BUCKET_SHIFT
	and	x10, \n, #(BUCKET_SLOTS-1)
	add	\to, \to, x10, lsl #2
	add	\to, \to, #BUCKET_TAGS
	ldr	x10, [x0, #HDR_INDEX]
	add	\to, \to, x10
	add	\to, \to, x0
	.endm

	// The element x8 of the map in \map: \to becomes where it is of those of a stride and a beginning;
	// changes x9, x10
	.macro PLACE_OF to, n, stride, begin, map=x0
	ldr	w9, [\map, #\stride]
	ldr	x10, [\map, #\begin]
	madd	\to, \n, x9, x10
	add	\to, \to, \map
	.endm

	// Goes on only where the map's elements are evicted; else to the label
	.macro UNLESS_LRU to
	ldr	w14, [x0, #HDR_TYPE]
	cmp	w14, #LRU_HASH
	ccmp	w14, #LRU_PERCPU_HASH, #4, ne
	b.ne	\to
	.endm

partial:
	mov	x11, #0
	mov	w14, w9
1:	sub	w14, w14, #1
	ldrb	w15, [x10, x14]
	orr	x11, x15, x11, lsl #8
	cbnz	w14, 1b
	ret

// Copies w9 bytes from x10 to x8, which has room for whole words, and leaves x8 behind them.
copy:	cmp	w9, #0
	b.le	2f
1:	NEXT_WORD
	str	x11, [x8], #8
	add	x10, x10, #8
	subs	w9, w9, #8
	b.gt	1b
2:	ret

// ---- Hash maps ----

// Where the key x1 may be in the map x0: the tag w5, the buckets x6 (home) and x7.
places:	ldr	w9, [x0, #HDR_KEY_SIZE]
	mov	x10, x1
	CONSTANT x16, HASH_MUL
	mov	x8, #0
1:	NEXT_WORD
	eor	x8, x8, x11
	mul	x8, x8, x16
	eor	x8, x8, x8, lsr #32
	add	x10, x10, #8
	subs	w9, w9, #8
	b.gt	1b
	orr	w5, w8, #TAG_KEY
	ldr	w9, [x0, #HDR_BUCKETS]
	ldr	x11, [x0, #HDR_INDEX]
	add	x11, x11, x0
	mul	x16, x16, x8
	.irp	r, 8, 16
	lsr	x\r, x\r, #32
	mul	x\r, x\r, x9
	lsr	x\r, x\r, #32
	.endr
	add	x6, x11, x8, lsl #BUCKET_SHIFT
	add	x7, x11, x16, lsl #BUCKET_SHIFT
	ret

// x8 is the element of the map x0 with the key x1, whose places are known; or negative.
search:	mov	x17, x30
	mov	x13, x6
	bl	inside
	tbz	x8, #63, 1f
	mov	x13, x7
	bl	inside
1:	ret	x17

// The same in the bucket x13. Changes x4, x9 to x12, x14 to x16.
inside:	sub	x8, x13, x0
	ldr	x16, [x0, #HDR_INDEX]
	sub	x8, x8, x16
	lsr	x8, x8, #(BUCKET_SHIFT-3)	// its first element
	mov	x4, #0
1:	add	x16, x13, #BUCKET_TAGS
	add	x16, x16, x4, lsl #2
	ldar	w16, [x16]
	cmp	w16, w5
	b.eq	3f
2:	add	x4, x4, #1
	cmp	x4, #BUCKET_SLOTS
	b.lo	1b
	mov	x8, #-1
	ret
3:	add	x11, x8, x4
	PLACE_OF x16, x11, HDR_KEY_STRIDE, HDR_KEYS
	ldr	w9, [x0, #HDR_KEY_SIZE]
	mov	x10, x1
4:	NEXT_WORD
	ldr	x14, [x16], #8
	cmp	x11, x14
	b.ne	2b
	add	x10, x10, #8
	subs	w9, w9, #8
	b.gt	4b
	add	x8, x8, x4
	UNLESS_LRU 5f
	add	x16, x13, #BUCKET_USED
	ldrb	w14, [x16, x4]
	cbnz	w14, 5f
	mov	w14, #1
	strb	w14, [x16, x4]
5:	ret

// x7 becomes the address of this thread's value of the element x8. Changes x9, x10.
value:	PLACE_OF x7, x8, HDR_VALUE_STRIDE, HDR_VALUES
	ldr	w9, [x28, #STATE_SLOT]
	ldr	x10, [x0, #HDR_SLOT_STRIDE]
	madd	x7, x9, x10, x7
	ret

// Locks the bucket x6; w9 becomes 0 if it cannot. Changes x10 to x12, x14.
lock:	add	x10, x6, #BUCKET_LOCK
	mov	w9, #LOCK_TRIES
	ldr	w14, [x28, #(STATE_PID_TGID+4)]
	ldr	w11, [x28, #STATE_SLOT]
	add	w14, w11, w14, lsl #LOCK_SLOT_BITS
	add	w14, w14, #1
1:	ldaxr	w11, [x10]
	cbnz	w11, 2f
	stxr	w12, w14, [x10]
	cbz	w12, 4f
2:	clrex
	cmp	w11, w14
	b.eq	3f			// this thread's, whom a signal's handler has interrupted
	yield
	subs	w9, w9, #1
	b.ne	1b
3:	mov	w9, #0
4:	ret

// Claims the slot x4 of the bucket x13, if it is free: w9 becomes 0. Changes x10, x11, x14.
take:	add	x10, x13, #BUCKET_TAGS
	add	x10, x10, x4, lsl #2
	mov	w11, #TAG_BUSY
1:	ldaxr	w9, [x10]
	cbnz	w9, 2f
	stlxr	w14, w11, [x10]
	cbnz	w14, 1b
	ret
2:	clrex
	ret

ROUTINE map_lookup_elem			// map, key
	ldr	w9, [x0, #HDR_BUCKETS]
	cbnz	w9, 1f
	ldr	w8, [x1]
	ldr	w9, [x0, #HDR_ELEMS]
	cmp	w8, w9
	b.lo	value
	mov	x7, #0
	ret
1:	str	x30, [sp, #-16]!
	bl	places
	bl	search
	ldr	x30, [sp], #16
	tbz	x8, #63, value
	mov	x7, #0
	ret

ROUTINE map_update_elem			// map, key, value, flags
	cmp	x3, #UPDATE_EXIST
	b.hi	invalid
	ldr	w9, [x0, #HDR_BUCKETS]
	cbnz	w9, update_hash
	ldr	w9, [x0, #HDR_TYPE]
	cmp	w9, #ARRAY
	ccmp	w9, #PERCPU_ARRAY, #4, ne
	b.ne	invalid
	ldr	w8, [x1]
	ldr	w9, [x0, #HDR_ELEMS]
	cmp	w8, w9
	b.hs	1f
	cmp	w3, #UPDATE_NOEXIST
	b.eq	2f
	str	x30, [sp, #-16]!
	bl	put_value
	ldr	x30, [sp], #16
	mov	x7, #0
	ret
1:	FAIL	E2BIG
2:	FAIL	EEXIST
invalid:
	FAIL	EINVAL

// The value x2 for the element x8. Changes x7 to x12, x14 to x16.
put_value:
	mov	x16, x30
	bl	value
	mov	x8, x7
	mov	x10, x2
	ldr	w9, [x0, #HDR_VALUE_SIZE]
	bl	copy
	ret	x16

update_hash:
	stp	x19, x20, [sp, #-32]!
	stp	x21, x30, [sp, #16]
	mov	x20, #-EBUSY
	bl	places
	bl	lock
	cbz	w9, out
	mov	x19, x6			// the home, which is locked
	bl	search
	tbnz	x8, #63, 1f
	mov	x20, #-EEXIST
	cmp	w3, #UPDATE_NOEXIST
	b.eq	unlock
	bl	put_value		// which was there
	mov	x20, #0
	b	unlock
1:	mov	x20, #-ENOENT
	cmp	w3, #UPDATE_EXIST
	b.eq	unlock

	// The first free element, by turns in both buckets, so that they fill evenly.
	mov	x4, #0
2:	mov	x13, x6
	bl	take
	cbz	w9, new
	mov	x13, x7
	bl	take
	cbz	w9, new
	add	x4, x4, #1
	cmp	x4, #BUCKET_SLOTS
	b.lo	2b
	mov	x20, #-E2BIG
	UNLESS_LRU unlock
	mov	x13, x6
	mov	w16, #(2*BUCKET_SLOTS)

	// LRU: the hand goes round; what was used since gets another chance.
evict:	ldr	w4, [x13, #BUCKET_HAND]
	and	w4, w4, #(BUCKET_SLOTS-1)
	add	w9, w4, #1
	and	w9, w9, #(BUCKET_SLOTS-1)
	str	w9, [x13, #BUCKET_HAND]
	add	x10, x13, #BUCKET_USED
	ldrb	w9, [x10, x4]
	cbz	w9, 3f
	strb	wzr, [x10, x4]
	b	5f
3:	add	x10, x13, #BUCKET_TAGS
	add	x10, x10, x4, lsl #2
	ldr	w9, [x10]
	cmp	w9, #TAG_BUSY
	b.eq	5f
	mov	w11, #TAG_BUSY
4:	ldaxr	w12, [x10]
	cmp	w12, w9
	b.ne	6f
	stlxr	w14, w11, [x10]
	cbnz	w14, 4b
	b	new
6:	clrex
5:	subs	w16, w16, #1
	b.ne	evict
	mov	x20, #-EBUSY
	b	unlock

	// Slot x4 of the bucket x13 is ours.
new:	sub	x21, x13, x0
	ldr	x9, [x0, #HDR_INDEX]
	sub	x21, x21, x9
	lsr	x21, x21, #(BUCKET_SHIFT-3)
	add	x21, x21, x4		// the element
	PLACE_OF x8, x21, HDR_KEY_STRIDE, HDR_KEYS
	mov	x10, x1
	ldr	w9, [x0, #HDR_KEY_SIZE]
	bl	copy
	add	x9, x13, #BUCKET_USED
	strb	wzr, [x9, x4]
	PLACE_OF x8, x21, HDR_VALUE_STRIDE, HDR_VALUES
	ldr	w10, [x0, #HDR_SLOTS]	// zero the values of all threads, and first the controller's
	sub	w10, w10, #1
	ldr	x11, area+AREA_HEAD
	ldr	w12, [x11, #HEAD_HELD]
	cmp	w10, w12
	csel	w10, w10, w12, ls
	add	w10, w10, #1
	ldr	x11, [x0, #HDR_SLOT_STRIDE]
	sub	x8, x8, x11
7:	cbz	w10, 9f
	mov	x12, #0
8:	str	xzr, [x8, x12]
	add	x12, x12, #8
	cmp	x12, x9
	b.lo	8b
	sub	w10, w10, #1
	add	x8, x8, x11
	b	7b
9:	mov	x8, x21
	bl	put_value
	add	x9, x13, #BUCKET_TAGS
	add	x9, x9, x4, lsl #2
	stlr	w5, [x9]		// and now it is there
	mov	x20, #0
unlock:	add	x9, x19, #BUCKET_LOCK
	stlr	wzr, [x9]
out:	mov	x7, x20
	ldp	x21, x30, [sp, #16]
	ldp	x19, x20, [sp], #32
	ret

ROUTINE map_delete_elem			// map, key
	ldr	w9, [x0, #HDR_BUCKETS]
	cbnz	w9, 2f
	ldr	w9, [x0, #HDR_TYPE]
	cmp	w9, #STACK_TRACE
	b.ne	invalid
	ldr	w8, [x1]
	ldr	w9, [x0, #HDR_ELEMS]
	cmp	w8, w9
	b.hs	6f
	ldr	x10, [x0, #HDR_INDEX]
	add	x10, x10, x0
	mov	w9, #TRACE_INDEX_SIZE
	madd	x10, x8, x9, x10
	add	x10, x10, #TRACE_COUNT
1:	ldaxr	w9, [x10]
	stlxr	w11, wzr, [x10]
	cbnz	w11, 1b
	cbz	w9, 6f
	mov	x7, #0
	ret
2:	str	x30, [sp, #-16]!
	bl	places
	bl	lock
	cbz	w9, 5f
	bl	search
	mov	x7, #-ENOENT
	tbnz	x8, #63, 4f
	TAG_OF	x8, x13
3:	ldaxr	w10, [x13]
	cmp	w10, w5
	b.ne	7f			// evicted just now
	stlxr	w11, wzr, [x13]
	cbnz	w11, 3b
	mov	x7, #0
	b	4f
7:	clrex
4:	add	x9, x6, #BUCKET_LOCK
	stlr	wzr, [x9]
	ldr	x30, [sp], #16
	ret
5:	ldr	x30, [sp], #16
	FAIL	EBUSY
6:	FAIL	ENOENT

ROUTINE map_walk			// map, position, key
1:	ldr	x8, [x1]
	ldr	w9, [x0, #HDR_ELEMS]
	cmp	x8, x9
	b.hs	4f
	add	x9, x8, #1
	str	x9, [x1]
	ldr	w9, [x0, #HDR_BUCKETS]
	cbz	w9, 3f
	TAG_OF	x8, x13
	ldar	w5, [x13]
	tst	w5, #TAG_KEY
	b.eq	1b
	PLACE_OF x6, x8, HDR_KEY_STRIDE, HDR_KEYS
	ldr	w10, [x0, #HDR_KEY_SIZE]
	mov	x9, #0
2:	ldrb	w11, [x6, x9]
	strb	w11, [x2, x9]
	add	x9, x9, #1
	cmp	x9, x10
	b.lo	2b
	dmb	ishld
	ldr	w11, [x13]
	cmp	w11, w5
	b.ne	1b
	b	value
3:	str	w8, [x2]
	b	value
4:	mov	x7, #0
	ret

// ---- Rings ----

ROUTINE ringbuf_reserve			// map, size, flags
	ldr	w5, [x0, #HDR_RING_SIZE]
	ldr	w6, [x28, #STATE_SLOT]
	ldr	x8, [x0, #HDR_SLOT_STRIDE]
	ldr	x9, [x0, #HDR_VALUES]
	madd	x6, x6, x8, x9
	add	x6, x6, x0		// this thread's ring
	cmp	x1, x5
	b.hi	3f
	add	x8, x1, #(7+RECORD_HEADER)
	and	x8, x8, #-8		// what the record takes
	ldr	x9, [x6, #RING_HEAD]
	sub	x10, x5, #1
	and	x10, x10, x9		// where it would be
	mov	x11, #0
	add	x12, x10, x8
	cmp	x12, x5
	b.ls	1f
	sub	x11, x5, x10		// to be filled before the ring's end
1:	add	x9, x9, x11
	add	x9, x9, x8		// the new head
	add	x12, x6, #RING_TAIL
	ldar	x12, [x12]
	sub	x12, x9, x12
	cmp	x12, x5
	b.hi	3f
	cbz	x11, 2f
	sub	w11, w11, #RECORD_HEADER
	orr	w11, w11, #RECORD_DISCARD
	add	x12, x6, x10
	str	x11, [x12, #RING_DATA]
	mov	x10, #0
2:	orr	w1, w1, #RECORD_BUSY
	add	x12, x6, x10
	str	x1, [x12, #RING_DATA]
	add	x13, x6, #RING_HEAD
	stlr	x9, [x13]
	add	x7, x12, #(RING_DATA+RECORD_HEADER)
	ret
3:	ldr	x9, [x6, #RING_LOST]
	add	x9, x9, #1
	str	x9, [x6, #RING_LOST]
	mov	x7, #0
	ret

	// The record \at is complete. Changes x9, x10.
	.macro SUBMIT at
	sub	x9, \at, #RECORD_HEADER
	ldr	w10, [x9]
	and	w10, w10, #(RECORD_BUSY-1)
	stlr	w10, [x9]
	.endm

// A record of x2 bytes at x1 for the ring x0; x7 is 0 if there is no room.
record:	stp	x30, x1, [sp, #-32]!
	str	x2, [sp, #16]
	mov	x1, x2
	bl	ringbuf_reserve_
	ldr	x10, [sp, #8]
	ldr	x9, [sp, #16]
	cbz	x7, 1f
	mov	x8, x7
	bl	copy
	SUBMIT	x7
1:	ldr	x30, [sp], #32
	ret

ROUTINE ringbuf_output			// map, data, size, flags
	ldr	w9, [x0, #HDR_RING_SIZE]
	sub	w9, w9, #RECORD_HEADER
	cmp	x2, x9
	b.hi	1f
	str	x30, [sp, #-16]!
	bl	record
	ldr	x30, [sp], #16
	cbz	x7, 2f
	mov	x7, #0
	ret
1:	FAIL	E2BIG
2:	FAIL	EAGAIN

ROUTINE perf_event_output		// context, map, flags, data, size
	lsr	x9, x2, #32
	cbnz	x9, invalid
	mov	x0, x1
	mov	x1, x3
	mov	x2, x4
	str	x30, [sp, #-16]!
	bl	record
	ldr	x30, [sp], #16
	cbz	x7, 1f
	mov	x7, #0
	ret
1:	FAIL	ENOSPC

ROUTINE trace_printk			// format, size, three values
	stp	x2, x3, [sp, #-48]!
	str	x4, [sp, #16]
	str	x30, [sp, #32]
	mov	x2, sp
	mov	x3, #(3*8)
	bl	trace_vprintk_
	ldr	x30, [sp, #32]
	add	sp, sp, #48
	ret

ROUTINE trace_vprintk			// format, size, values, their size
	stp	x19, x20, [sp, #-80]!
	stp	x21, x22, [sp, #16]
	stp	x23, x24, [sp, #32]
	stp	x30, x1, [sp, #48]
	mov	x19, x0			// format
	mov	x20, x2			// values
	mov	x9, #(8*MAX_PRINTK_OF)
	cmp	x3, x9
	csel	x21, x3, x9, lo
	and	x21, x21, #-8		// their size
	mov	x9, #MAX_PRINTK
	cmp	x1, x9
	csel	x22, x1, x9, lo		// the format's
	mov	x23, #0			// texts
	mov	x5, #0
1:	bl	conversion
	cbz	w6, 2f
	cmp	w6, #'s'
	b.ne	1b
	add	x23, x23, #1
	b	1b
2:	ldr	x0, area+AREA_HEAD
	ldr	x0, [x0, #HEAD_TRACE]
	cbz	x0, 6f
	mov	x9, #PRINTK_TEXT
	madd	x1, x23, x9, x21
	add	x1, x1, x22
	add	x1, x1, #(PRINTK_ARGS+7)
	and	x1, x1, #-8
	bl	ringbuf_reserve_
	cbz	x7, 6f			// no room: the ring has counted it
	mov	x24, x7
	ldr	w9, [x28, #STATE_PID_TGID]
	str	w9, [x24, #PRINTK_THREAD]
	str	w22, [x24, #PRINTK_LEN]
	lsr	w9, w21, #3
	str	w9, [x24, #PRINTK_COUNT]
	str	w23, [x24, #PRINTK_TEXTS]
	add	x8, x24, #PRINTK_ARGS
	mov	x10, x20
	mov	w9, w21
	bl	copy
	mov	x10, x19
	mov	w9, w22
	bl	copy
	add	x23, x20, x21		// the values' end
	mov	x21, x8			// where texts go
	mov	x5, #0
3:	cmp	x20, x23
	b.hs	5f
	bl	conversion
	cbz	w6, 5f
	cmp	w6, #'s'
	b.ne	4f
	str	x5, [sp, #64]
	mov	x0, x21
	mov	x1, #PRINTK_TEXT
	ldr	x2, [x20]
	bl	probe_read_str_
	ldr	x5, [sp, #64]
	tbz	x7, #63, 9f
	mov	w9, #0x100		// not to be read
	strh	w9, [x21]
9:	add	x21, x21, #PRINTK_TEXT
4:	add	x20, x20, #8
	b	3b
5:	SUBMIT	x24
6:	ldp	x30, x7, [sp, #48]
	ldp	x23, x24, [sp, #32]
	ldp	x21, x22, [sp, #16]
	ldp	x19, x20, [sp], #80
	ret

// w6 becomes the verb of the next conversion of the format x19, of x22 bytes, from x5 on, which is
// moved behind it; 0 at the end. Pointers to text (%pks, %pus) are 's'.
conversion:
	mov	x17, x30
1:	bl	letter
	cbz	w6, 4f
	cmp	w6, #'%'
	b.ne	1b
2:	bl	letter
	cbz	w6, 4f
	cmp	w6, #'%'
	b.eq	1b
	cmp	w6, #'A'		// flags, width and precision
	b.lo	2b
	.irp	size, 'l', 'h', 'z', 'j'
	cmp	w6, #\size
	b.eq	2b
	.endr
	cmp	w6, #'p'
	b.ne	4f
	add	x9, x5, #2
	cmp	x9, x22
	b.hi	4f
	add	x10, x19, x5
	ldrb	w11, [x10, #1]
	cmp	w11, #'s'
	b.ne	4f
	ldrb	w11, [x10]
	cmp	w11, #'k'
	b.eq	3f
	cmp	w11, #'u'
	b.ne	4f
3:	mov	x5, x9
	mov	w6, #'s'
4:	ret	x17

letter:	mov	w6, #0
	cmp	x5, x22
	b.hs	1f
	ldrb	w6, [x19, x5]
	add	x5, x5, #1
1:	ret

// ---- The target's memory ----

ROUTINE probe_read			// destination, size, source
	mov	x5, x0
	mov	x6, x1
1:	cmp	x1, #8
	b.lo	2f
	MAY_FAULT bad_address
	ldr	x9, [x2]
	str	x9, [x0], #8
	add	x2, x2, #8
	sub	x1, x1, #8
	b	1b
2:	cbz	x1, 3f
	MAY_FAULT bad_address
	ldrb	w9, [x2]
	strb	w9, [x0], #1
	add	x2, x2, #1
	sub	x1, x1, #1
	b	2b
3:	mov	x7, #0
	ret

bad_address:				// the x6 bytes at x5 become zeros
	cbz	x6, 1f
	strb	wzr, [x5], #1
	sub	x6, x6, #1
	b	bad_address
1:	FAIL	EFAULT

ROUTINE probe_read_str			// destination, size, source
	mov	x5, x0
	mov	x6, x1
	mov	x7, #0
1:	cmp	x7, x1
	b.hs	2f
	MAY_FAULT bad_address
	ldrb	w10, [x2, x7]
	strb	w10, [x0, x7]
	add	x7, x7, #1
	cbnz	w10, 1b
	ret
2:	cbz	x7, 3f
	add	x10, x0, x7
	sturb	wzr, [x10, #-1]
3:	ret

ROUTINE probe_write_user		// destination, source, size
1:	cmp	x2, #8
	b.lo	2f
	ldr	x9, [x1]
	MAY_FAULT no_address
	str	x9, [x0]
	add	x0, x0, #8
	add	x1, x1, #8
	sub	x2, x2, #8
	b	1b
2:	cbz	x2, 3f
	ldrb	w9, [x1]
	MAY_FAULT no_address
	strb	w9, [x0]
	add	x0, x0, #1
	add	x1, x1, #1
	sub	x2, x2, #1
	b	2b
3:	mov	x7, #0
	ret
no_address:
	FAIL	EFAULT

// The return addresses of the chain of frame pointers become an element.
ROUTINE get_stackid			// context, map, flags
	mov	w9, #(STACK_SKIP|STACK_FLAGS)
	bic	x9, x2, x9
	cbnz	x9, invalid
	mov	w3, w2
	and	w2, w2, #STACK_SKIP	// to be skipped
	ldr	x9, [x0, #(8*CONTEXT_IP)]
	ldr	x10, [x0, #(8*CONTEXT_FP)]
	ldr	x11, [x0, #(8*CONTEXT_LINK)]
	ldr	w5, [x1, #HDR_VALUE_SIZE]
	lsr	w5, w5, #3
	mov	w8, #STATE_TRACE
	add	x8, x28, x8
	mov	x4, #0			// how many there are
	mov	w6, #0
1:	cmp	w4, w5
	b.hs	walked
	cmp	w6, w2
	b.lo	2f
	str	x9, [x8, x4, lsl #3]
	add	w4, w4, #1
2:	add	w6, w6, #1
	tbz	w3, #STACK_ENTRY_BIT, 3f
	and	w3, w3, #(0xffffffff ^ (1 << STACK_ENTRY_BIT))
	mov	x9, x11			// where a function begins, it has no frame yet
	b	4f
3:	cbz	x10, walked
	tst	x10, #7
	b.ne	walked
	MAY_FAULT walked
	ldr	x12, [x10]
	MAY_FAULT walked
	ldr	x9, [x10, #8]
	cmp	x12, x10
	csel	x10, x12, xzr, hi	// frames that go down are none
4:	and	x9, x9, #0xffffffffffff	// without its signature
	cbnz	x9, 1b
walked:	mov	x7, #-EFAULT
	cbz	w4, 9f
	mov	x0, x30
	CONSTANT x16, HASH_MUL
	mov	x9, #0
	mov	x6, #0
3:	ldr	x10, [x8, x6, lsl #3]
	eor	x9, x9, x10
	mul	x9, x9, x16
	eor	x9, x9, x9, lsr #32
	add	w6, w6, #1
	cmp	w6, w4
	b.lo	3b
	lsr	x10, x9, #32
	eor	w9, w9, w10		// the hash
	mov	w5, #TRACE_BUSY
	mov	x6, #0
4:	add	x11, x9, x6
	bl	trace_element
5:	ldaxr	w12, [x15]
	cbnz	w12, 6f
	stlxr	w17, w5, [x15]
	cbnz	w17, 5b
	b	fill
6:	clrex
	cmp	w12, w4
	b.ne	8f
	ldr	w12, [x14, #TRACE_HASH]
	cmp	w12, w9
	b.ne	8f
	mov	x12, #0
7:	ldr	x16, [x11, x12, lsl #3]
	ldr	x17, [x8, x12, lsl #3]
	cmp	x16, x17
	b.ne	8f
	add	w12, w12, #1
	cmp	w12, w4
	b.lo	7b
	mov	w7, w13
	ret	x0
8:	add	w6, w6, #1
	cmp	w6, #TRACE_PROBES
	b.lo	4b
	mov	x7, #-EEXIST
	tst	w3, #STACK_REUSE
	b.eq	10f
	mov	w11, w9
	bl	trace_element
	mov	x7, #-EBUSY
	ldr	w12, [x15]
	cmp	w12, w5
	b.eq	10f
1:	ldaxr	w16, [x15]
	cmp	w16, w12
	b.ne	2f
	stlxr	w17, w5, [x15]
	cbnz	w17, 1b
fill:	ldr	w12, [x1, #HDR_VALUE_SIZE]
	lsr	w12, w12, #3
	mov	x6, #0
1:	mov	x16, #0
	cmp	w6, w4
	b.hs	3f
	ldr	x16, [x8, x6, lsl #3]
3:	str	x16, [x11, x6, lsl #3]
	add	w6, w6, #1
	cmp	w6, w12
	b.lo	1b
	str	w9, [x14, #TRACE_HASH]
	stlr	w4, [x15]
	mov	w7, w13
	ret	x0
2:	clrex
10:	ret	x0
9:	ret

// x13 becomes the element that the hash x11 stands for; x14 is its index, x15 where its count is, and x11 its
// value. Changes x12.
trace_element:
	ldr	w12, [x1, #HDR_ELEMS]
	udiv	x13, x11, x12
	msub	x13, x13, x12, x11
	ldr	x14, [x1, #HDR_INDEX]
	add	x14, x14, x1
	mov	w12, #TRACE_INDEX_SIZE
	madd	x14, x13, x12, x14
	add	x15, x14, #TRACE_COUNT
	ldr	w11, [x1, #HDR_VALUE_STRIDE]
	ldr	x12, [x1, #HDR_VALUES]
	madd	x11, x13, x11, x12
	add	x11, x11, x1
	ret

// ---- The rest ----

ROUTINE ktime_get_ns
	ldr	x8, area+AREA_HEAD
	isb
	mrs	x9, cntvct_el0
	ldr	x10, [x8, #HEAD_CLOCK_MULT]
	ldr	x11, [x8, #HEAD_CLOCK_SHIFT]
	mul	x12, x9, x10
	umulh	x13, x9, x10
	lsr	x12, x12, x11
	neg	x11, x11		// modulo 64; the shift is none of its multiples
	lsl	x13, x13, x11
	orr	x7, x12, x13
	ldr	x9, [x8, #HEAD_CLOCK_BASE]
	add	x7, x7, x9
	ret

ROUTINE ktime_get_boot_ns
	mov	x17, x30
	bl	ktime_get_ns_
	ldr	x9, [x8, #HEAD_CLOCK_BOOT]
	add	x7, x7, x9
	ret	x17

ROUTINE get_prandom_u32
	ldr	x7, [x28, #STATE_RANDOM]
	cbnz	x7, 1f
	mrs	x7, cntvct_el0
	eor	x7, x7, x28
1:	eor	x7, x7, x7, lsl #13
	eor	x7, x7, x7, lsr #7
	eor	x7, x7, x7, lsl #17
	str	x7, [x28, #STATE_RANDOM]
	lsr	x7, x7, #32
	ret

ROUTINE get_current_uid_gid
	ldr	x7, area+AREA_HEAD
	ldr	x7, [x7, #HEAD_UID_GID]
	ret

ROUTINE get_current_comm		// destination, size
	mov	x9, #0
	add	x12, x28, #STATE_COMM
1:	mov	w10, #0
	add	x11, x9, #1
	cmp	x11, x1
	b.hs	2f			// the last is a NUL
	cmp	x9, #COMM_SIZE
	b.hs	2f
	ldrb	w10, [x12, x9]
2:	strb	w10, [x0, x9]
	mov	x9, x11
	cmp	x9, x1
	b.lo	1b
	mov	x7, #0
	ret
