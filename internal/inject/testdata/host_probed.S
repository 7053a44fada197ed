# Functions of (a, b) for the tests to probe: their first instruction is at
# least five bytes long.
	.intel_syntax noprefix
	.text
	.macro FUNC name
	.p2align 6
	.globl \name
	.type \name, @function
\name:
	.endm

FUNC f_lea				# a + b
	.byte 0x48,0x8d,0x84,0x37,0,0,0,0	# lea rax, [rdi+rsi], 8 bytes
	ret

FUNC f_push				# a + b, with locals in the red zone
	lea	rax, [rdi+rsi+0x12345678]
	mov	[rsp-8], rax
	mov	qword ptr [rsp-128], -0x12345678
	mov	rax, [rsp-8]
	add	rax, [rsp-128]
	ret

FUNC f_nest				# b + the sum of 1 to a
	lea	rax, [rsi+0x12345678]
	sub	rax, 0x12345678
	test	rdi, rdi
	jz	1f
	push	rdi
	dec	rdi
	call	f_nest
	pop	rdi
	add	rax, rdi
1:	ret

FUNC f_exit				# b + the sum of 1 to a; ends with an instruction of 7 bytes and ret
	lea	rax, [rsi+0x12345678]
	sub	rax, 0x12345678
	push	rbx
	push	rdi
	test	rdi, rdi
	jz	1f
	dec	rdi
	call	f_exit
	add	rax, [rsp]
1:
	pop	rdi
	pop	rbx
	.globl f_exit_end
f_exit_end:
	lea	rdi, [rsi+0x12345678]
	ret

FUNC f_call				# a + b, and calls a C function meanwhile
	lea	rax, [rsi+0x12345678]
	sub	rsp, 8
	call	between@plt
	add	rsp, 8
	ret

FUNC f_jump				# calls itself a deep; then never returns
	lea	rax, [rsi+0x12345678]
	test	rdi, rdi
	jz	2f
	dec	rdi
	sub	rsp, 24
	call	f_jump
	add	rsp, 24
	ret
2:	sub	rsp, 8
	call	leave@plt

FUNC f_keep				# a + b, and 0 if the call in between changes a register or a flag
	push	rbx
	push	rbp
	push	r12
	push	r13
	push	r14
	push	r15
	.irp	r, rcx, rdx, rbx, rbp, r8, r9, r10, r11, r12, r13, r14, r15
	lea	\r, [rdi+rsi+(1f-f_keep)]
	.endr
	mov	[rsp-64], rdi
	cmp	rdi, rsi
	pushfq
	call	f_lea
	pushfq
	pop	[rsp-16]
	sub	rsp, 24
	mov	rax, [rsp+8]
	cmp	rax, [rsp+24]
	lea	rsp, [rsp+32]
	mov	eax, 0
	jne	2f
	lea	rax, [rdi+rsi+(1f-f_keep)]
	.irp	r, rcx, rdx, rbx, rbp, r8, r9, r10, r11, r12, r13, r14, r15
	cmp	rax, \r
	mov	eax, 0
	jne	2f
	lea	rax, [rdi+rsi+(1f-f_keep)]
	.endr
1:	lea	rax, [rdi+rsi]
2:	pop	r15
	pop	r14
	pop	r13
	pop	r12
	pop	rbp
	pop	rbx
	ret
	.section .note.GNU-stack,"",@progbits
