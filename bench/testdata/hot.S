# hot, and what is to be had of each kind of probe on it by hand: one thread, one
# probe, no questions asked. The detours have a page of their own, as those of any program that
# runs already must: that costs a cycle or so a jump.
	.intel_syntax noprefix
	.text
	.macro BEGIN name
	.p2align 6
	.globl \name
	.type \name, @function
\name:
	.endm
	.macro BACK
	.byte 0x48,0x8d,0x84,0x37,0,0,0,0
	jmp	hot+8
	.endm
	.macro KEEP			# rax and the status flags
	lea	rsp, [rsp-128]
	push	rax
	lahf
	seto	al
	.endm
	.macro GIVE
	add	al, 127
	sahf
	pop	rax
	lea	rsp, [rsp+128]
	.endm

BEGIN hot
	.byte 0x48,0x8d,0x84,0x37,0,0,0,0	# lea rax, [rdi+rsi+0], in 8 bytes
	ret
	.size hot, .-hot

	.balign 4096
BEGIN floor_count
	KEEP
	inc	qword ptr counter[rip]
	GIVE
	BACK

BEGIN floor_registers
	lea	rsp, [rsp-128]
	.irp	r, rax, rcx, rdx, rbx, rbp, rsi, rdi, r8, r9, r10, r11, r12, r13, r14, r15
	push	\r
	.endr
	lahf
	seto	al
	push	rax
	mov	rdi, rsp
	mov	rbx, rsp
	and	rsp, -64
	call	floor_handler
	mov	rsp, rbx
	pop	rax
	add	al, 127
	sahf
	.irp	r, r15, r14, r13, r12, r11, r10, r9, r8, rdi, rsi, rbp, rbx, rdx, rcx, rax
	pop	\r
	.endr
	lea	rsp, [rsp+128]
	BACK

BEGIN floor_record
	KEEP
	push	rax
	push	rcx
	push	rdx
	mov	ecx, 1
	xadd	next[rip], rcx
	and	ecx, 32767
	shl	rcx, 5
	lea	rax, ring[rip]
	add	rcx, rax
	rdtsc				# in nanoseconds, as bpf_ktime_get_ns tells it
	shl	rdx, 32
	or	rax, rdx
	mul	qword ptr scale[rip]
	shrd	rax, rdx, 32
	add	rax, zero[rip]
	mov	[rcx], rax
	mov	qword ptr [rcx+8], 42
	mov	[rcx+16], rdi
	mov	[rcx+24], rsi
	pop	rdx
	pop	rcx
	pop	rax
	GIVE
	BACK

BEGIN floor_return			# entry and return, paired
	push	rcx
	mov	rcx, shadow[rip]
	push	[rsp+8]
	pop	[rcx]
	add	qword ptr shadow[rip], 8
	pop	rcx
	lea	rsp, [rsp+8]
	call	1f
	inc	qword ptr counter[rip]
	sub	qword ptr shadow[rip], 8
	push	rax
	mov	rax, shadow[rip]
	mov	rax, [rax]
	xchg	rax, [rsp]
	ret
1:	BACK

	.data
	.balign 64
shadow:	.quad	stack
	.balign 64
scale:	.quad	0x629bba00		# any will do
zero:	.quad	12345
	.bss
	.balign 64
counter:
	.skip	64
next:	.skip	64
stack:	.skip	4096
ring:	.skip	32768*32
	.section .note.GNU-stack,"",@progbits
