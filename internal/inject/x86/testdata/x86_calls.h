# The pool of calls: called by detours, at work on the private stack. Go is not served in 32 bits, so
# i386 has no owners of calls but threads, and a call's place is its stack slot.

#ifdef __i386__
#define SEG ebp				/* the segment */
#define SLOT ebx			/* the stack slot of a return address */
#define SLOT32 ebx
#define NODE edi			/* a call */
#define FOUND edi			/* the call that find_call finds, */
#define FOUND_AT ebp			/* and where its address is */
#define BATCH esi			/* calls that are given away: the first, */
#define LAST ebp			/* and the last of them */
#define INST esi			/* an instance of this thread's, */
#define BACK ecx			/* and what it has put in its slot */
#define KEY esi				/* the key of an instance that is away, */
#define KEY32 esi
#define AWAY eax			/* and that instance */
#define DATA eax			/* a call's private data */
#else
#define SEG r8
#define SLOT rbp
#define SLOT32 ebp
#define NODE r9
#define FOUND r10
#define FOUND_AT r11
#define BATCH r10
#define LAST r11
#define INST r10
#define BACK rdi
#define KEY r10
#define KEY32 r10d
#define AWAY r11
#define DATA rdi
#endif

	.macro TO_PRIVATE
	mov	[DX+STATE_RSP], SP
	lea	SP, [DX-TARGET_SP-8]	# it may be there already, with a return address
#ifdef __i386__
	.irp	r, ebx, esi, edi, ebp
#else
	.irp	r, rbx, rsi, rdi, rbp, r8, r9, r10, r11
#endif
	push	\r
	.endr
	.endm

	.macro FROM_PRIVATE
#ifdef __i386__
	.irp	r, ebp, edi, esi, ebx
#else
	.irp	r, r11, r10, r9, r8, rbp, rdi, rsi, rbx
#endif
	pop	\r
	.endr
	mov	SP, [DX+STATE_RSP]
	.endm

	# POOL loads SEG for all that follows. i386 needs the register for more, and loads it where
	# the segment is needed.
	.macro POOL
#ifdef __x86_64__
	SEGMENT	SEG
#endif
	.endm

	# Counts the call \node as lost; changes eax.
	.macro LOSE node, why
	mov	eax, [\node+NODE_PROBE]
	COUNT	DX+AX*8+STATE_COUNTERS+\why
	.endm

# The thread DX stands at the stack slot AX; on amd64 its goroutine's descriptor is rcx, 0 for none.
# Leaves SI at the owner of calls there, 0 for none; BX, the slot's place on the owner's stack;
# SLOT; and on amd64 SEG. The calls are given up that this shows to be over.
#ifdef __i386__
owner:	mov	ebx, eax
	lea	esi, [edx+STATE_OWN]
#else
owner:	mov	rbp, rax
	SEGMENT	r8
	test	rcx, rcx
	jz	thread
	MAY_FAULT thread
	mov	rdi, [rcx+GO_STACK_LO]
	cmp	rbp, rdi
	jbe	thread
	MAY_FAULT thread
	mov	rdi, [rcx+GO_STACK_HI]
	cmp	rbp, rdi
	ja	thread			# it is a stack of C's, perhaps
	mov	rbx, rbp
	sub	rbx, rdi		# this stays when the stack moves
	imul	esi, ecx, OWNERS_HASH
	shr	esi, OWNERS_SHIFT
	and	esi, OWNERS_MASK
	add	rsi, [r8+POOL_GOROUTINES]
	lea	rdi, [rsi+OWNERS_WINDOW*OWNER_SIZE]
1:	mov	rax, [rsi+OWNER_KEY]
	cmp	rax, rcx
	je	3f
	test	rax, rax
	jz	2f
	add	rsi, OWNER_SIZE
	cmp	rsi, rdi
	jb	1b
	xor	esi, esi
	ret
2:	lock cmpxchg [rsi+OWNER_KEY], rcx	# once in a descriptor's life
	jne	1b
3:	xor	edi, edi
	mov	eax, [r8+POOL_GOID]
	test	eax, eax
	jz	4f
	mov	rdi, [rcx+rax]
4:	cmp	rdi, [rsi+OWNER_ID]
	je	deeper
	mov	[rsi+OWNER_ID], rdi
	mov	qword ptr [rsi+OWNER_AGAIN], 0
5:	mov	r9, [rsi+OWNER_TOP]	# calls of a goroutine that has ended
	test	r9, r9
	jz	owned
	LOSE	r9, LOST_GOEXIT
	call	pop_call
	jmp	5b
owned:	ret

deeper:	mov	r9, [rsi+OWNER_TOP]
	test	r9, r9
	jz	owned
	cmp	[r9+NODE_PLACE], rbx
	jge	owned
	LOSE	r9, LOST_UNWOUND
	call	pop_call
	jmp	deeper

thread:	lea	rsi, [rdx+STATE_OWN]
	mov	rbx, rbp
#endif
7:	mov	NODE, [SI+OWNER_TOP]
	test	NODE, NODE
	jz	owned
	mov	AX, [NODE+NODE_PLACE]
	cmp	AX, BX
	jae	owned
	cmp	AX, [DX+STATE_STACK_LOW]
	jb	owned			# of another stack
	cmp	BX, [DX+STATE_STACK_HIGH]
	jae	owned
	LOSE	NODE, LOST_UNWOUND
	call	pop_call
	jmp	7b
#ifdef __i386__
owned:	ret
#endif

# The newest call NODE of the owner SI is over. Changes AX, CX; on amd64 rdi, r10, r11, too.
pop_call:
	mov	AX, [NODE+NODE_NEXT]
	mov	[SI+OWNER_TOP], AX
	dec	dword ptr [SI+OWNER_COUNT]
# The call NODE is free again. What is in it stays until the thread needs one.
free_call:
	mov	AX, [DX+STATE_FREE]
	mov	[NODE+NODE_NEXT], AX
	mov	[DX+STATE_FREE], NODE
	inc	dword ptr [DX+STATE_FREES]
	cmp	dword ptr [DX+STATE_FREES], 2*POOL_BATCH
	jb	3f
#ifdef __i386__
	push	ebx
	push	esi
	push	ebp
#endif
	mov	BATCH, AX		# a batch is given away: those behind the first
	mov	LAST, AX
	mov	ecx, POOL_BATCH-1
1:	mov	LAST, [LAST+NODE_NEXT]
	dec	ecx
	jnz	1b
	mov	AX, [LAST+NODE_NEXT]
	mov	[NODE+NODE_NEXT], AX
	mov	[LAST+NODE_NEXT], CX
	sub	dword ptr [DX+STATE_FREES], POOL_BATCH
	# Its number, and a count that is another one each time, change at once: 8 bytes.
#ifdef __i386__
	push	edx
	SEGMENT	ebp
	mov	ebx, esi
	sub	ebx, [ebp+POOL_CALLS]
	shr	ebx, NODE_SHIFT
	inc	ebx
	mov	eax, [ebp+POOL_GIVEN]
	mov	edx, [ebp+POOL_GIVEN+4]
2:	mov	[esi+NODE_BATCH], eax
	lea	ecx, [edx+1]
	lock cmpxchg8b [ebp+POOL_GIVEN]
	jne	2b
	pop	edx
	pop	ebp
	pop	esi
	pop	ebx
#else
	mov	rdi, r10
	sub	rdi, [r8+POOL_CALLS]
	shr	rdi, NODE_SHIFT
	inc	edi
	mov	rax, [r8+POOL_GIVEN]
2:	mov	[r10+NODE_BATCH], eax
	mov	r11, rax
	shr	r11, 32
	inc	r11d
	shl	r11, 32
	or	r11, rdi
	lock cmpxchg [r8+POOL_GIVEN], r11
	jne	2b
#endif
3:	ret

# NODE becomes a free call, 0 where there is none; its private data, as much as is asked for,
# zeros. Changes AX, CX; on amd64 rdi, r10, r11, too.
take_call:
#ifdef __i386__
	push	ebp
	SEGMENT	ebp
#endif
	mov	NODE, [DX+STATE_FREE]
	test	NODE, NODE
	jz	1f
	mov	AX, [NODE+NODE_NEXT]
	mov	[DX+STATE_FREE], AX
	dec	dword ptr [DX+STATE_FREES]
	jmp	taken
#ifdef __i386__
1:	push	ebx
	push	edx
	mov	eax, [ebp+POOL_GIVEN]
	mov	edx, [ebp+POOL_GIVEN+4]
2:	mov	edi, eax
	dec	edi
	js	3f			# there are no batches
	shl	edi, NODE_SHIFT
	add	edi, [ebp+POOL_CALLS]
	mov	ebx, [edi+NODE_BATCH]
	lea	ecx, [edx+1]
	lock cmpxchg8b [ebp+POOL_GIVEN]
	jne	2b
	pop	edx
	pop	ebx
#else
1:	mov	rax, [r8+POOL_GIVEN]
2:	mov	ecx, eax
	dec	ecx
	js	3f			# there are no batches
	mov	r9, rcx
	shl	r9, NODE_SHIFT
	add	r9, [r8+POOL_CALLS]
	mov	r10d, [r9+NODE_BATCH]
	mov	r11, rax
	shr	r11, 32
	inc	r11d
	shl	r11, 32
	or	r11, r10
	lock cmpxchg [r8+POOL_GIVEN], r11
	jne	2b
#endif
	mov	AX, [NODE+NODE_NEXT]
	mov	[DX+STATE_FREE], AX
	mov	dword ptr [DX+STATE_FREES], POOL_BATCH-1
	jmp	taken
#ifdef __i386__
3:	pop	edx
	pop	ebx
	xor	edi, edi
#else
3:	xor	r9d, r9d
#endif
	mov	eax, [SEG+POOL_NEXT]
	cmp	eax, [SEG+POOL_MAX]
	jae	5f
	mov	eax, 1
	lock xadd [SEG+POOL_NEXT], eax
	cmp	eax, [SEG+POOL_MAX]
	jae	5f
	mov	NODE, AX
	shl	NODE, NODE_SHIFT
	add	NODE, [SEG+POOL_CALLS]
taken:	mov	DATA, NODE
	sub	DATA, [SEG+POOL_CALLS]
	shl	DATA, DATA_SHIFT
	add	DATA, [SEG+POOL_DATA]
	mov	ecx, [DX+STATE_ASKED+8]
4:	sub	ecx, 1
	js	5f
	FILL8	0, DATA+CX*8
	jmp	4b
#ifdef __i386__
5:	pop	ebp
	ret
#else
5:	ret
#endif

# FOUND becomes the call of the probe eax at the place BX of the owner SI, 0 for none, and
# FOUND_AT where the address of it is.
find_call:
	lea	FOUND_AT, [SI+OWNER_TOP]
#ifdef __x86_64__
	lea	rdi, [rdx+STATE_OWN]
#endif
1:	mov	FOUND, [FOUND_AT]
	test	FOUND, FOUND
	jz	5f
	cmp	[FOUND+NODE_PLACE], BX
	jne	2f
	cmp	[FOUND+NODE_PROBE], eax
	je	5f
#ifdef __i386__
2:
#else
	jmp	3f
2:	cmp	rsi, rdi		# a goroutine's calls are in order
	jne	4f
3:
#endif
	lea	FOUND_AT, [FOUND+NODE_NEXT]
	jmp	1b
#ifdef __x86_64__
4:	xor	r10d, r10d
#endif
5:	ret

	# The call FOUND is taken off the list of the owner SI, and is NODE from here on.
#ifdef __i386__
	.macro UNLINK
	call	unlink
	.endm

unlink:	mov	eax, [edi+NODE_NEXT]
	mov	[ebp], eax
	dec	dword ptr [esi+OWNER_COUNT]
	ret
#else
	.macro UNLINK
	mov	r9, r10
	mov	rax, [r9+NODE_NEXT]
	mov	[r11], rax
	dec	dword ptr [rsi+OWNER_COUNT]
	.endm

	# What may be about to begin anew: rdi, of eax and rbx. i386 keeps the two apart.
	.macro AGAIN
	mov	edi, ebx
	shl	rdi, 32
	or	rdi, rax
	.endm
#endif

# A function has been entered by the thread DX, on amd64 its goroutine rcx, with its return address
# in the slot AX. STATE_ASKED has the probe, the most calls, and the words of private data.
# Leaves the call in CX and in STATE_CALL; or 0 if it cannot be watched; or 1 if it
# is none: the function begins anew.
ROUTINE enter_call
	TO_PRIVATE
	call	owner
	xor	ecx, ecx
#ifdef __i386__
	mov	eax, [edx+STATE_ASKED]
	mov	edi, [esi+OWNER_AGAIN]
	mov	ebp, [esi+OWNER_AGAIN+4]
	mov	[esi+OWNER_AGAIN], ecx
	mov	[esi+OWNER_AGAIN+4], ecx
	cmp	edi, eax
	jne	1f
	cmp	ebp, ebx
	jne	1f			# a place is never 0
#else
	test	rsi, rsi
	jz	entered
	mov	eax, [rdx+STATE_ASKED]
	AGAIN
	mov	r10, [rsi+OWNER_AGAIN]
	test	r10, r10
	jz	1f
	mov	[rsi+OWNER_AGAIN], rcx
	cmp	rdi, r10
	jne	1f
#endif
	inc	ecx
	jmp	entered
1:	call	find_call
	test	FOUND, FOUND
	jz	2f
	LOSE	FOUND, LOST_UNWOUND	# its place is used again
	UNLINK
	call	free_call
2:	mov	ecx, [DX+STATE_ASKED+4]
	cmp	[SI+OWNER_COUNT], ecx
	jb	5f
	mov	FOUND, [SI+OWNER_TOP]	# calls of whatever probes
	mov	eax, [DX+STATE_ASKED]
3:	test	FOUND, FOUND
	jz	4f
	cmp	[FOUND+NODE_PROBE], eax
	mov	FOUND, [FOUND+NODE_NEXT]
	jne	3b
	dec	ecx
	jmp	3b
4:	test	ecx, ecx
	mov	ecx, 0
	jle	entered
5:	call	take_call
	mov	CX, NODE
	test	NODE, NODE
	jz	entered
	mov	AX, [SI+OWNER_TOP]
	mov	[NODE+NODE_NEXT], AX
	mov	[NODE+NODE_PLACE], BX
	mov	AX, [SLOT]
	mov	[NODE+NODE_RET], AX
	mov	eax, [DX+STATE_ASKED]
	mov	[NODE+NODE_PROBE], eax
	mov	[SI+OWNER_TOP], NODE
	inc	dword ptr [SI+OWNER_COUNT]
	mov	[DX+STATE_CALL], NODE
	mov	[DX+STATE_OWNER], SI
entered:
	FROM_PRIVATE
	ret

# A function is left by the thread DX, on amd64 its goroutine rcx, with its return address in the slot
# AX. STATE_ASKED has the probe, and in the fourth word 1 if the function is to begin
# anew. Leaves its call in CX and in STATE_CALL, or 0 if it was not watched. It is taken
# from its owner, and stays as it is until the thread makes another one.
ROUTINE leave_call
	TO_PRIVATE
	call	owner
	xor	ecx, ecx
#ifdef __i386__
	mov	eax, [edx+STATE_ASKED]
	cmp	[edx+STATE_ASKED+12], ecx
	je	1f
	mov	[esi+OWNER_AGAIN], eax
	mov	[esi+OWNER_AGAIN+4], ebx
#else
	test	rsi, rsi
	jz	left
	mov	eax, [rdx+STATE_ASKED]
	cmp	[rdx+STATE_ASKED+12], ecx
	je	1f
	AGAIN
	mov	[rsi+OWNER_AGAIN], rdi
#endif
	jmp	left
1:	call	find_call
#ifdef __x86_64__
	xor	ecx, ecx
#endif
	test	FOUND, FOUND
	jz	left
	UNLINK
	mov	[DX+STATE_CALL], NODE
	mov	AX, [NODE+NODE_RET]
	mov	BACK, [SLOT]
	cmp	BACK, AX
	je	2f
	mov	INST, [DX+STATE_CALLS]	# a detour has swapped it since, perhaps more than once: the last call first
3:	sub	INST, CALL_SIZE
	cmp	dword ptr [INST+CALL_PROBE], -1
	je	4f			# the sentinel
	cmp	[INST+CALL_SLOT], SLOT
	jne	3b
	cmp	[INST+CALL_BACK], BACK
	jne	3b
	mov	BACK, [INST+CALL_RET]
	cmp	BACK, AX
	jne	3b
	jmp	2f
	# Or it is away: what BUCKET and INSTANCE (x86_instances.h) do, in other registers. i386 has too few:
	# the count of tries is on its stack, and the return address is read anew.
#ifdef __i386__
4:	SEGMENT	SEG
	push	16
#else
4:	mov	ecx, 16
#endif
	imul	KEY32, SLOT32, HASH_FACTOR
	shr	KEY32, AWAY_SHIFT
	and	KEY32, [SEG+AWAY_MASK]
	shl	KEY32, 3
	add	KEY, [SEG+AWAY_KEYS]
5:	cmp	[KEY], SLOT
	jne	6f
	mov	AWAY, KEY
	sub	AWAY, [SEG+AWAY_KEYS]
	shl	AWAY, CALL_SHIFT-3
	add	AWAY, [SEG+AWAY_CALLS]
	cmp	[AWAY+CALL_BACK], BACK
	jne	6f
	mov	BACK, [AWAY+CALL_RET]
#ifdef __i386__
	cmp	BACK, [NODE+NODE_RET]
	je	8f
	dec	dword ptr [esp]
#else
	cmp	BACK, AX
	je	2f
	dec	ecx
#endif
	jz	7f
	and	KEY, -AWAY_BUCKET
	jmp	5b
6:	add	KEY, 8
	test	KEY32, AWAY_BUCKET-1
	jnz	5b
7:	LOSE	NODE, LOST_UNWOUND	# another call has its place, that was not seen to begin
	mov	WORD [DX+STATE_CALL], 0
#ifdef __i386__
8:	pop	eax
#endif
2:	call	free_call
	mov	CX, [DX+STATE_CALL]
left:	FROM_PRIVATE
	ret

# The call STATE_CALL of the thread DX, its owner's newest, is not to be watched.
ROUTINE forget_call
	TO_PRIVATE
	POOL
	mov	NODE, [DX+STATE_CALL]
	mov	SI, [DX+STATE_OWNER]
	call	pop_call
	FROM_PRIVATE
	ret

# The thread DX needs private data, STATE_ASKED+8 words of it. Leaves the call whose it is
# in STATE_CALL, or 0.
ROUTINE take_data
	TO_PRIVATE
	push	AX
	push	CX
	POOL
	call	take_call
	mov	[DX+STATE_CALL], NODE
	pop	CX
	pop	AX
	FROM_PRIVATE
	ret

# The private data of STATE_CALL is no longer needed; it stays until the thread takes some.
ROUTINE give_data
	TO_PRIVATE
	push	AX
	push	CX
	POOL
	mov	NODE, [DX+STATE_CALL]
	call	free_call
	pop	CX
	pop	AX
	FROM_PRIVATE
	ret
