# The functions of host_probed.S in 32-bit code: (a, b) are of 64 bits, on the stack, of
# which the lower halves count; the result is in edx:eax.
	.intel_syntax noprefix
	.code32
	.text
	.macro FUNC name
	.p2align 6
	.globl \name
	.type \name, @function
\name:
	.endm

	# An instruction of 7 bytes.
	.macro LOAD7 modrm, disp
	.byte 0x8b, \modrm, 0x24, \disp, 0, 0, 0	# mov r32, [esp+disp]
	.endm
	.set	eax_esp, 0x84
	.set	ecx_esp, 0x8c

	# The arguments once more, with a less one.
	.macro AGAIN
	push	dword ptr [esp+16]
	push	dword ptr [esp+16]
	push	0
	dec	ecx
	push	ecx
	.endm

FUNC f_lea				# a + b, and no flag or other register changes
	LOAD7	eax_esp, 4
	mov	edx, [esp+12]
	lea	eax, [eax+edx]
	mov	edx, 0
	ret

FUNC f_push				# a + b
	LOAD7	eax_esp, 4
	push	dword ptr [esp+12]
	add	eax, [esp]
	pop	edx
	mov	edx, 0
	ret

FUNC f_nest				# b + the sum of 1 to a
	LOAD7	eax_esp, 12
	mov	edx, 0
	mov	ecx, [esp+4]
	test	ecx, ecx
	jz	1f
	AGAIN
	call	f_nest
	pop	ecx
	add	esp, 12
	lea	eax, [eax+ecx+1]
1:	ret

FUNC f_exit				# b + the sum of 1 to a; ends with an instruction of 7 bytes and ret
	LOAD7	eax_esp, 12
	mov	edx, 0
	mov	ecx, [esp+4]
	test	ecx, ecx
	jz	f_exit_end
	AGAIN
	call	f_exit
	pop	ecx
	add	esp, 12
	lea	eax, [eax+ecx+1]
	.globl f_exit_end
f_exit_end:
	LOAD7	ecx_esp, 12
	ret

FUNC f_call				# a + b, and calls a C function meanwhile
	LOAD7	eax_esp, 4
	.rept	4
	push	dword ptr [esp+16]
	.endr
	call	between
	add	esp, 16
	ret

FUNC f_jump				# calls itself a deep; then never returns
	LOAD7	ecx_esp, 4
	test	ecx, ecx
	jz	2f
	AGAIN
	call	f_jump
	add	esp, 16
	ret
2:	sub	esp, 12
	call	leave

FUNC f_keep				# a + b, and 0 if the call in between changes a register or a flag
	push	ebx
	push	ebp
	push	esi
	push	edi
	mov	eax, [esp+20]
	.irp	r, ecx, ebx, ebp, esi, edi
	lea	\r, [eax+(1f-f_keep)]
	.endr
	push	0
	push	dword ptr [esp+32]
	push	0
	push	eax
	cmp	eax, [esp+8]
	pushfd
	pop	dword ptr [esp+4]
	call	f_lea
	pushfd
	pop	dword ptr [esp+12]
	mov	eax, [esp+12]
	cmp	eax, [esp+4]
	jne	2f
	mov	eax, [esp]
	lea	eax, [eax+(1f-f_keep)]
	.irp	r, ecx, ebx, ebp, esi, edi
	cmp	eax, \r
	jne	2f
	.endr
1:	mov	eax, [esp]
	add	eax, [esp+8]
	jmp	3f
2:	xor	eax, eax
3:	xor	edx, edx
	add	esp, 16
	pop	edi
	pop	esi
	pop	ebp
	pop	ebx
	ret
	.section .note.GNU-stack,"",@progbits
