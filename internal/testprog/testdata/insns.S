// One function per class of x86-64 instruction that user programs have, to be
// probed at each of its instructions; those with vectors are in insns_vector.S.
// All are called as
//
//	uint64_t f(uint64_t a, uint64_t b, void *buf)
//
// with buf 64-byte aligned, 1024 bytes, and return a value that depends on
// nothing else, flags included where the instructions set defined ones, and on no
// address: two builds, and a probed and an unprobed run, give the same.

	.macro	FN name
	.p2align 4
	.globl	\name
	.type	\name, @function
\name:
	.endm

	.macro	END name
	.size	\name, .-\name
	.endm

	// The arithmetic flags into the result: CF PF AF ZF SF OF by mask. TF comes
	// along: a tracer's single-step must not show.
	.macro	FLAGS mask=0x8d5
	pushfq
	popq	%rcx
	andl	$(\mask | 0x100), %ecx
	rolq	$7, %rax
	xorq	%rcx, %rax
	.endm

	.data
	.p2align 6
cell:	.quad	0
	.p2align 4
konst:	.quad	0x0123456789abcdef, 0xfedcba9876543210
floats:	.double	1.5
far_add: .quad	add_leaf	// for calls and jumps through memory
far_out: .quad	i_jumps_out
bytes:	.ascii	"xlat table: any 256 bytes will do"
	.fill	256, 1, 0x5a
	.text

FN i_arith
	movq	%rdi, %rax
	addq	%rsi, %rax
	FLAGS
	adcq	$0x12345678, %rax
	FLAGS
	subl	$-7, %esi
	FLAGS
	sbbq	%rsi, %rax
	FLAGS
	incq	%rax
	FLAGS
	decl	%esi
	FLAGS
	negq	%rsi
	notq	%rax
	andq	%rsi, %rdi
	FLAGS 0x8c5
	orq	$0x40, %rdi
	xorq	%rdi, %rax
	leaq	0x1234(%rax,%rsi,4), %rax
	leal	-8(%rdi,%rsi), %edx
	addq	%rdx, %rax
	addb	%ah, %al
	subb	$3, %dh
	addw	$0x1234, %dx
	cmpw	%dx, %ax
	FLAGS
	bswapq	%rax
	bswapl	%edx
	movzbl	%dl, %ecx
	movsbq	%al, %r8
	movswl	%ax, %r9d
	movslq	%eax, %r10
	movzwl	%dx, %r11d
	addq	%rcx, %rax
	xorq	%r8, %rax
	addq	%r9, %rax
	xorq	%r10, %rax
	addq	%r11, %rax
	movl	%eax, %ecx
	cltq
	cqto
	xorq	%rdx, %rax
	xchgq	%rax, %rcx
	xchgb	%al, %cl
	addq	%rcx, %rax
	movabsq	$0x1122334455667788, %rdx
	xorq	%rdx, %rax
	testq	%rax, %rdx
	FLAGS 0x8c5
	lahf
	sahf
	cmc
	adcq	$0, %rax
	stc
	sbbq	$0, %rax
	clc
	ret
END i_arith

FN i_shift
	movq	%rdi, %rax
	movl	%esi, %ecx
	shlq	$13, %rax
	shrq	%rax
	movl	%esi, %ecx
	sarq	%cl, %rdi
	rolq	%cl, %rax
	rorl	$5, %edi
	clc
	rclq	$3, %rax
	rcrw	%di
	xorq	%rdi, %rax
	shldq	$9, %rsi, %rax
	movl	%esi, %ecx
	shrdq	%cl, %rax, %rdi
	shldl	%cl, %edi, %eax
	addq	%rdi, %rax
	shlb	$1, %al
	FLAGS 0x8c5
	ret
END i_shift

// Operands relative to the instruction's own address, with every length of
// immediate behind them: the displacement counts from the end of the instruction.
FN i_riprel
	movq	%rdi, cell(%rip)
	movq	konst(%rip), %rax
	addq	%rax, cell(%rip)
	xorq	konst+8(%rip), %rsi
	movl	$0x13579bdf, cell+4(%rip)
	addw	$0x1234, cell(%rip)
	addb	$7, cell(%rip)
	cmpb	$0x10, cell(%rip)
	sbbl	$3, cell(%rip)
	testl	$0x00ff00ff, cell(%rip)
	FLAGS 0x8c5
	imulq	$0x1f35, cell(%rip), %rdx
	imull	$-3, cell(%rip), %r8d
	notb	cell+1(%rip)
	shlq	$3, cell(%rip)
	btsl	$4, cell(%rip)
	incl	cell(%rip)
	movzbl	cell+2(%rip), %ecx
	movslq	cell(%rip), %r9
	leaq	konst(%rip), %r10
	xorq	(%r10), %rax
	pushq	konst+8(%rip)
	popq	cell(%rip)
	addq	cell(%rip), %rax
	xchgq	cell(%rip), %rsi
	addq	%rsi, %rax
	addq	%rdx, %rax
	xorq	%r8, %rax
	addq	%rcx, %rax
	addq	%r9, %rax
	movups	konst(%rip), %xmm0
	pshufd	$0x1b, konst(%rip), %xmm1
	paddd	konst(%rip), %xmm1
	movq	%xmm1, %rcx
	addq	%rcx, %rax
	cvtsi2sdl cell(%rip), %xmm0
	mulsd	floats(%rip), %xmm0
	movq	%xmm0, %rcx
	xorq	%rcx, %rax
	movq	$0, cell(%rip)
	ret
END i_riprel

FN i_stack
	pushq	%rbp
	movq	%rsp, %rbp
	pushq	%rdi
	pushq	%r12
	pushq	$0x12
	pushq	$-0x12345678
	pushw	%si
	movzwl	(%rsp), %eax
	popw	%cx
	popq	%rcx
	popq	%r8
	addq	%rcx, %rax
	imulq	%r8, %rax
	movq	%rsp, %r9
	pushq	%rsp			// the value from before the push
	popq	%r10
	subq	%r10, %r9
	addq	%r9, %rax
	pushq	(%rsp)
	popq	(%rdx)
	addq	$0, (%rdx)
	popq	%r12
	popq	%rcx
	xorq	%rcx, %rax
	subq	$40, %rsp
	movq	%rsi, (%rsp)
	movq	%rsp, %rcx
	pushq	8(%rsp)
	popq	16(%rsp)		// an address that counts from after the pop
	addq	(%rcx), %rax
	leave
	enter	$32, $0
	movq	%rax, -32(%rbp)
	movq	$1, -8(%rbp)
	addq	-32(%rbp), %rax
	leave
	ret
END i_stack

FN i_flags
	xorl	%eax, %eax
	cmpq	%rsi, %rdi
	pushfq
	popq	%rcx
	andl	$0xfff, %ecx		// TF is among them, and is 0
	addq	%rcx, %rax
	pushq	$0x2d7			// IF CF PF AF ZF SF
	popfq
	jnc	1f
	addq	$16, %rax
1:	std
	pushfq
	cld
	popq	%rcx
	andl	$0x500, %ecx
	addq	%rcx, %rax
	ret
END i_flags

	.macro	JCC cc
	cmpq	%rsi, %rdi
	j\cc	1f
	addq	$1, %rax
1:	rolq	$1, %rax
	cmpl	%edi, %esi
	{disp32} j\cc 2f
	xorq	$5, %rax
2:	leaq	(%rax,%rax,2), %rax
	testb	%dil, %sil
	set\cc	%cl
	movzbl	%cl, %ecx
	addq	%rcx, %rax
	cmpw	%si, %di
	cmov\cc\()q %rdi, %rax
	cmov\cc\()l (%rdx), %ecx
	addq	%rcx, %rax
	.endm

FN i_jcc
	movq	%rdi, %rax
	movl	%edi, (%rdx)
	.irp cc, o, no, b, ae, e, ne, be, a, s, ns, p, np, l, ge, le, g
	JCC \cc
	.endr
	ret
END i_jcc

FN i_loops
	xorl	%eax, %eax
	movl	$7, %ecx
1:	leaq	(%rax,%rdi), %rax
	loop	1b
	movl	$9, %ecx
2:	rolq	$3, %rax
	cmpb	%al, %al
	loope	2b
	movl	$5, %ecx
3:	addq	%rsi, %rax
	testb	$1, %al
	loopne	3b
	addq	%rcx, %rax
	movl	%esi, %ecx
	andl	$1, %ecx
	jrcxz	4f
	addq	$11, %rax
4:	movabsq	$0x100000000, %rcx
	jecxz	5f			// looks at half of it
	addq	$13, %rax
5:	movl	$3, %ecx
6:	addq	$2, %rax
	addr32 loop 6b
	ret
END i_loops

FN add_leaf
	leaq	(%rdi,%rsi), %rax
	ret
END add_leaf

FN pops_args
	movq	8(%rsp), %rax
	subq	16(%rsp), %rax
	ret	$16
END pops_args

FN rep_ret
	leaq	3(%rdi), %rax
	rep ret
END rep_ret

FN i_calls
	pushq	%rbx
	pushq	%rdx
	pushq	%rsi
	call	add_leaf
	movq	%rax, %rbx
	leaq	add_leaf(%rip), %rax
	call	*%rax
	addq	%rax, %rbx
	call	*far_add(%rip)
	xorq	%rax, %rbx
	leaq	far_add(%rip), %r11
	call	*(%r11)
	addq	%rax, %rbx
	movl	$1, %ecx
	call	*-8(%r11,%rcx,8)
	rolq	$9, %rbx
	addq	%rax, %rbx
	pushq	add_leaf@GOTPCREL(%rip)
	call	*(%rsp)			// the target is read before the push
	addq	$8, %rsp
	addq	%rax, %rbx
	pushq	%rdi
	pushq	%rsi
	call	pops_args
	addq	%rax, %rbx
	call	rep_ret
	addq	%rax, %rbx
	call	1f			// the old way to learn one's address
1:	popq	%rcx
	leaq	1b(%rip), %rdx
	subq	%rdx, %rcx
	addq	%rcx, %rbx		// 0
	popq	%rsi
	popq	%rdx
	movq	%rbx, %rax
	popq	%rbx
	ret
END i_calls

FN i_jumps
	movq	%rdi, %rax
	jmp	1f
	ud2
1:	{disp32} jmp 2f
	ud2
2:	leaq	3f(%rip), %rcx
	jmp	*%rcx
	ud2
3:	leaq	4f(%rip), %rcx
	movq	%rcx, (%rdx)
	jmp	*(%rdx)
	ud2
4:	leaq	5f(%rip), %rcx
	pushq	%rcx
	addq	%rsi, %rax
	ret				// as retpolines do
	ud2
5:	movq	$0, (%rdx)
	jmp	*far_out(%rip)		// a tail jump
END i_jumps

FN i_jumps_out
	imulq	$0x6d, %rax, %rax
	ret
END i_jumps_out

FN i_string
	movq	%rdx, %r8
	movq	%rdi, %rax
	movq	%rdx, %rdi
	movl	$16, %ecx
	rep stosq
	movq	%rsi, (%r8)
	movq	%r8, %rsi
	leaq	128(%r8), %rdi
	movl	$128, %ecx
	rep movsb
	leaq	128(%r8), %rsi
	leaq	256(%r8), %rdi
	movsq
	movsb
	movl	$3, %ecx
	rep movsl
	movq	%r8, %rsi
	lodsq
	movq	%rax, %r9
	lodsb
	xorb	%al, %r9b
	movq	%r8, %rdi
	movl	$128, %ecx
	movb	120(%r8), %al
	repne scasb
	leaq	(%r9,%rcx,8), %r9
	movq	%r8, %rsi
	leaq	128(%r8), %rdi
	incb	100(%rdi)
	movl	$128, %ecx
	repe cmpsb
	leaq	(%r9,%rcx), %r9
	addb	$1, 100+128(%r8)
	std
	leaq	63(%r8), %rsi
	leaq	80(%r8), %rdi
	movl	$20, %ecx
	rep movsb
	cld
	xorl	%ecx, %ecx
	rep stosb			// no times
	movq	%r9, %rax
	addq	72(%r8), %rax
	ret
END i_string

FN i_atomic
	movq	%rdx, %r8
	movq	%rdi, (%r8)
	movq	%rdi, %rax
	lock cmpxchgq %rsi, (%r8)
	FLAGS 0x40
	movq	%rax, %r9
	lock cmpxchgl %esi, 8(%r8)
	lock xaddq %rdi, (%r8)
	addq	%rdi, %r9
	lock incq (%r8)
	lock decl 4(%r8)
	lock addq $5, (%r8)
	lock btsq $3, (%r8)
	adcq	$0, %r9
	lock xorb $0x55, 1(%r8)
	lock negq (%r8)
	xchgq	%rsi, (%r8)
	addq	%rsi, %r9
	xaddl	%esi, %r9d
	pushq	%rbx
	movq	(%r8), %rax
	movq	8(%r8), %rdx
	movq	%r9, %rbx
	movl	$77, %ecx
	lock cmpxchg16b (%r8)
	movq	(%r8), %rax
	addq	8(%r8), %rax
	movl	%eax, %edx
	lock cmpxchg8b 16(%r8)
	popq	%rbx
	xorq	%rdx, %rax
	mfence
	movq	%r8, %rdx
	movq	$0, 8(%r8)
	movq	$0, 16(%r8)
	ret
END i_atomic

FN i_bits
	movq	%rdi, %rax
	btq	%rsi, %rax
	sbbq	%rcx, %rcx
	btsq	$17, %rax
	btrl	%esi, %eax
	btcw	$3, %ax
	xorq	%rcx, %rax
	movq	%rdi, (%rdx)
	movq	%rsi, 8(%rdx)
	btcq	$40, (%rdx)
	movl	$77, %ecx
	btsq	%rcx, (%rdx)		// the bit's number reaches into the next word
	adcq	8(%rdx), %rax
	orq	$1, %rsi
	bsfq	%rsi, %rcx
	addq	%rcx, %rax
	bsrl	%esi, %r8d
	addq	%r8, %rax
	xorq	(%rdx), %rax
	ret
END i_bits

FN i_muldiv
	movq	%rdx, %r8
	movq	%rdi, %rax
	mulq	%rsi
	xorq	%rdx, %rax
	imulq	%rdi
	addq	%rdx, %rax
	mull	%esi
	imulq	%rdi, %rax
	imulq	$-0x1234567, %rax, %rax
	imulw	$9, %ax, %ax
	xorl	%edx, %edx
	orq	$0x100, %rsi
	divq	%rsi
	leaq	(%rax,%rdx,8), %rax
	cqto
	idivq	%rsi
	addq	%rdx, %rax
	movl	%edi, %edx
	shrl	$16, %edx
	andl	$0x7f, %edx
	orl	$0x10000, %esi
	divl	%esi
	imulq	%rdx, %rax
	movq	%rsi, (%r8)
	orb	$0xc0, 1(%r8)
	movzbl	%al, %eax
	divb	1(%r8)
	imulb	%ah
	cwtl
	cltd
	movq	%rax, (%r8)
	mulb	(%r8)
	negl	%eax
	ret
END i_muldiv

FN i_redzone
	movq	%rdi, -8(%rsp)
	movq	%rsi, -128(%rsp)
	movq	%rdi, -64(%rsp)
	notq	-64(%rsp)
	movl	$20, %ecx
1:	addq	$3, -8(%rsp)
	rolq	-128(%rsp)
	decl	%ecx
	jnz	1b
	movq	-8(%rsp), %rax
	xorq	-128(%rsp), %rax
	addq	-64(%rsp), %rax
	ret
END i_redzone

FN i_syscall
	movq	%rdi, %r8
	movl	$39, %eax		// getpid
	syscall
	movq	%rax, %r9
	movl	$39, %eax
	syscall
	subq	%rax, %r9		// 0; rcx and r11 are the system call's to spoil
	movl	$9999, %eax
	syscall				// -ENOSYS
	addq	%r9, %rax
	addq	%r8, %rax
	xorq	%rsi, %rax		// and these are not
	ret
END i_syscall

FN i_misc
	pushq	%rbx
	movq	%rdx, %r8
	xorl	%eax, %eax
	xorl	%ecx, %ecx
	cpuid
	testl	%eax, %eax
	setnz	%r9b
	rdtsc
	lfence
	nop
	nopw	(%rax,%rax)
	nopl	0x12345678(%rax)
	cs nopw 0x200(%rax,%rax)
	.byte 0x66, 0x66, 0x66, 0x90	// as linkers pad
	pause
	prefetcht0 (%r8)
	clflush	(%r8)
	sfence
	leaq	bytes(%rip), %rbx
	movzbl	%dil, %eax
	xlatb
	movzbl	%al, %eax
	movzbl	%r9b, %r9d
	addq	%r9, %rax
	movl	%ds, %ecx
	addl	%ecx, %eax
	movq	%fs:0, %rcx		// the thread control block points to itself
	subq	(%rcx), %rcx
	addq	%rcx, %rax
	movl	%esi, %ecx
	leaq (%ecx,%ecx), %rdx
	addq	%rdx, %rax
	movnti	%rax, (%r8)
	stmxcsr	8(%r8)
	ldmxcsr	8(%r8)
	movl	8(%r8), %ecx
	andl	$0xffc0, %ecx		// the rest is history
	movl	%ecx, 8(%r8)
	xorl	%ecx, %eax
	popq	%rbx
	ret
END i_misc

FN i_endbr
	endbr64
	leaq	1(%rdi,%rsi), %rax
	call	1f
	ret
1:	endbr64
	notq	%rax
	ret
END i_endbr

FN i_x87
	movl	%edi, (%rdx)
	movl	%esi, 8(%rdx)
	orl	$1, 8(%rdx)
	fildl	(%rdx)
	fildl	8(%rdx)
	fdivrp
	fld1
	faddp
	fabs
	fsqrt
	fldpi
	fmulp
	fldl	floats(%rip)
	fxch
	fadd	%st(1), %st
	fcomi	%st(1), %st
	setb	%cl
	fstpl	16(%rdx)
	fstpt	32(%rdx)
	fldt	32(%rdx)
	fistpl	48(%rdx)
	fnstcw	56(%rdx)
	fldcw	56(%rdx)
	fldz
	fldl	16(%rdx)
	fucomip	%st(1), %st
	fstp	%st(0)
	fnstsw	%ax
	movzbl	%cl, %ecx
	movzwl	%ax, %eax
	andl	$0x3800, %eax		// the stack's top: as it was
	addq	%rcx, %rax
	addq	16(%rdx), %rax
	xorl	48(%rdx), %eax
	ret
END i_x87

// uint64_t guarded(f, a, b, buf, *spoilt): calls f with known values in the
// registers that a function keeps, and stores what of them, of the stack pointer
// or of the direction flag came back different: 0 is nothing.
FN guarded
	pushq	%rbx
	pushq	%rbp
	pushq	%r12
	pushq	%r13
	pushq	%r14
	pushq	%r15
	pushq	%r8
	movq	%rdi, %rax
	movq	%rsi, %rdi
	movq	%rdx, %rsi
	movq	%rcx, %rdx
	movq	$0x1b1b1b1b, %rbx
	movq	$0x2b2b2b2b, %r12
	movq	$0x3c3c3c3c, %r13
	movq	$0x4d4d4d4d, %r14
	movq	$0x5e5e5e5e, %r15
	movq	%rsp, %rbp
	call	*%rax
	xorq	$0x1b1b1b1b, %rbx
	xorq	$0x2b2b2b2b, %r12
	xorq	$0x3c3c3c3c, %r13
	xorq	$0x4d4d4d4d, %r14
	xorq	$0x5e5e5e5e, %r15
	orq	%r12, %rbx
	orq	%r13, %rbx
	orq	%r14, %rbx
	orq	%r15, %rbx
	movq	%rbp, %rcx
	subq	%rsp, %rcx
	orq	%rcx, %rbx
	pushfq
	popq	%rcx
	andl	$0x500, %ecx
	orq	%rcx, %rbx
	popq	%r8
	movq	%rbx, (%r8)
	popq	%r15
	popq	%r14
	popq	%r13
	popq	%r12
	popq	%rbp
	popq	%rbx
	ret
END guarded

	.section .note.GNU-stack, "", @progbits
