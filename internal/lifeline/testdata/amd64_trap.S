# The trap handler that lives in an amd64 target: see trap.go for the header
# that its code stands behind. The kernel calls it with the signal's number in
# edi, its siginfo in rsi and its ucontext in rdx, in which the saved
# registers begin at 40 in the order r8-r15, di, si, bp, bx, dx, ax, cx, sp, ip.
	.set	SP, 160
	.set	IP, 168
	.set	FLAGS, 176
	.set	MASK, 296		# behind them: uc_sigmask
	.set	CODE, 8			# of siginfo: si_code

	.text
header:
	.space	256

handler:
	lea	header(%rip), %rbx
	cmpq	$0, 128(%rbx)		# is there a thread that was driven
	je	arrived
	mov	136(%rbx), %rax		# with this mask?
	cmp	%rax, MASK(%rdx)
	jne	trace
	mov	144(%rbx), %rax		# then it has its own again
	mov	%rax, MASK(%rdx)
	btrl	$8, FLAGS(%rdx)		# and makes no more single steps: TF
trace:
	cmpl	$2, CODE(%rsi)		# TRAP_TRACE was the end of one
	je	ignore
arrived:
	cmpl	$0, CODE(%rsi)		# it was sent: whatever is before the thread
	jle	foreign
	btrl	$16, FLAGS(%rdx)	# RF: the tracer has dealt with this trap, and
	jc	ignore			# died before it could keep the signal back
	mov	IP(%rdx), %rax
	mov	CODE(%rsi), %ecx
	cmp	$4, %ecx		# TRAP_HWBKPT: an access to what it watched,
	je	ignore			# and the instruction is done
	dec	%ecx			# TRAP_BRKPT: so is one that the processor does
	jnz	trap			# not own up to (int3 has SI_KERNEL)
	testb	$1, FLAGS+1(%rdx)	# TF: or a step of the program's own
	jnz	trap
	test	$0xfff, %eax		# or int1; what is on the page before
	jz	ignore			# may not be there
	cmpb	$0xf1, -1(%rax)
	jne	ignore
trap:
	dec	%rax			# the address of the trap instruction
	mov	16(%rbx), %r8		# entries, sorted by address
	xor	%ecx, %ecx		# lowest that may be it
	mov	24(%rbx), %r9		# one past the highest
search:
	cmp	%r9, %rcx
	jae	frames
	lea	(%rcx,%r9), %r10
	shr	$1, %r10
	lea	(%r10,%r10,2), %r11	# entries are 24 bytes
	cmp	%rax, (%r8,%r11,8)
	je	found
	jb	above
	mov	%r10, %r9
	jmp	search
above:
	lea	1(%r10), %rcx
	jmp	search
found:
	mov	8(%r8,%r11,8), %rax	# where the instruction is carried out
resume:
	mov	%rax, IP(%rdx)
	ret

frames:					# not a probe: the return trampoline?
	cmp	32(%rbx), %rax
	jne	foreign
	mov	SP(%rdx), %rax
	sub	$8, %rax		# the stack slot that was popped
	mov	40(%rbx), %r8
	mov	48(%rbx), %r9		# number of slots less one
	mov	%rax, %rcx
	shr	$3, %rcx
probe:
	and	%r9, %rcx
	mov	%rcx, %r10
	shl	$4, %r10		# 16 bytes each: stack slot, return address
	mov	(%r8,%r10), %r11
	cmp	%rax, %r11
	je	return
	inc	%rcx
	test	%r11, %r11
	jnz	probe
foreign:				# the program's own
	mov	56(%rbx), %rax
	cmp	$1, %rax
	ja	own
	jb	default			# SIG_DFL
	cmpl	$0, CODE(%rsi)		# SIG_IGN holds for what was sent; a trap
	jg	default			# ends the program
	ret
own:
	jmp	*%rax
return:
	mov	8(%r8,%r10), %rax
	jmp	resume
ignore:
	ret

	.org	handler + 0x140, 0xcc
restorer:
	mov	$15, %eax		# rt_sigreturn
	syscall

# Where the return trampoline leads when nobody serves its trap any more: what the
# handler does for it, without a signal. All registers and flags stay.
	.org	handler + 0x150, 0xcc
returner:
	lea	-136(%rsp), %rsp	# over the red zone and the popped stack slot
	pushfq
	push	%rax
	push	%rcx
	push	%rdx
	push	%rsi
	push	%rdi
	lea	176(%rsp), %rax		# the stack slot
	mov	header+40(%rip), %rdx
	mov	header+48(%rip), %rsi
	mov	%rax, %rcx
	shr	$3, %rcx
again:
	and	%rsi, %rcx
	mov	%rcx, %rdi
	shl	$4, %rdi
	cmp	%rax, (%rdx,%rdi)
	je	back
	inc	%rcx
	cmpq	$0, (%rdx,%rdi)
	jne	again
	int3				# not a call of ours
back:
	mov	8(%rdx,%rdi), %rdx
	mov	%rdx, (%rax)
	pop	%rdi
	pop	%rsi
	pop	%rdx
	pop	%rcx
	pop	%rax
	popfq
	lea	136(%rsp), %rsp
	jmp	*-8(%rsp)

default:				# end as the program would have
	mov	$13, %eax		# rt_sigaction(SIGTRAP, SIG_DFL)
	mov	$5, %edi
	lea	96(%rbx), %rsi
	xor	%edx, %edx
	mov	$8, %r10d
	syscall
	mov	$186, %eax		# gettid
	syscall
	mov	%eax, %edi
	mov	$5, %esi
	mov	$200, %eax		# tkill: delivered when the handler returns
	syscall
	ret
end:
