# The target's memory, read and written.

#ifdef __i386__
#define SOURCE esi			/* where a read reads */
#define READ_SIZE ecx			/* the bytes that are left to read, */
#define TEXT_SIZE edx			/* the most that a text may have, */
#define WRITE_SIZE ecx			/* and those that are left to write */
#else
#define SOURCE rdx
#define READ_SIZE rsi
#define TEXT_SIZE rsi
#define WRITE_SIZE rdx
#endif

ROUTINE probe_read			# destination, size, source
	ARG	DI, 1
	ARG	READ_SIZE, 2
	ARG	SOURCE, 3
	NARROW	3, bad_address
#ifdef __x86_64__
	mov	r8, rdi
	mov	r9, rsi
#endif
1:	cmp	READ_SIZE, WORD_SIZE
	jb	2f
	MAY_FAULT bad_address
	mov	AX, [SOURCE]
	mov	[DI], AX
	add	SOURCE, WORD_SIZE
	add	DI, WORD_SIZE
	sub	READ_SIZE, WORD_SIZE
	jmp	1b
2:	test	READ_SIZE, READ_SIZE
	jz	3f
	MAY_FAULT bad_address
	mov	al, [SOURCE]
	mov	[DI], al
	inc	SOURCE
	inc	DI
	dec	READ_SIZE
	jmp	2b
3:	xor	eax, eax
	ANSWER

bad_address:				# the bytes that were asked for become zeros, on amd64 the r9 at r8
#ifdef __i386__
	ARG	edi, 1
	ARG	ecx, 2
	xor	eax, eax
	FILL	al, 1
	FAIL	EFAULT
#else
	test	r9, r9
	jz	1f
	mov	byte ptr [r8], 0
	inc	r8
	dec	r9
	jmp	bad_address
1:	FAIL	EFAULT
#endif

ROUTINE probe_read_str			# destination, size, source
	ARG	DI, 1
	ARG	TEXT_SIZE, 2
	ARG	SOURCE, 3
	NARROW	3, bad_address
#ifdef __x86_64__
	mov	r8, rdi
	mov	r9, rsi
#endif
	xor	ecx, ecx
1:	cmp	CX, TEXT_SIZE
	jae	2f
	MAY_FAULT bad_address
	mov	al, [SOURCE+CX]
	mov	[DI+CX], al
	inc	CX
	test	al, al
	jnz	1b
#ifdef __i386__
	jmp	3f
#else
	mov	rax, rcx
	ret
#endif
2:	test	CX, CX
	jz	3f
	mov	byte ptr [DI+CX-1], 0
3:	mov	AX, CX
	ANSWER

ROUTINE probe_write_user		# destination, source, size
	ARG	DI, 1
	ARG	SI, 2
	ARG	WRITE_SIZE, 3
	NARROW	1, no_address
1:	cmp	WRITE_SIZE, WORD_SIZE
	jb	2f
	mov	AX, [SI]
	MAY_FAULT no_address
	mov	[DI], AX
	add	SI, WORD_SIZE
	add	DI, WORD_SIZE
	sub	WRITE_SIZE, WORD_SIZE
	jmp	1b
2:	test	WRITE_SIZE, WRITE_SIZE
	jz	3f
	mov	al, [SI]
	MAY_FAULT no_address
	mov	[DI], al
	inc	SI
	inc	DI
	dec	WRITE_SIZE
	jmp	2b
3:	xor	eax, eax
	ANSWER
no_address:
	FAIL	EFAULT
