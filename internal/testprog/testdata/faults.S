// Functions that fault, each at its label NAME_at, to be probed before, at and
// behind it. f(uint64_t p): p is an address chosen by faults.c.
	.macro	FN name
	.p2align 4
	.globl	\name, \name\()_at
	.type	\name, @function
\name:
	endbr64
	pushq	%rbx
	movq	%rsp, fault_sp(%rip)
	movl	$0x1234, %ebx
	xorl	%eax, %eax
	.endm

	// The way out, for a handler that skips the instruction or mends its cause.
	.macro	END name
	addq	%rbx, %rax
	popq	%rbx
	ret
	.size	\name, .-\name
	.endm

	.text
FN fault_read
fault_read_at:
	movq	8(%rdi), %rax
END fault_read

FN fault_write
fault_write_at:
	addl	$0x11223344, (%rdi)
END fault_write

FN fault_movs				// part of it is done when it faults
	movl	$64, %ecx
	leaq	fault_bytes(%rip), %rsi
fault_movs_at:
	rep movsb
END fault_movs

FN fault_sse				// not aligned: no address is told
fault_sse_at:
	movaps	1(%rdi), %xmm0
END fault_sse

FN fault_canon				// not an address at all
	movabsq	$0x8000000000000000, %rdi
fault_canon_at:
	movq	(%rdi), %rax
END fault_canon

FN fault_div
	movl	$7, %eax
	xorl	%edx, %edx
	xorl	%ecx, %ecx
fault_div_at:
	idivl	%ecx
END fault_div

FN fault_ud2
fault_ud2_at:
	ud2
END fault_ud2

FN fault_hlt				// not for user programs
fault_hlt_at:
	hlt
END fault_hlt

FN fault_int3				// a program's own trap, reported behind it
	int3
fault_int3_at:
	nop
END fault_int3

FN fault_call				// the fault is the target's, one push later
fault_call_at:
	call	*%rdi
END fault_call

FN fault_riprel				// a displacement in the faulting instruction
	movq	fault_hole(%rip), %rcx
fault_riprel_at:
	movb	$1, (%rcx)
END fault_riprel

	.bss
	.p2align 3
	.globl	fault_sp, fault_hole
fault_sp: .quad 0
fault_hole: .quad 0
fault_bytes: .fill 64
	.section .note.GNU-stack, "", @progbits
