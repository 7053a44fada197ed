# The trap handler that lives in an i386 target: amd64_trap.S in 32 bits, where
# code has to ask where it is. The header's words are 8 bytes here too, of which
# the lower half counts. The kernel calls it with the signal's number, its siginfo
# and its ucontext on the stack; in that the saved registers begin at 20.
	.set	SP, 48
	.set	IP, 76
	.set	FLAGS, 84
	.set	MASK, 108		# behind them: uc_sigmask
	.set	CODE, 8			# of siginfo: si_code

	.text
header:
	.space	256

handler:
	mov	12(%esp), %edx		# ucontext
	mov	8(%esp), %ecx		# siginfo
	call	here
here:
	pop	%ebx
	sub	$(here - header), %ebx
	cmpl	$0, 128(%ebx)		# is there a thread that was driven
	je	arrived
	mov	136(%ebx), %eax		# with this mask?
	mov	140(%ebx), %edi
	cmp	%eax, MASK(%edx)
	jne	trace
	cmp	%edi, MASK+4(%edx)
	jne	trace
	mov	144(%ebx), %eax		# then it has its own again
	mov	148(%ebx), %edi
	mov	%eax, MASK(%edx)
	mov	%edi, MASK+4(%edx)
	btrl	$8, FLAGS(%edx)		# and makes no more single steps: TF
trace:
	cmpl	$2, CODE(%ecx)		# TRAP_TRACE was the end of one
	je	ignore
arrived:
	cmpl	$0, CODE(%ecx)		# it was sent: whatever is before the thread
	jle	foreign
	btrl	$16, FLAGS(%edx)	# RF: the tracer has dealt with this trap, and
	jc	ignore			# died before it could keep the signal back
	mov	IP(%edx), %eax
	mov	CODE(%ecx), %ecx
	cmp	$4, %ecx		# TRAP_HWBKPT: an access to what it watched,
	je	ignore			# and the instruction is done
	dec	%ecx			# TRAP_BRKPT: so is one that the processor does
	jnz	trap			# not own up to (int3 has SI_KERNEL)
	testb	$1, FLAGS+1(%edx)	# TF: or a step of the program's own
	jnz	trap
	test	$0xfff, %eax		# or int1; what is on the page before
	jz	ignore			# may not be there
	cmpb	$0xf1, -1(%eax)
	jne	ignore
trap:
	dec	%eax			# the address of the trap instruction
	mov	16(%ebx), %esi		# entries, sorted by address
	xor	%ecx, %ecx		# lowest that may be it
	mov	24(%ebx), %ebp		# one past the highest
search:
	cmp	%ebp, %ecx
	jae	frames
	lea	(%ecx,%ebp), %edi
	shr	$1, %edi
	lea	(%edi,%edi,2), %edx	# entries are 24 bytes
	cmp	%eax, (%esi,%edx,8)
	je	found
	jb	above
	mov	%edi, %ebp
	jmp	search
above:
	lea	1(%edi), %ecx
	jmp	search
found:
	mov	8(%esi,%edx,8), %eax	# where the instruction is carried out
resume:
	mov	12(%esp), %edx
	mov	%eax, IP(%edx)
	ret

frames:					# not a probe: the return trampoline?
	cmp	32(%ebx), %eax
	jne	foreign
	mov	12(%esp), %edx
	mov	SP(%edx), %eax
	sub	$4, %eax		# the stack slot that was popped
	mov	40(%ebx), %esi
	mov	%eax, %ecx
	shr	$3, %ecx
probe:
	and	48(%ebx), %ecx		# number of slots less one
	mov	%ecx, %edi
	shl	$4, %edi		# 16 bytes each: stack slot, return address
	mov	(%esi,%edi), %edx
	cmp	%eax, %edx
	je	return
	inc	%ecx
	test	%edx, %edx
	jnz	probe
foreign:				# the program's own
	mov	56(%ebx), %eax
	cmp	$1, %eax
	ja	own
	jb	default			# SIG_DFL
	mov	8(%esp), %ecx
	cmpl	$0, CODE(%ecx)		# SIG_IGN holds for what was sent; a trap
	jg	default			# ends the program
	ret
own:
	mov	4(%esp), %eax		# where a handler with regparm(3) looks for them
	mov	12(%esp), %ecx
	mov	8(%esp), %edx
	jmp	*56(%ebx)
return:
	mov	8(%esi,%edi), %eax
	jmp	resume
ignore:
	ret

	.org	handler + 0x140, 0xcc
restorer:
	mov	$173, %eax		# rt_sigreturn
	int	$0x80

# Where the return trampoline leads when nobody serves its trap any more: what the
# handler does for it, without a signal. All registers and flags stay.
	.org	handler + 0x150, 0xcc
returner:
	lea	-4(%esp), %esp		# the popped stack slot
	pushf
	push	%eax
	push	%ecx
	push	%edx
	push	%esi
	push	%edi
	call	there
there:
	pop	%esi
	sub	$(there - header), %esi
	lea	24(%esp), %eax		# the stack slot
	mov	40(%esi), %edx
	mov	%eax, %ecx
	shr	$3, %ecx
again:
	and	48(%esi), %ecx
	mov	%ecx, %edi
	shl	$4, %edi
	cmp	%eax, (%edx,%edi)
	je	back
	inc	%ecx
	cmpl	$0, (%edx,%edi)
	jne	again
	int3				# not a call of ours
back:
	mov	8(%edx,%edi), %edx
	mov	%edx, (%eax)
	pop	%edi
	pop	%esi
	pop	%edx
	pop	%ecx
	pop	%eax
	popf
	ret

default:				# end as the program would have
	lea	96(%ebx), %ecx
	mov	$174, %eax		# rt_sigaction(SIGTRAP, SIG_DFL)
	mov	$5, %ebx
	xor	%edx, %edx
	mov	$8, %esi
	int	$0x80
	mov	$20, %eax		# getpid
	int	$0x80
	mov	%eax, %ebx
	mov	$224, %eax		# gettid
	int	$0x80
	mov	%eax, %ecx
	mov	$5, %edx
	mov	$270, %eax		# tgkill: delivered when the handler returns
	int	$0x80
	ret
end:
