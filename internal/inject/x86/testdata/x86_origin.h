# Is the word on top of the stack a return address? Called by detours, on the program's own stack.

# A function begins with the word AX on top of its stack, and no direct call is in front of where
# that leads. The zero flag becomes whether it may be a return address nevertheless: the
# controller's; behind an indirect call; in a file where a function or a part of one begins, or
# behind a call that a probe stands on; or what ends a signal (package returns, Origin). Keeps
# all else.
ROUTINE called
	push	CX
	push	SI
	push	DI
	SEGMENT	SI
	cmp	AX, [SI+HEAD_OTHER]
	je	origin
	.macro INDIRECT first, absent	# the opcode's first byte, or what has its place, and then /2
	.irp	back, 2, 3, 4, 6, 7
	MAY_FAULT \absent
	movzx	ecx, word ptr [AX-\back]
	and	ecx, 0x38ff
	cmp	ecx, 0x1000+\first
	je	origin
	.endr
	.endm
	INDIRECT 0xff, code
code:	lea	DI, [SI+HEAD_FILES-16]
file:	add	DI, 16
	mov	CX, [DI]
	test	CX, CX
	jz	signal
	cmp	AX, CX
	jb	file
	cmp	AX, [DI+8]
	jae	file
	test	al, FILE_ALIGN
	jz	origin
	MAY_FAULT signal
	cmp	byte ptr [AX-1], 0xc3
	je	origin
	MAY_FAULT signal
	movzx	ecx, word ptr [AX-2]
	and	ecx, 0xf8ff
	cmp	ecx, 0xe0ff		# jmp AX, or another register
	je	origin
	INDIRECT 0xcc, signal
	cmp	byte ptr [AX-5], 0xcc
	je	origin
	.irp	back, 5, 6, 7, 8, 9, 10, 11, 12	# a jump takes a call's beginning, and what is in front of it
	MAY_FAULT signal
	cmp	byte ptr [AX-\back], 0xe9
	je	origin
	.endr
#ifdef __i386__
signal:	MAY_FAULT astray
	cmp	dword ptr [eax], 0x0077b858	# pop eax; mov eax, 119 (sigreturn)
	jne	1f
	MAY_FAULT astray
	cmp	dword ptr [eax+4], 0x80cd0000	# int 0x80
	jmp	origin
1:	MAY_FAULT astray
	cmp	dword ptr [eax], 0x0000adb8	# mov eax, 173 (rt_sigreturn)
	jne	origin
	MAY_FAULT astray
	cmp	dword ptr [eax+3], 0x80cd0000
	jmp	origin
#else
signal:	MAY_FAULT astray
	mov	rcx, [rax]
	movabs	rdi, 0x0f0000000fc0c748	# mov rax, 15 (rt_sigreturn)
	cmp	rcx, rdi
	je	origin
	shl	rcx, 8
	movabs	rdi, 0x050f0000000fb800	# mov eax, 15; syscall
	cmp	rcx, rdi
	jmp	origin
#endif
astray:	test	SP, SP
origin:	pop	DI
	pop	SI
	pop	CX
	ret
