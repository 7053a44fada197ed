# Rings, and the records of trace_printk.

# A record of eax or esi bytes of the ring DI; AX is 0 if there is no room. On amd64 it is a helper.
#
# Head and tail have 8 bytes. The reader must never see half of a new head, so on i386 both
# halves change at once where the upper one does; and its tail is read until both
# halves are of one.
#ifdef __i386__
reserve:
	mov	esi, eax
	mov	ebx, [ebp+STATE_SLOT]
	imul	ebx, [edi+HDR_SLOT_STRIDE]
	add	ebx, [edi+HDR_VALUES]
	add	ebx, edi		# this thread's ring
	mov	edi, [edi+HDR_RING_SIZE]
	cmp	esi, edi
	ja	5f
	lea	ecx, [esi+7+RECORD_HEADER]
	and	ecx, -8			# what the record takes
	mov	[ebp+T_NEED], ecx
	lea	eax, [edi-1]
	and	eax, [ebx+RING_HEAD]	# where it would be
	mov	[ebp+T_OFF], eax
	xor	edx, edx
	add	ecx, eax
	cmp	ecx, edi
	jbe	1f
	mov	edx, edi		# to be filled before the ring's end
	sub	edx, eax
1:	mov	[ebp+T_FILL], edx
	add	edx, [ebp+T_NEED]
	mov	eax, [ebx+RING_HEAD]
	mov	ecx, [ebx+RING_HEAD+4]
	add	eax, edx
	adc	ecx, 0
	mov	[ebp+T_NEW], eax
	mov	[ebp+T_NEW+4], ecx
2:	mov	eax, [ebp+T_NEW]
	mov	ecx, [ebp+T_NEW+4]
	mov	edx, [ebx+RING_TAIL+4]
	sub	eax, [ebx+RING_TAIL]
	sbb	ecx, edx
	cmp	edx, [ebx+RING_TAIL+4]
	jne	2b
	test	ecx, ecx
	jnz	5f
	cmp	eax, edi
	ja	5f
	mov	eax, [ebp+T_OFF]
	lea	edi, [ebx+eax+RING_DATA]
	mov	edx, [ebp+T_FILL]
	test	edx, edx
	jz	3f
	sub	edx, RECORD_HEADER
	or	edx, RECORD_DISCARD
	mov	[edi], edx
	mov	dword ptr [edi+4], 0
	lea	edi, [ebx+RING_DATA]
3:	or	esi, RECORD_BUSY
	mov	[edi], esi
	mov	dword ptr [edi+4], 0
	mov	esi, ebx
	mov	edx, [esi+RING_HEAD+4]
	mov	ebx, [ebp+T_NEW]
	mov	ecx, [ebp+T_NEW+4]
	cmp	ecx, edx
	jne	4f
	mov	[esi+RING_HEAD], ebx
	lea	eax, [edi+RECORD_HEADER]
	ret
4:	mov	eax, [esi+RING_HEAD]
	lock cmpxchg8b [esi+RING_HEAD]
	lea	eax, [edi+RECORD_HEADER]
	ret
5:	COUNT	ebx+RING_LOST
	xor	eax, eax
	ret

	# WHOLE makes an argument that does not fit 32 bits the greatest that does, in eax.
	.macro WHOLE n
	ARG	eax, \n
	cmp	dword ptr [ebp+R+8*\n+4], 0
	je	97f
	or	eax, -1
97:
	.endm

ROUTINE ringbuf_reserve			# map, size, flags
	ARG	edi, 1
	WHOLE	2
	call	reserve
	jmp	answer
#else
ROUTINE ringbuf_reserve			# map, size, flags
	mov	r8d, [rdi+HDR_RING_SIZE]
	mov	ecx, [r12+STATE_SLOT]
	imul	rcx, [rdi+HDR_SLOT_STRIDE]
	add	rcx, [rdi+HDR_VALUES]
	add	rcx, rdi		# this thread's ring
	cmp	rsi, r8
	ja	3f
	lea	r9, [rsi+7+RECORD_HEADER]
	and	r9, -8			# what the record takes
	mov	r10, [rcx+RING_HEAD]
	lea	rax, [r8-1]
	and	rax, r10		# where it would be
	xor	r11d, r11d
	lea	rdx, [rax+r9]
	cmp	rdx, r8
	jbe	1f
	mov	r11, r8			# to be filled before the ring's end
	sub	r11, rax
1:	add	r10, r11
	add	r10, r9			# the new head
	mov	rdx, r10
	sub	rdx, [rcx+RING_TAIL]
	cmp	rdx, r8
	ja	3f
	test	r11, r11
	jz	2f
	sub	r11d, RECORD_HEADER
	or	r11d, RECORD_DISCARD
	mov	[rcx+rax+RING_DATA], r11
	xor	eax, eax
2:	or	esi, RECORD_BUSY
	mov	[rcx+rax+RING_DATA], rsi
	mov	[rcx+RING_HEAD], r10
	lea	rax, [rcx+rax+RING_DATA+RECORD_HEADER]
	ret
3:	COUNT	rcx+RING_LOST
	xor	eax, eax
	ret
#endif

# A record for the ring DI; AX is 0 if there is no room. On i386 its T_LEN bytes are at T_FROM, on amd64
# its rdx bytes are at rsi.
#ifdef __i386__
record:	mov	eax, [ebp+T_LEN]
	call	reserve
	test	eax, eax
	jz	1f
	mov	[ebp+T_RECORD], eax
	mov	edi, eax
	mov	esi, [ebp+T_FROM]
	mov	ecx, [ebp+T_LEN]
	call	copy
	mov	eax, [ebp+T_RECORD]
#else
record:	push	rsi
	push	rdx
	mov	rsi, rdx
	call	ringbuf_reserve_
	pop	rcx
	pop	r10
	test	rax, rax
	jz	1f
	mov	r9, rax
	call	copy
#endif
	and	dword ptr [AX-RECORD_HEADER], ~RECORD_BUSY
1:	ret

#ifdef __i386__
	# What the record is made of: two arguments.
	.macro RECORD from, len
	ARG	eax, \from
	mov	[ebp+T_FROM], eax
	WHOLE	\len
	mov	[ebp+T_LEN], eax
	.endm
#endif

ROUTINE ringbuf_output			# map, data, size, flags
#ifdef __i386__
	ARG	edi, 1
	RECORD	2, 3
	mov	ecx, [edi+HDR_RING_SIZE]
	sub	ecx, RECORD_HEADER
	cmp	eax, ecx
#else
	mov	eax, [rdi+HDR_RING_SIZE]
	sub	eax, RECORD_HEADER
	cmp	rdx, rax
#endif
	ja	1f
	call	record
	test	AX, AX
	jz	2f
	xor	eax, eax
	ANSWER
1:	FAIL	E2BIG
2:	FAIL	EAGAIN

ROUTINE perf_event_output		# context, map, flags, data, size
#ifdef __i386__
	ARG	edi, 2
	NARROW	3, invalid
	RECORD	4, 5
#else
	shr	rdx, 32
	jnz	invalid
	mov	rdi, rsi
	mov	rsi, rcx
	mov	rdx, r8
#endif
	call	record
	test	AX, AX
	jz	1f
	xor	eax, eax
	ANSWER
1:	FAIL	ENOSPC

ROUTINE trace_printk			# format, size, three values
#ifdef __i386__
	lea	eax, [ebp+R+8*3]
	mov	ecx, 3*8
	jmp	print
#else
	push	r8
	push	rcx
	push	rdx
	mov	rdx, rsp
	mov	ecx, 3*8
	call	trace_vprintk_
	add	rsp, 3*8
	ret
#endif

#ifdef __i386__
#define LENGTH esi			/* a format's length; the format is in BX */
#else
#define LENGTH r15
#endif

ROUTINE trace_vprintk			# format, size, values, their size
#ifdef __i386__
	ARG	eax, 3
	WHOLE	4
	mov	ecx, eax
	ARG	eax, 3
	# The ecx bytes of values at eax.
print:	cmp	ecx, 8*MAX_PRINTK_OF
	jbe	1f
	mov	ecx, 8*MAX_PRINTK_OF
1:	and	ecx, -8
	push	eax			# values: esp+8
	push	ecx			# their size: esp+4
	mov	LENGTH, [ebp+R+8*2]
	cmp	LENGTH, MAX_PRINTK
	jbe	1f
	mov	LENGTH, MAX_PRINTK
1:	ARG	ebx, 1
	push	0			# texts
	xor	ecx, ecx
2:	call	conversion
	test	al, al
	jz	3f
	cmp	al, 's'
	jne	2b
	inc	dword ptr [esp]
	jmp	2b
3:	mov	[ebp+T_LEN], LENGTH
	SEGMENT	edi
	mov	edi, [edi+HEAD_TRACE]
	test	edi, edi
	jz	8f
	imul	eax, [esp], PRINTK_TEXT
	add	eax, [esp+4]
	lea	eax, [eax+LENGTH+PRINTK_ARGS+7]
	and	eax, -8
	call	reserve
	test	eax, eax
	jz	8f			# no room: the ring has counted it
	mov	[ebp+T_RECORD], eax
	mov	ecx, [ebp+STATE_PID_TGID]
	mov	[eax+PRINTK_THREAD], ecx
	mov	ecx, [ebp+T_LEN]
	mov	[eax+PRINTK_LEN], ecx
	mov	ecx, [esp]
	mov	[eax+PRINTK_TEXTS], ecx
	mov	ecx, [esp+4]
	mov	edx, ecx
	shr	edx, 3
	mov	[eax+PRINTK_COUNT], edx
	lea	edi, [eax+PRINTK_ARGS]
	mov	esi, [esp+8]
	call	copy
	ARG	esi, 1
	mov	ecx, [ebp+T_LEN]
	call	copy
	add	edi, 7
	and	edi, -8			# where texts go; the record's are multiples of 8
	ARG	ebx, 1
	xor	ecx, ecx
4:	cmp	dword ptr [esp+4], 0
	je	7f
	mov	LENGTH, [ebp+T_LEN]
	call	conversion
	test	al, al
	jz	7f
	cmp	al, 's'
	jne	6f
	push	ecx
	mov	esi, [esp+12]
	mov	word ptr [edi], 0x100	# not to be read
	cmp	dword ptr [esi+4], 0
	jne	5f
	mov	esi, [esi]
	xor	ecx, ecx
1:	MAY_FAULT no_text
	mov	al, [esi+ecx]
	mov	[edi+ecx], al
	test	al, al
	jz	5f
	inc	ecx
	cmp	ecx, PRINTK_TEXT
	jb	1b
	mov	byte ptr [edi+ecx-1], 0
	jmp	5f
no_text:
	mov	word ptr [edi], 0x100
5:	pop	ecx
	add	edi, PRINTK_TEXT
6:	add	dword ptr [esp+8], 8
	sub	dword ptr [esp+4], 8
	jmp	4b
7:	mov	eax, [ebp+T_RECORD]
	and	dword ptr [eax-RECORD_HEADER], ~RECORD_BUSY
8:	add	esp, 12
	ARG	eax, 2
	jmp	answer
#else
	.irp	r, rbx, rbp, r13, r14, r15, rsi
	push	\r
	.endr
	mov	rbx, rdi		# format
	mov	r13, rdx		# values
	mov	r14d, 8*MAX_PRINTK_OF
	cmp	rcx, r14
	cmovb	r14, rcx
	and	r14d, -8		# their size
	mov	r15d, MAX_PRINTK
	cmp	rsi, LENGTH
	cmovb	LENGTH, rsi
	xor	ebp, ebp		# texts
	xor	ecx, ecx
1:	call	conversion
	test	al, al
	jz	2f
	cmp	al, 's'
	jne	1b
	inc	ebp
	jmp	1b
2:	SEGMENT	rdi
	mov	rdi, [rdi+HEAD_TRACE]
	test	rdi, rdi
	jz	6f
	imul	esi, ebp, PRINTK_TEXT
	add	esi, r14d
	lea	esi, [rsi+LENGTH+PRINTK_ARGS+7]
	and	esi, -8
	call	ringbuf_reserve_
	test	rax, rax
	jz	6f			# no room: the ring has counted it
	mov	ecx, [r12+STATE_PID_TGID]
	mov	[rax+PRINTK_THREAD], ecx
	mov	[rax+PRINTK_LEN], r15d
	mov	ecx, r14d
	shr	ecx, 3
	mov	[rax+PRINTK_COUNT], ecx
	mov	[rax+PRINTK_TEXTS], ebp
	push	rax
	lea	r9, [rax+PRINTK_ARGS]
	mov	r10, r13
	mov	ecx, r14d
	call	copy
	mov	r10, rbx
	mov	ecx, r15d
	call	copy
	lea	rbp, [r13+r14]		# the values' end
	mov	r14, r9			# where texts go
	xor	ecx, ecx
3:	cmp	r13, rbp
	jae	5f
	call	conversion
	test	al, al
	jz	5f
	cmp	al, 's'
	jne	4f
	push	rcx
	mov	rdi, r14
	mov	esi, PRINTK_TEXT
	mov	rdx, [r13]
	SEGMENT	rax
	mov	rax, [rax+HEAD_READ_TEXT]
	test	rax, rax
	jz	7f
	call	rax			# a kernel's
	jmp	8f
7:	call	probe_read_str_
8:	pop	rcx
	test	rax, rax
	jns	9f
	mov	word ptr [r14], 0x100	# not to be read
9:	add	r14, PRINTK_TEXT
4:	add	r13, 8
	jmp	3b
5:	pop	rax
	and	dword ptr [rax-RECORD_HEADER], ~RECORD_BUSY
6:	pop	rax
	.irp	r, r15, r14, r13, rbp, rbx
	pop	\r
	.endr
	ret
#endif

# al becomes the verb of the next conversion of the format BX, of LENGTH bytes, from CX on, which is
# moved behind it; 0 at the end. Pointers to text (%pks, %pus) are 's'.
conversion:
1:	call	letter
	jz	4f
	cmp	al, '%'
	jne	1b
2:	call	letter
	jz	4f
	cmp	al, '%'
	je	1b
	cmp	al, 'A'			# flags, width and precision
	jb	2b
	.irp	size, 'l', 'h', 'z', 'j'
	cmp	al, \size
	je	2b
	.endr
	cmp	al, 'p'
	jne	4f
	lea	DX, [CX+2]
	cmp	DX, LENGTH
	ja	4f
	cmp	byte ptr [BX+CX+1], 's'
	jne	4f
	cmp	byte ptr [BX+CX], 'k'
	je	3f
	cmp	byte ptr [BX+CX], 'u'
	jne	4f
3:	mov	CX, DX
	mov	al, 's'
4:	ret

letter:	xor	eax, eax
	cmp	CX, LENGTH
	jae	1f
	mov	al, [BX+CX]
	inc	CX
1:	test	al, al
	ret

#ifdef __x86_64__
# probe_read_str where a kernel has nothing to read text with.
ROUTINE no_text
	FAIL	EFAULT
#endif
