# The trap handler that lives in a ppc64le target: see trap.go for the header
# that its code stands behind. The kernel calls it with the signal's number in
# r3, its siginfo in r4, its ucontext in r5 and its own address in r12. The saved registers begin
# at 232, in the order r0 to r31, nip, msr, the first argument of a call, ctr, lr. It may change all
# registers but r1, r2, r13 and lr, and what the program's own handler is given.
	.set	PC, 232 + 8 * 32
	.set	SP, 232 + 8 * 1
	.set	LR, 232 + 8 * 36
	.set	CODE, 8			# of siginfo: si_code
	.set	ADDR, 16		# and si_addr
	.set	BREAK_HIGH, 0x7fe0	# trap
	.set	BREAK_LOW, 8

	.text
header:
	.space	256

handler:
	addi	6, 12, -256		# header
	lwz	7, CODE(4)
	cmpwi	7, 1			# TRAP_BRKPT: an instruction's, not somebody's
	bne	foreign
	ld	8, PC(5)
	ld	9, ADDR(4)
	cmpld	8, 9			# the tracer has dealt with this trap, and died
	bnelr				# before it could keep the signal back
	ld	9, 16(6)		# entries, sorted by address
	li	10, 0			# lowest that may be it
	ld	11, 24(6)		# one past the highest
search:
	cmpld	10, 11
	bge	frames
	add	12, 10, 11
	srdi	12, 12, 1
	mulli	31, 12, 24		# entries are 24 bytes
	add	31, 31, 9
	ld	0, 0(31)
	cmpld	8, 0
	beq	found
	bgt	above
	mr	11, 12
	b	search
above:
	addi	10, 12, 1
	b	search
found:
	lwz	9, 16(31)		# of a call only the branch is done there
	srwi	10, 9, 26
	cmpwi	10, 18			# b
	beq	branch
	cmpwi	10, 16			# bc
	beq	branch
	cmpwi	10, 19			# bclr, bcctr, and others that have the last bit 0
	bne	enter
branch:
	andi.	9, 9, 1
	beq	enter
	addi	9, 8, 4
	std	9, LR(5)
enter:
	ld	8, 8(31)		# where the instruction is carried out
resume:
	std	8, PC(5)
	blr

frames:					# not a probe: the return trampoline?
	ld	9, 32(6)
	cmpld	8, 9
	bne	gone
	ld	9, SP(5)		# the call's, as at its entry
	ld	10, 40(6)
	ld	11, 48(6)
	srdi	12, 9, 3
next:
	and	12, 12, 11
	sldi	31, 12, 4
	add	31, 31, 10
	ld	0, 0(31)
	cmpld	0, 9
	beq	caller
	addi	12, 12, 1
	cmpdi	0, 0
	bne	next
	b	foreign
caller:
	ld	8, 8(31)
	b	resume

gone:					# a trap that has been taken away since?
	lwz	9, 0(8)
	lis	10, BREAK_HIGH
	ori	10, 10, BREAK_LOW
	cmplw	9, 10
	bnelr
	b	foreign

	.org	header + 256 + 0x140, 0
restorer:				# the vDSO has its like
	li	0, 172			# rt_sigreturn
	sc

	.org	header + 256 + 0x150, 0
returner:				# a function has returned, and its trap is no more
	addi	12, 12, -(256 + 0x150)	# header: the way here is by r12
	ld	11, 40(12)
	ld	12, 48(12)
	srdi	10, 1, 3
look:
	and	10, 10, 12
	sldi	9, 10, 4
	add	9, 9, 11
	ld	0, 0(9)
	cmpld	0, 1
	beq	there
	addi	10, 10, 1
	cmpdi	0, 0
	bne	look
	trap
there:
	ld	0, 8(9)
	mtlr	0
	blr

foreign:				# the program's own, or sent by somebody
	ld	12, 56(6)
	cmpldi	12, 1
	bgt	call
	blt	default
	cmpwi	7, 1			# SIG_IGN holds for what was sent; a trap ends the program
	bnelr
default:
	li	3, 5			# SIGTRAP
	addi	4, 6, 96		# SIG_DFL
	li	5, 0
	li	6, 8
	li	0, 173			# rt_sigaction
	sc
	li	0, 20			# getpid
	sc
	mr	31, 3
	li	0, 207			# gettid
	sc
	mr	4, 3
	mr	3, 31
	li	5, 5
	li	0, 250			# tgkill
	sc
	blr
call:
	mtctr	12
	bctr
