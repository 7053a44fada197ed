# The trap handler that lives in an s390x target: see trap.go for the header
# that its code stands behind. The kernel calls it with the signal's number in
# r2, its siginfo in r3 and its ucontext in r4, in which the program status word begins at 40,
# and the general registers at 56. It may change all registers but r14 and r15.
	.set	PC, 48
	.set	SP, 176
	.set	CODE, 8			# of siginfo: si_code
	.set	ADDR, 16		# and si_addr
	.set	BREAK, 1

	.text
header:
	.space	256

handler:
	larl	%r5, header
	lgf	%r0, CODE(%r3)
	cghi	%r0, 1			# TRAP_BRKPT: an instruction's, not somebody's
	jne	foreign
	lg	%r1, PC(%r4)
	lg	%r6, ADDR(%r3)
	cgr	%r1, %r6		# it was set back to the trap
	je	trapped
	la	%r7, 2(%r6)
	cgr	%r1, %r7
	jne	ignore			# the tracer has dealt with this trap, and died
					# before it could keep the signal back
trapped:
	lg	%r7, 16(%r5)		# entries, sorted by address
	lghi	%r8, 0			# lowest that may be it
	lg	%r9, 24(%r5)		# one past the highest
search:
	clgr	%r8, %r9
	jhe	frames
	la	%r10, 0(%r8,%r9)
	srlg	%r10, %r10, 1
	sllg	%r11, %r10, 1		# entries are 24 bytes
	agr	%r11, %r10
	sllg	%r11, %r11, 3
	agr	%r11, %r7
	clg	%r6, 0(%r11)
	je	found
	jh	above
	lgr	%r9, %r10
	j	search
above:
	la	%r8, 1(%r10)
	j	search
found:
	lg	%r6, 8(%r11)		# where the instruction is carried out
resume:
	stg	%r6, PC(%r4)
ignore:
	br	%r14

frames:					# not a probe: the return trampoline?
	clg	%r6, 32(%r5)
	jne	gone
	lg	%r8, SP(%r4)		# the call's, as at its entry
	lg	%r9, 40(%r5)
	lg	%r10, 48(%r5)
	srlg	%r11, %r8, 3
next:
	ngr	%r11, %r10
	sllg	%r12, %r11, 4
	agr	%r12, %r9
	lg	%r13, 0(%r12)
	cgr	%r13, %r8
	je	caller
	la	%r11, 1(%r11)
	ltgr	%r13, %r13
	jne	next
	j	foreign
caller:
	lg	%r6, 8(%r12)
	j	resume

gone:					# a trap that has been taken away since?
	llgh	%r7, 0(%r6)
	cghi	%r7, BREAK
	jne	resume
foreign:				# the program's own, or sent by somebody
	lg	%r7, 56(%r5)
	cghi	%r7, 0
	je	default
	cghi	%r7, 1
	jne	call
	cghi	%r0, 1			# SIG_IGN holds for what was sent; a trap ends the program
	jne	ignore
	j	default
call:
	br	%r7

	.org	header + 256 + 0x140, 0
restorer:				# the vDSO has its like
	svc	173			# rt_sigreturn

	.org	header + 256 + 0x150, 0
returner:				# a function has returned, and its trap is no more
	larl	%r5, header
	lg	%r4, 48(%r5)
	lg	%r5, 40(%r5)
	srlg	%r1, %r15, 3
look:
	ngr	%r1, %r4
	sllg	%r14, %r1, 4
	agr	%r14, %r5
	lg	%r0, 0(%r14)
	cgr	%r0, %r15
	je	there
	la	%r1, 1(%r1)
	ltgr	%r0, %r0
	jne	look
	.short	BREAK
there:
	lg	%r14, 8(%r14)
	br	%r14

default:				# the program ends by it
	la	%r3, 96(%r5)		# SIG_DFL
	lghi	%r2, 5			# SIGTRAP
	lghi	%r4, 0
	lghi	%r5, 8
	svc	174			# rt_sigaction
	svc	20			# getpid
	lgr	%r6, %r2
	svc	236			# gettid
	lgr	%r3, %r2
	lgr	%r2, %r6
	lghi	%r4, 5
	lghi	%r1, 241		# tgkill
	svc	0
	br	%r14
