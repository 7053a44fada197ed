# The trap handler that lives in a riscv64 target: see trap.go for the header
# that its code stands behind. The kernel calls it with the signal's number in
# a0, its siginfo in a1 and its ucontext in a2, in which the saved registers begin
# at 176 in the order pc, x1 to x31.
	.set	PC, 176
	.set	SP, 192
	.set	CODE, 8			# of siginfo: si_code
	.set	ADDR, 16		# and si_addr
	.set	BREAK, 0x9002		# c.ebreak

	.option	norelax
	.text
header:
	.space	256

handler:
	auipc	t0, 0			# header
	addi	t0, t0, -256
	lw	t1, CODE(a1)
	li	t2, 1			# TRAP_BRKPT: an instruction's, not somebody's
	bne	t1, t2, foreign
	ld	a3, PC(a2)
	ld	t3, ADDR(a1)
	bne	a3, t3, ignore		# the tracer has dealt with this trap, and died
					# before it could keep the signal back
	ld	t3, 16(t0)		# entries, sorted by address
	li	t4, 0			# lowest that may be it
	ld	t5, 24(t0)		# one past the highest
search:
	bgeu	t4, t5, frames
	add	t6, t4, t5
	srli	t6, t6, 1
	slli	a4, t6, 1		# entries are 24 bytes
	add	a4, a4, t6
	slli	a4, a4, 3
	add	a4, a4, t3
	ld	a5, 0(a4)
	beq	a3, a5, found
	bgtu	a3, a5, above
	mv	t5, t6
	j	search
above:
	addi	t4, t6, 1
	j	search
found:
	ld	a3, 8(a4)		# where the instruction is carried out
resume:
	sd	a3, PC(a2)
ignore:
	ret

frames:					# not a probe: the return trampoline?
	ld	t3, 32(t0)
	bne	a3, t3, gone
	ld	t4, SP(a2)		# the call's, as at its entry
	ld	t5, 40(t0)
	ld	t6, 48(t0)
	srli	a4, t4, 3
next:
	and	a4, a4, t6
	slli	a5, a4, 4
	add	a5, a5, t5
	ld	a6, 0(a5)
	beq	a6, t4, caller
	addi	a4, a4, 1
	bnez	a6, next
	j	foreign
caller:
	ld	a3, 8(a5)
	j	resume

gone:					# a trap that has been taken away since?
	lhu	t3, 0(a3)
	li	t4, BREAK
	bne	t3, t4, ignore
foreign:				# the program's own, or sent by somebody
	ld	t6, 56(t0)
	li	t5, 1
	bgtu	t6, t5, call
	bltu	t6, t5, default
	bne	t1, t5, ignore		# SIG_IGN holds for what was sent; a trap ends the program
default:
	li	a0, 5			# SIGTRAP
	addi	a1, t0, 96		# SIG_DFL
	li	a2, 0
	li	a3, 8
	li	a7, 134			# rt_sigaction
	ecall
	li	a7, 172			# getpid
	ecall
	mv	t1, a0
	li	a7, 178			# gettid
	ecall
	mv	a1, a0
	mv	a0, t1
	li	a2, 5
	li	a7, 131			# tgkill
	ecall
	ret
call:
	jr	t6

	.org	header + 256 + 0x140, 0
restorer:				# the vDSO has its like
	li	a7, 139			# rt_sigreturn
	ecall

	.org	header + 256 + 0x150, 0
returner:				# a function has returned, and its trap is no more
	addi	sp, sp, -48
	sd	t0, 0(sp)
	sd	t1, 8(sp)
	sd	t2, 16(sp)
	sd	t3, 24(sp)
	sd	t4, 32(sp)
	.org	header + 604, 0		# compressed, those were 12 bytes
	auipc	t0, 0			# header
	addi	t0, t0, -604
	ld	t1, 40(t0)
	ld	t2, 48(t0)
	addi	t3, sp, 48		# the call's stack pointer
	srli	t4, t3, 3
look:
	and	t4, t4, t2
	slli	t6, t4, 4
	add	t6, t6, t1
	ld	t0, 0(t6)
	beq	t0, t3, there
	addi	t4, t4, 1
	bnez	t0, look
	ebreak
there:
	ld	t6, 8(t6)
	ld	t0, 0(sp)
	ld	t1, 8(sp)
	ld	t2, 16(sp)
	ld	t3, 24(sp)
	ld	t4, 32(sp)
	addi	sp, sp, 48
	jr	t6
