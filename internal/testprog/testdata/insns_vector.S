// insns.S continued: vector and other instructions that not every processor has;
// insns.c asks cpuid before it calls them.
	.macro	FN name
	.p2align 4
	.globl	\name
	.type	\name, @function
\name:
	.endm

	.macro	END name
	.size	\name, .-\name
	.endm

	.section .rodata
	.p2align 5
konst:	.quad	0x0123456789abcdef, 0xfedcba9876543210
	.p2align 5
floats:	.double	1.5, -2.25, 3.0, 1000.125
	.p2align 4
single:	.float	0.5, 1.25, -8.0, 3.75
	.text

FN i_sse
	movq	%rdi, %xmm0
	movq	%rsi, %xmm1
	movd	%esi, %xmm2
	punpcklqdq %xmm1, %xmm0
	movaps	%xmm0, (%rdx)
	movups	3(%rdx), %xmm3
	pxor	%xmm3, %xmm0
	paddq	(%rdx), %xmm0
	pcmpeqb	%xmm3, %xmm2
	pmovmskb %xmm2, %ecx
	pshufd	$0x4e, %xmm0, %xmm4
	psllq	$7, %xmm4
	psrldq	$3, %xmm4
	por	%xmm4, %xmm0
	pinsrw	$5, %ecx, %xmm0
	pextrw	$2, %xmm0, %r8d
	movaps	single(%rip), %xmm5
	mulps	%xmm5, %xmm5
	addps	single(%rip), %xmm5
	shufps	$0x1b, %xmm5, %xmm5
	movmskps %xmm5, %r9d
	cvtps2pd %xmm5, %xmm6
	addpd	floats(%rip), %xmm6
	xorps	%xmm7, %xmm7
	cvtsi2sdq %rdi, %xmm7
	sqrtsd	%xmm7, %xmm8
	divsd	floats+24(%rip), %xmm7
	ucomisd	%xmm7, %xmm6
	jp	1f
	seta	%cl
1:	maxsd	%xmm7, %xmm6
	cvttsd2si %xmm6, %r10
	cmpltpd	%xmm7, %xmm6
	xorpd	%xmm6, %xmm0
	movntdq	%xmm0, 16(%rdx)
	sfence
	movdqa	16(%rdx), %xmm9
	movhlps	%xmm9, %xmm10
	movq	%xmm9, %rax
	movlpd	%xmm10, 32(%rdx)
	addq	32(%rdx), %rax
	movzbl	%cl, %ecx
	addq	%rcx, %rax
	addq	%r8, %rax
	addq	%r9, %rax
	xorq	%r10, %rax
	ret
END i_sse

FN i_sse4
	movq	%rdi, %xmm0
	pinsrq	$1, %rsi, %xmm0
	pshufb	konst(%rip), %xmm0
	pmulld	single(%rip), %xmm0
	pinsrd	$2, %edi, %xmm0
	pextrq	$1, %xmm0, %rax
	pextrd	$1, %xmm0, %ecx
	pmovzxbw %xmm0, %xmm1
	palignr	$5, %xmm0, %xmm1
	blendps	$5, single(%rip), %xmm1
	xorps	%xmm2, %xmm2
	roundsd	$1, floats+24(%rip), %xmm2
	dppd	$0x31, floats(%rip), %xmm2
	ptest	%xmm1, %xmm0
	adcq	%rcx, %rax
	pcmpistri $0x0c, %xmm1, %xmm0
	addq	%rcx, %rax
	movq	%xmm2, %rcx
	xorq	%rcx, %rax
	movq	%xmm1, %rcx
	addq	%rcx, %rax
	crc32q	%rsi, %rax
	crc32b	konst(%rip), %eax
	popcntq	%rdi, %rcx
	addq	%rcx, %rax
	ret
END i_sse4

FN i_avx
	vmovq	%rdi, %xmm0
	vpinsrq	$1, %rsi, %xmm0, %xmm0
	vinsertf128 $1, konst(%rip), %ymm0, %ymm1
	vmovups	%ymm1, (%rdx)
	vmovaps	(%rdx), %ymm2
	vbroadcastss single+4(%rip), %ymm3
	vmulps	single(%rip), %xmm3, %xmm4
	vaddpd	floats(%rip), %ymm3, %ymm5
	vpermilps $0x1b, %ymm5, %ymm6
	vblendvpd %xmm0, konst(%rip), %xmm4, %xmm7
	vxorps	%ymm6, %ymm2, %ymm8
	vcmpltps %ymm3, %ymm8, %ymm9
	vmovmskps %ymm9, %eax
	vtestps	%ymm9, %ymm3
	adcl	$0, %eax
	vextractf128 $1, %ymm8, %xmm10
	vpxor	%xmm10, %xmm8, %xmm8
	vpxor	%xmm7, %xmm8, %xmm8
	vcvtsi2sdq %rdi, %xmm11, %xmm11
	vsqrtsd	%xmm11, %xmm11, %xmm12
	vpextrq	$1, %xmm8, %rcx
	vzeroupper
	vmovups	%ymm8, 64(%rdx)		// its upper half is zero now
	addq	%rcx, %rax
	addq	64(%rdx), %rax
	xorq	80(%rdx), %rax
	ret
END i_avx

FN i_avx2
	vmovq	%rdi, %xmm0
	vpbroadcastq %xmm0, %ymm0
	vpaddd	konst(%rip), %xmm0, %xmm1
	vinserti128 $1, %xmm1, %ymm0, %ymm1
	vpermq	$0x4b, %ymm1, %ymm2
	vpsllvd	%ymm0, %ymm2, %ymm3
	vmovdqu	%ymm1, (%rdx)
	vmovdqu	%ymm2, 32(%rdx)
	vpcmpeqd %ymm4, %ymm4, %ymm4
	vpsrld	$29, %ymm4, %ymm5	// index 7, eight times
	vpgatherdd %ymm4, 4(%rdx,%ymm5,4), %ymm6
	vpxor	%ymm6, %ymm3, %ymm3
	vpmaskmovd (%rdx), %ymm1, %ymm7
	vpaddq	%ymm7, %ymm3, %ymm3
	vpmovmskb %ymm3, %eax
	vmovdqa	%ymm3, 64(%rdx)
	addq	64(%rdx), %rax
	addq	72(%rdx), %rax
	xorq	80(%rdx), %rax
	addq	88(%rdx), %rax
	vzeroall
	ret
END i_avx2

FN i_bmi
	andnq	%rsi, %rdi, %rax
	bextrq	%rsi, %rdi, %rcx
	addq	%rcx, %rax
	blsrq	%rdi, %rcx
	addq	%rcx, %rax
	blsil	konst(%rip), %ecx
	addq	%rcx, %rax
	pdepq	konst(%rip), %rdi, %rcx
	xorq	%rcx, %rax
	pextq	%rsi, %rdi, %rcx
	addq	%rcx, %rax
	bzhiq	%rsi, %rdi, %rcx
	xorq	%rcx, %rax
	rorxq	$13, konst+8(%rip), %rcx
	addq	%rcx, %rax
	shlxq	%rsi, %rdi, %rcx
	sarxl	%esi, %edi, %r8d
	shrxq	%rdi, konst(%rip), %r9
	movq	%rdi, %rdx
	mulxq	%rsi, %r10, %r11
	addq	%r10, %rax
	adcq	%r11, %rax
	tzcntq	%rdi, %r10
	lzcntl	%esi, %r11d
	addq	%r8, %rcx
	addq	%r9, %rcx
	addq	%r10, %rcx
	adcxq	%r11, %rax
	adoxq	%rcx, %rax
	movbeq	konst(%rip), %rcx
	addq	%rcx, %rax
	ret
END i_bmi

FN i_fma
	vpxor	%xmm0, %xmm0, %xmm0	// conversions leave the upper lanes as they were
	vpxor	%xmm1, %xmm1, %xmm1
	vcvtsi2sdq %rdi, %xmm0, %xmm0
	vcvtsi2sdq %rsi, %xmm1, %xmm1
	vfmadd213sd floats(%rip), %xmm0, %xmm1
	vfnmadd231pd floats(%rip), %ymm0, %ymm1
	vcvtps2ph $0, %xmm1, %xmm2
	vmovq	%xmm1, %rax
	vmovq	%xmm2, %rcx
	addq	%rcx, %rax
	vzeroupper
	ret
END i_fma

FN i_avx512
	vpbroadcastq %rdi, %zmm0
	vpbroadcastq %rsi, %zmm17
	movl	$0x5a, %ecx
	kmovw	%ecx, %k1
	vpaddq	%zmm17, %zmm0, %zmm18{%k1}{z}
	vmovdqu64 %zmm18, (%rdx)
	vmovdqa64 %zmm0, 64(%rdx)	// a displacement counted in vectors
	vpxorq	64(%rdx), %zmm18, %zmm18
	vpaddq	konst(%rip){1to8}, %zmm18, %zmm18
	vpaddd	single(%rip), %xmm18, %xmm19
	vpcmpuq	$1, %zmm17, %zmm18, %k2
	kandw	%k1, %k2, %k3
	kortestw %k3, %k3
	setc	%r8b
	vpternlogq $0x96, %zmm0, %zmm17, %zmm18{%k2}
	vpcompressq %zmm18, %zmm20{%k1}{z}
	vextracti64x4 $1, %zmm20, %ymm21
	vcvtqq2pd {rn-sae}, %zmm18, %zmm22
	vaddpd	floats(%rip){1to8}, %zmm22, %zmm22
	vscalefpd %zmm22, %zmm22, %zmm23
	vmovdqu64 %zmm22, 128(%rdx)
	vmovdqu8 %zmm18, (%rdx){%k2}
	kmovw	%k3, %eax
	movzbl	%r8b, %r8d
	addq	%r8, %rax
	addq	(%rdx), %rax
	addq	8(%rdx), %rax
	vmovq	%xmm21, %rcx
	xorq	%rcx, %rax
	vmovq	%xmm19, %rcx
	addq	%rcx, %rax
	addq	136(%rdx), %rax
	vzeroupper
	ret
END i_avx512

	.section .note.GNU-stack, "", @progbits
