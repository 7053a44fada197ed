# The trap handler that lives in an arm64 target: see trap.go for the header
# that its code stands behind. The kernel calls it with the signal's number in
# w0, its siginfo in x1 and its ucontext in x2, in which the saved registers begin
# at 184 in the order x0-x30, sp, pc, pstate.
	.set	SP, 432
	.set	PC, 440
	.set	CODE, 8			// of siginfo: si_code
	.set	ADDR, 16		// and si_addr
	.set	BRK, 0xd4200000

	.text
header:
	.space	256

handler:
	adr	x3, header
	ldr	w4, [x1, #CODE]
	cmp	w4, #4			// TRAP_HWBKPT: an access to what the tracer watched; the
	b.eq	ignore			// registers are cleared by who recovers, and it is tried again
	cmp	w4, #1			// TRAP_BRKPT: an instruction's, not somebody's
	b.ne	foreign
	ldr	x5, [x2, #PC]
	ldr	x6, [x1, #ADDR]
	cmp	x5, x6			// the tracer has dealt with this trap, and died
	b.ne	ignore			// before it could keep the signal back
	ldr	x6, [x3, #16]		// entries, sorted by address
	mov	x7, #0			// lowest that may be it
	ldr	x8, [x3, #24]		// one past the highest
search:
	cmp	x7, x8
	b.hs	frames
	add	x9, x7, x8
	lsr	x9, x9, #1
	add	x10, x9, x9, lsl #1	// entries are 24 bytes
	add	x10, x6, x10, lsl #3
	ldr	x11, [x10]
	cmp	x5, x11
	b.eq	found
	b.hi	above
	mov	x8, x9
	b	search
above:
	add	x7, x9, #1
	b	search
found:
	ldr	x5, [x10, #8]		// where the instruction is carried out
resume:
	str	x5, [x2, #PC]
ignore:
	ret

frames:					// not a probe: the return trampoline?
	ldr	x6, [x3, #32]
	cmp	x5, x6
	b.ne	gone
	ldr	x7, [x2, #SP]		// the call's, as at its entry
	ldr	x8, [x3, #40]
	ldr	x9, [x3, #48]
	lsr	x10, x7, #3
next:
	and	x10, x10, x9
	add	x11, x8, x10, lsl #4
	ldr	x12, [x11]
	cmp	x12, x7
	b.eq	caller
	add	x10, x10, #1
	cbnz	x12, next
	b	foreign
caller:
	ldr	x5, [x11, #8]
	b	resume

gone:					// a trap that has been taken away since?
	ldr	w6, [x5]
	mov	w7, #BRK >> 16
	lsl	w7, w7, #16
	cmp	w6, w7
	b.ne	ignore
foreign:				// the program's own, or sent by somebody
	ldr	x9, [x3, #56]
	cmp	x9, #1
	b.hi	call
	b.lo	default
	cmp	w4, #1			// SIG_IGN holds for what was sent; a trap ends the program
	b.ne	ignore
default:
	mov	x0, #5			// SIGTRAP
	add	x1, x3, #96		// SIG_DFL
	mov	x2, #0
	mov	x3, #8
	mov	x8, #134		// rt_sigaction
	svc	#0
	mov	x8, #172		// getpid
	svc	#0
	mov	x9, x0
	mov	x8, #178		// gettid
	svc	#0
	mov	x1, x0
	mov	x0, x9
	mov	x2, #5
	mov	x8, #131		// tgkill
	svc	#0
	ret
call:
	ret	x9			// no landing pad is needed

	.balign	4
	.org	header + 256 + 0x140, 0
restorer:
	mov	x8, #139		// rt_sigreturn
	svc	#0

	.org	header + 256 + 0x150, 0
returner:				// a function has returned, and its trap is no more
	sub	sp, sp, #48
	stp	x0, x1, [sp]
	stp	x2, x3, [sp, #16]
	str	x4, [sp, #32]
	adr	x0, header
	ldr	x1, [x0, #40]
	ldr	x2, [x0, #48]
	add	x3, sp, #48		// the call's stack pointer
	lsr	x4, x3, #3
look:
	and	x4, x4, x2
	add	x16, x1, x4, lsl #4
	ldr	x17, [x16]
	eor	x0, x17, x3		// the flags stay as they are
	cbz	x0, there
	add	x4, x4, #1
	cbnz	x17, look
	brk	#1
there:
	ldr	x16, [x16, #8]
	ldp	x0, x1, [sp]
	ldp	x2, x3, [sp, #16]
	ldr	x4, [sp, #32]
	add	sp, sp, #48
	ret	x16			// unlike br, it needs no landing pad
