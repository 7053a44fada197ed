# How programs call helpers, and what helpers share.

# Where a program returns to that the controller wants to have back. Should no controller be there
# any more, the trap becomes the jump that lies hidden behind it, and goes on where the
# program would have.
ROUTINE trap_exit
	int3
	.long	0
	jmp	[STATE+STATE_BACK]

ROUTINE helpers

# The helpers: see package bpf for what they do, and for the layout of what they work
# on. The thread's state is in STATE. Their arguments are R1 to R5, and the answer is R0.
#
# amd64 has R1 to R5 in rdi, rsi, rdx, rcx, r8, and R0 in rax. A helper may change these and r9 to
# r11.
#
# i386 has R0 to R5 in the thread's state. A helper may change all registers but ebp and esp. The map
# is in edi, most often; what it remembers is in the state too, in words T_...: no program runs
# twice in a thread.

#ifdef __i386__
	.set	R, STATE_REGS
	.set	MUL_LO, HASH_MUL & 0xffffffff
	.set	MUL_HI, (HASH_MUL >> 32) & 0xffffffff

	.set	T_TAG, SCRATCH		# of a key
	.set	T_HOME, SCRATCH+4	# its buckets
	.set	T_OTHER, SCRATCH+8
	.set	T_RESULT, SCRATCH+12
	.set	T_WORD, SCRATCH+16	# 8 bytes
	.set	T_ELEM, SCRATCH+24
	.set	T_TAGAT, SCRATCH+28
	.set	T_TRIES, SCRATCH+32
	.set	T_NEW, SCRATCH+40	# a ring's new head: 8 bytes
	.set	T_NEED, SCRATCH+48
	.set	T_OFF, SCRATCH+52
	.set	T_FILL, SCRATCH+56
	.set	T_RECORD, SCRATCH+60
	.set	T_LEN, SCRATCH+64
	.set	T_FROM, SCRATCH+68
	.set	T_COUNT, SCRATCH+72	# of a trace
	.set	T_HASH, SCRATCH+76
	.set	T_SKIP, SCRATCH+80
	.set	T_MAX, SCRATCH+84
	.set	T_PRODUCT, SCRATCH+88	# 16 bytes
	.set	T_TICKS, SCRATCH+104	# 8 bytes
#endif

	# ARG loads the argument \n. On amd64 \reg has it already.
	.macro ARG reg, n
#ifdef __i386__
	mov	\reg, [ebp+R+8*\n]
#endif
	.endm

	# NARROW goes to \wide where the argument \n does not fit a word. On amd64 all do.
	.macro NARROW n, wide
#ifdef __i386__
	cmp	dword ptr [ebp+R+8*\n+4], 0
	jne	\wide
#endif
	.endm

	# ANSWER ends a helper: R0 becomes AX, a number that is not negative. FAIL ends it with an error.
#ifdef __i386__
	.macro ANSWER
	jmp	answer
	.endm

	.macro FAIL errno
	mov	eax, -\errno
	jmp	minus
	.endm

# What helpers end with: R0 becomes eax, a number that is not negative; or one that is; or
# edx:eax.
answer:	xor	edx, edx
answer8:
	mov	[ebp+R], eax
	mov	[ebp+R+4], edx
	ret
minus:	or	edx, -1
	jmp	answer8
#else
	.macro ANSWER
	ret
	.endm

	.macro FAIL errno
	mov	rax, -\errno
	ret
	.endm
#endif

# ---- Hashes ----

#ifdef __i386__
# edx:eax = edx:eax * HASH_MUL; changes ecx. mix does what follows in a hash, too.
times:	mov	ecx, eax
	imul	ecx, ecx, MUL_HI
	imul	edx, edx, MUL_LO
	add	ecx, edx
	mov	edx, MUL_LO
	mul	edx
	add	edx, ecx
	ret
mix:	call	times
	xor	eax, edx
	ret
#else
	# rax = rax * HASH_MUL (in mul), mixed; changes tmp
	.macro MIX mul, tmp
	imul	rax, \mul
	mov	\tmp, rax
	shr	\tmp, 32
	xor	rax, \tmp
	.endm
#endif

# ---- Copies ----

#ifdef __i386__
	# Strings are moved and filled word by word: rep goes the other way where the program has
	# its direction flag set, and taking that away and giving it back costs more. Each takes
	# ecx as the count and moves edi, and esi, behind. MOVE_BYTES changes dl.
	.macro MOVE_WORDS
	jecxz	97f
96:	push	dword ptr [esi]
	pop	dword ptr [edi]
	add	esi, 4
	add	edi, 4
	dec	ecx
	jnz	96b
97:
	.endm
	.macro MOVE_BYTES
	jecxz	97f
96:	mov	dl, [esi]
	mov	[edi], dl
	inc	esi
	inc	edi
	dec	ecx
	jnz	96b
97:
	.endm
	.macro FILL reg, size		# with eax, or al
	jecxz	97f
96:	mov	[edi], \reg
	add	edi, \size
	dec	ecx
	jnz	96b
97:
	.endm

# Copies ecx bytes from esi to edi, and moves them; changes edx.
copy:	mov	edx, ecx
	shr	ecx, 2
	MOVE_WORDS
	mov	ecx, edx
	and	ecx, 3
	MOVE_BYTES
	ret

# T_WORD = the 8 bytes at ebx, or the ecx, less than 8, that are left, padded with zeros;
# moves both on.
next_word:
	cmp	ecx, 8
	jb	1f
	push	dword ptr [ebx]
	pop	dword ptr [ebp+T_WORD]
	push	dword ptr [ebx+4]
	pop	dword ptr [ebp+T_WORD+4]
	jmp	2f
1:	mov	dword ptr [ebp+T_WORD], 0
	mov	dword ptr [ebp+T_WORD+4], 0
	push	ecx
	push	esi
	push	edi
	push	edx
	mov	esi, ebx
	lea	edi, [ebp+T_WORD]
	MOVE_BYTES
	pop	edx
	pop	edi
	pop	esi
	pop	ecx
2:	add	ebx, 8
	sub	ecx, 8
	ret
#else
	# r11 = the 8 bytes at r10, or the ecx, less than 8, that are left, padded with zeros
	.macro NEXT_WORD
	cmp	ecx, 8
	jae	7f
	call	partial
	jmp	8f
7:	mov	r11, [r10]
8:
	.endm

partial:
	push	rcx
	push	rax
	xor	r11d, r11d
1:	dec	ecx
	shl	r11, 8
	movzx	eax, byte ptr [r10+rcx]
	or	r11, rax
	test	ecx, ecx
	jnz	1b
	pop	rax
	pop	rcx
	ret

# Copies ecx bytes from r10 to r9, which has room for whole words.
copy:	test	ecx, ecx
	jle	2f
1:	NEXT_WORD
	mov	[r9], r11
	add	r9, 8
	add	r10, 8
	sub	ecx, 8
	jg	1b
2:	ret
#endif
