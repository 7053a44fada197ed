# What the detours are held against: each does by hand, with nothing to spare, one
# job at f_lea. One thread, one probe, no questions asked.
	.intel_syntax noprefix
	.text
	.macro FLOOR name
	.p2align 6
	.globl \name
\name:
	.endm
	.macro RESUME
	.byte 0x48,0x8d,0x84,0x37,0,0,0,0
	jmp	f_lea+8
	.endm
	.macro SAVE
	lea	rsp, [rsp-128]
	.irp	r, rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
	push	\r
	.endr
	lahf
	seto	al
	push	rax
	.endm
	.macro RESTORE
	pop	rax
	add	al, 127
	sahf
	.irp	r, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax
	pop	\r
	.endr
	lea	rsp, [rsp+128]
	.endm

FLOOR floor_count		# a counter, flags kept
	lea	rsp, [rsp-128]
	push	rax
	lahf
	seto	al
	inc	qword ptr [rip+floor_counter]
	add	al, 127
	sahf
	pop	rax
	lea	rsp, [rsp+128]
	RESUME

FLOOR floor_registers		# all registers for a function that counts
	SAVE
	mov	rdi, rsp
	mov	rbx, rsp
	and	rsp, -64
	call	floor_handler
	mov	rsp, rbx
	RESTORE
	RESUME

	.p2align 4
floor_handler:
	inc	qword ptr [rip+floor_counter]
	ret

FLOOR floor_record		# 32 bytes with a time stamp into a ring
	lea	rsp, [rsp-128]
	push	rax
	lahf
	seto	al
	push	rax
	push	rcx
	push	rdx
	mov	ecx, 1
	xadd	[rip+floor_head], rcx
	and	ecx, 65535
	shl	rcx, 5
	lea	rax, [rip+floor_ring]
	add	rcx, rax
	rdtsc
	shl	rdx, 32
	or	rax, rdx
	mov	[rcx], rax
	mov	qword ptr [rcx+8], 42
	mov	[rcx+16], rdi
	mov	[rcx+24], rsi
	pop	rdx
	pop	rcx
	pop	rax
	add	al, 127
	sahf
	pop	rax
	lea	rsp, [rsp+128]
	RESUME

FLOOR floor_return		# entry and return, paired, the return counted
	push	rcx
	mov	rcx, [rip+floor_stack]
	push	[rsp+8]
	pop	[rcx]
	add	qword ptr [rip+floor_stack], 8
	pop	rcx
	lea	rsp, [rsp+8]
	call	1f
	inc	qword ptr [rip+floor_counter]
	sub	qword ptr [rip+floor_stack], 8
	push	rax
	mov	rax, [rip+floor_stack]
	mov	rax, [rax]
	xchg	rax, [rsp]
	ret
1:	RESUME

	.data
floor_stack:
	.quad	floor_shadow
	.bss
	.balign 64
floor_counter:
	.skip	64
floor_head:
	.skip	64
floor_shadow:
	.skip	4096
floor_ring:
	.skip	65536*32
	.section .note.GNU-stack,"",@progbits
