# Maps.

#ifdef __i386__
#define HOME [ebp+T_HOME]		/* the two buckets where a key may be */
#define OTHER [ebp+T_OTHER]
#define SEARCHED ebx			/* the bucket that is searched */
#define PLACE ebx			/* the bucket that is locked, or has a new element */
#define FLAGS dword ptr [ebp+R+8*4]	/* the fourth argument, */
#define KEPT_FLAGS FLAGS		/* and where it is kept */
#define RESULT dword ptr [ebp+T_RESULT]	/* of what follows a lock */
#define TRIES dword ptr [ebp+T_TRIES]
#define BUSY edx			/* TAG_BUSY */
#else
#define HOME r9
#define OTHER r10
#define SEARCHED r11
#define PLACE r9
#define FLAGS ecx
#define KEPT_FLAGS r14d
#define RESULT rbx
#define TRIES edx
#define BUSY ebp
#endif

# Where the key SI may be in the map DI: its tag, r8d or T_TAG, and the buckets HOME and OTHER.
#ifdef __i386__
places:	mov	ecx, [edi+HDR_KEY_SIZE]
	mov	ebx, esi
	xor	eax, eax
	xor	edx, edx
1:	call	next_word
	xor	eax, [ebp+T_WORD]
	xor	edx, [ebp+T_WORD+4]
	push	ecx
	call	mix
	pop	ecx
	test	ecx, ecx
	jg	1b
	mov	ecx, eax
	or	ecx, TAG_KEY
	mov	[ebp+T_TAG], ecx
	push	edx
	push	eax
	call	bucket
	mov	HOME, edx
	pop	eax
	pop	edx
	call	times
	call	bucket
	mov	OTHER, edx
	ret

# edx = the bucket of a hash whose upper half is edx.
bucket:	mov	eax, edx
	mul	dword ptr [edi+HDR_BUCKETS]
	shl	edx, BUCKET_SHIFT
	add	edx, [edi+HDR_INDEX]
	add	edx, edi
	ret
#else
places:	mov	ecx, [rdi+HDR_KEY_SIZE]
	mov	r10, rsi
	movabs	r9, HASH_MUL
	xor	eax, eax
1:	NEXT_WORD
	xor	rax, r11
	MIX	r9, r11
	add	r10, 8
	sub	ecx, 8
	jg	1b
	mov	r8d, eax
	or	r8d, TAG_KEY
	mov	ecx, [rdi+HDR_BUCKETS]
	imul	r9, rax
	.irp	r, rax, r9
	shr	\r, 32
	imul	\r, rcx
	shr	\r, 32
	shl	\r, BUCKET_SHIFT
	add	\r, [rdi+HDR_INDEX]
	add	\r, rdi
	.endr
	mov	OTHER, r9
	mov	HOME, rax
	ret
#endif

# AX is the element of the map DI with the key SI, whose places are known; or negative. On i386 it is in
# the slot ecx of the bucket ebx.
search:	mov	SEARCHED, HOME
	call	inside
	test	AX, AX
	jns	1f
	mov	SEARCHED, OTHER
	call	inside
1:	ret

# The same in the bucket SEARCHED.
#ifdef __i386__
inside:	xor	ecx, ecx
1:	mov	eax, [ebp+T_TAG]
	cmp	eax, [ebx+ecx*4+BUCKET_TAGS]
	je	3f
2:	inc	ecx
	cmp	ecx, BUCKET_SLOTS
	jb	1b
	or	eax, -1
	ret
3:	call	element
	push	eax
	call	key
	push	ecx
	push	esi
	push	edi
	mov	ecx, [edi+HDR_KEY_SIZE]
	mov	edi, eax
	test	ecx, ecx		# equal, so far
	jz	9f
8:	mov	al, [esi+ecx-1]		# repe would go the other way where the program has that set
	cmp	al, [edi+ecx-1]
	jne	9f
	dec	ecx
	jnz	8b
9:	pop	edi
	pop	esi
	pop	ecx
	pop	eax
	jne	2b
	call	is_lru
	jne	4f
	cmp	byte ptr [ebx+ecx+BUCKET_USED], 0
	jne	4f
	mov	byte ptr [ebx+ecx+BUCKET_USED], 1
4:	ret

# eax = the number of the element in slot ecx of the bucket ebx.
element:
	mov	eax, ebx
	sub	eax, edi
	sub	eax, [edi+HDR_INDEX]
	shr	eax, BUCKET_SHIFT-3
	add	eax, ecx
	ret

# eax = the address of the key of the element eax.
key:	imul	eax, [edi+HDR_KEY_STRIDE]
	add	eax, [edi+HDR_KEYS]
	add	eax, edi
	ret
#else
inside:	push	rbx
	push	rbp
	mov	rax, r11
	sub	rax, rdi
	sub	rax, [rdi+HDR_INDEX]
	shr	rax, BUCKET_SHIFT-3	# its first element
	xor	ebp, ebp
1:	cmp	r8d, [r11+rbp*4+BUCKET_TAGS]
	je	3f
2:	inc	ebp
	cmp	ebp, BUCKET_SLOTS
	jb	1b
	or	rax, -1
	jmp	6f
3:	mov	ebx, [rdi+HDR_KEY_STRIDE]
	lea	rcx, [rax+rbp]
	imul	rbx, rcx
	add	rbx, [rdi+HDR_KEYS]
	add	rbx, rdi
	push	r10
	push	r11
	mov	ecx, [rdi+HDR_KEY_SIZE]
	mov	r10, rsi
4:	NEXT_WORD
	cmp	r11, [rbx]
	jne	5f
	add	rbx, 8
	add	r10, 8
	sub	ecx, 8
	jg	4b
	xor	ecx, ecx		# equal
5:	pop	r11
	pop	r10
	jne	2b
	add	rax, rbp
	call	is_lru
	jne	6f
	cmp	byte ptr [r11+rbp+BUCKET_USED], 0
	jne	6f
	mov	byte ptr [r11+rbp+BUCKET_USED], 1
6:	pop	rbp
	pop	rbx
	ret
#endif

is_lru:	cmp	dword ptr [DI+HDR_TYPE], LRU_HASH
	je	1f
	cmp	dword ptr [DI+HDR_TYPE], LRU_PERCPU_HASH
1:	ret

# AX becomes the address of this thread's value of the element AX; changes CX.
value:
#ifdef __i386__
	imul	eax, [edi+HDR_VALUE_STRIDE]
#else
	mov	ecx, [rdi+HDR_VALUE_STRIDE]	# 4 bytes
	imul	rax, rcx
#endif
	add	AX, [DI+HDR_VALUES]
	add	AX, DI
	mov	ecx, [STATE+STATE_SLOT]
	imul	CX, [DI+HDR_SLOT_STRIDE]
	add	AX, CX
	ret

	# The value \from goes to the element AX; on i386 it is always the third argument.
#ifdef __i386__
	.macro PUT_VALUE from
	call	put_value
	.endm

put_value:
	call	value
	push	esi
	push	edi
	mov	ecx, [edi+HDR_VALUE_SIZE]
	mov	edi, eax
	ARG	esi, 3
	call	copy
	pop	edi
	pop	esi
	ret
#else
	.macro PUT_VALUE from
	call	value
	mov	r9, rax
	mov	r10, \from
	mov	ecx, [rdi+HDR_VALUE_SIZE]
	call	copy
	.endm
#endif

# Locks the key's home, PLACE; not equal if it cannot.
lock:
#ifdef __i386__
	mov	PLACE, HOME
#endif
	mov	ecx, LOCK_TRIES
	mov	edx, [STATE+STATE_PID_TGID+4]
	shl	edx, LOCK_SLOT_BITS
	mov	eax, [STATE+STATE_SLOT]
	lea	edx, [DX+AX+1]
1:	xor	eax, eax
	lock cmpxchg [PLACE+BUCKET_LOCK], edx
	je	3f
	cmp	eax, edx
	je	2f			# this thread's, whom a signal's handler has interrupted
	pause
	dec	ecx
	jnz	1b
2:	or	ecx, 1			# not equal
3:	ret

ROUTINE map_lookup_elem			# map, key
	ARG	DI, 1
	ARG	SI, 2
	cmp	dword ptr [DI+HDR_BUCKETS], 0
	jne	1f
	mov	eax, [SI]
	cmp	eax, [DI+HDR_ELEMS]
	jb	its_value
	xor	eax, eax
	ANSWER
1:	call	places
	call	search
	test	AX, AX
	jns	its_value
	xor	eax, eax
	ANSWER
#ifdef __i386__
its_value:
	call	value
	ANSWER
#else
	.set	its_value, value
#endif

ROUTINE map_update_elem			# map, key, value, flags
#ifdef __i386__
	ARG	edi, 1
	ARG	esi, 2
	NARROW	4, invalid
	cmp	FLAGS, UPDATE_EXIST
#else
	cmp	rcx, UPDATE_EXIST
#endif
	ja	invalid
	cmp	dword ptr [DI+HDR_BUCKETS], 0
	jne	update_hash
	cmp	dword ptr [DI+HDR_TYPE], ARRAY
	je	1f
	cmp	dword ptr [DI+HDR_TYPE], PERCPU_ARRAY
	jne	invalid
1:	mov	eax, [SI]
	cmp	eax, [DI+HDR_ELEMS]
	jae	2f
	cmp	FLAGS, UPDATE_NOEXIST
	je	3f
	PUT_VALUE DX
	xor	eax, eax
	ANSWER
2:	FAIL	E2BIG
3:	FAIL	EEXIST
invalid:
	FAIL	EINVAL

# What has to be kept until a new element is there is more than the registers hold that a helper may
# change: amd64 pushes five, and i386 has words of the state.
update_hash:
#ifdef __x86_64__
	.irp	r, rbx, rbp, r13, r14, r15
	push	\r
	.endr
	mov	r13, rdx		# value
	mov	r14, rcx		# flags
#endif
	call	places
	call	lock
#ifdef __i386__
	jne	busy
#else
	mov	rax, -EBUSY
	jne	out
	mov	r15, PLACE
#endif
	call	search
	test	AX, AX
	js	1f
	mov	RESULT, -EEXIST
	cmp	KEPT_FLAGS, UPDATE_NOEXIST
#ifdef __i386__
	je	unlock
	call	put_value
	mov	RESULT, 0
#else
	jne	store
#endif
	jmp	unlock
1:	mov	RESULT, -ENOENT
	cmp	KEPT_FLAGS, UPDATE_EXIST
	je	unlock

	# The first free element, by turns in both buckets, so that they fill evenly. Its
	# bucket is PLACE from here on.
	mov	BUSY, TAG_BUSY
	xor	ecx, ecx
2:
#ifdef __i386__
	mov	PLACE, HOME
#endif
	xor	eax, eax
	lock cmpxchg [PLACE+CX*4+BUCKET_TAGS], BUSY
	je	new
#ifdef __i386__
	mov	PLACE, OTHER
	xor	eax, eax
	lock cmpxchg [PLACE+ecx*4+BUCKET_TAGS], BUSY
	je	new
#else
	xor	eax, eax
	lock cmpxchg [OTHER+rcx*4+BUCKET_TAGS], BUSY
	je	3f
#endif
	inc	ecx
	cmp	ecx, BUCKET_SLOTS
	jb	2b
	mov	RESULT, -E2BIG
	call	is_lru
	jne	unlock
#ifdef __i386__
	mov	PLACE, HOME
#endif
	mov	TRIES, 2*BUCKET_SLOTS
#ifdef __x86_64__
	jmp	evict
3:	mov	PLACE, OTHER
	jmp	new
#endif

	# LRU: the hand goes round; what was used since gets another chance.
evict:	mov	ecx, [PLACE+BUCKET_HAND]
	and	ecx, BUCKET_SLOTS-1
	lea	eax, [CX+1]
	and	eax, BUCKET_SLOTS-1
	mov	[PLACE+BUCKET_HAND], eax
	cmp	byte ptr [PLACE+CX+BUCKET_USED], 0
	je	4f
	mov	byte ptr [PLACE+CX+BUCKET_USED], 0
	jmp	5f
4:	mov	eax, [PLACE+CX*4+BUCKET_TAGS]
	cmp	eax, TAG_BUSY
	je	5f
	lock cmpxchg [PLACE+CX*4+BUCKET_TAGS], BUSY
	je	new
5:	dec	TRIES
	jnz	evict
	mov	RESULT, -EBUSY
	jmp	unlock

	# Slot ecx of the bucket is ours.
#ifdef __i386__
new:	mov	byte ptr [ebx+ecx+BUCKET_USED], 0
	lea	eax, [ebx+ecx*4+BUCKET_TAGS]
	mov	[ebp+T_TAGAT], eax
	call	element
	mov	[ebp+T_ELEM], eax
	call	key
	push	edi
	mov	ecx, [edi+HDR_KEY_SIZE]
	mov	edi, eax
	call	copy
	pop	edi
	mov	ebx, [ebp+T_ELEM]	# zero the values of all threads
	imul	ebx, [edi+HDR_VALUE_STRIDE]
	add	ebx, [edi+HDR_VALUES]
	add	ebx, edi
	sub	ebx, [edi+HDR_SLOT_STRIDE]	# the controller's first
	SEGMENT	eax
	mov	ecx, [edi+HDR_SLOTS]
	dec	ecx
	cmp	ecx, [eax+HEAD_HELD]
	cmova	ecx, [eax+HEAD_HELD]
	mov	TRIES, ecx
	xor	edx, edx
5:	cmp	edx, TRIES
	ja	6f
	mov	ecx, [edi+HDR_VALUE_STRIDE]
	shr	ecx, 2
	xor	eax, eax
	push	edi
	mov	edi, ebx
	FILL	eax, 4
	pop	edi
	inc	edx
	add	ebx, [edi+HDR_SLOT_STRIDE]
	jmp	5b
6:	mov	eax, [ebp+T_ELEM]
	call	put_value
	mov	eax, [ebp+T_TAG]
	mov	ecx, [ebp+T_TAGAT]
	mov	[ecx], eax		# and now it is there
	mov	RESULT, 0
unlock:	mov	PLACE, HOME
	mov	dword ptr [PLACE+BUCKET_LOCK], 0
	mov	eax, RESULT
	test	eax, eax
	jnz	minus
	jmp	answer
busy:	FAIL	EBUSY
#else
new:	mov	rbp, r9
	mov	edx, ecx
	mov	rax, r9
	sub	rax, rdi
	sub	rax, [rdi+HDR_INDEX]
	shr	rax, BUCKET_SHIFT-3
	add	rax, rcx
	mov	r9d, [rdi+HDR_KEY_STRIDE]
	imul	r9, rax
	add	r9, [rdi+HDR_KEYS]
	add	r9, rdi
	mov	r10, rsi
	mov	ecx, [rdi+HDR_KEY_SIZE]
	call	copy
	mov	byte ptr [rbp+rdx+BUCKET_USED], 0
	lea	r14, [rbp+rdx*4+BUCKET_TAGS]
	xor	ebx, ebx		# zero the values of all threads
	mov	ebp, [rdi+HDR_VALUE_STRIDE]
	mov	r9, rax
	imul	r9, rbp
	add	r9, [rdi+HDR_VALUES]
	add	r9, rdi
	sub	r9, [rdi+HDR_SLOT_STRIDE]	# the controller's first
	mov	edx, [rdi+HDR_SLOTS]
	dec	edx
	SEGMENT	rcx
	cmp	edx, [rcx+HEAD_HELD]
	cmova	edx, [rcx+HEAD_HELD]
6:	cmp	ebx, edx
	ja	8f
	xor	ecx, ecx
7:	mov	qword ptr [r9+rcx], 0
	add	ecx, 8
	cmp	ecx, ebp
	jb	7b
	inc	ebx
	add	r9, [rdi+HDR_SLOT_STRIDE]
	jmp	6b
8:	PUT_VALUE r13
	mov	[r14], r8d		# and now it is there
	xor	ebx, ebx
	jmp	unlock

	# The value r13 for the element rax, which was there.
store:	PUT_VALUE r13
	xor	ebx, ebx
unlock:	mov	dword ptr [r15+BUCKET_LOCK], 0
	mov	rax, RESULT
out:
	.irp	r, r15, r14, r13, rbp, rbx
	pop	\r
	.endr
	ret
#endif

ROUTINE map_delete_elem			# map, key
	ARG	DI, 1
	ARG	SI, 2
	cmp	dword ptr [DI+HDR_BUCKETS], 0
	jne	1f
	cmp	dword ptr [DI+HDR_TYPE], STACK_TRACE
	jne	invalid
	mov	eax, [SI]
	cmp	eax, [DI+HDR_ELEMS]
	jae	4f
#ifdef __i386__
	add	edi, [edi+HDR_INDEX]
	xor	edx, edx
	xchg	[edi+eax*TRACE_INDEX_SIZE+TRACE_COUNT], edx
#else
	mov	rcx, [rdi+HDR_INDEX]
	add	rcx, rdi
	xor	edx, edx
	xchg	[rcx+rax*TRACE_INDEX_SIZE+TRACE_COUNT], edx
#endif
	test	edx, edx
	jz	4f
	xor	eax, eax
	ANSWER
1:	call	places
	call	lock
#ifdef __i386__				/* it ends as an update does */
	jne	busy
	call	search
	mov	RESULT, -ENOENT
	test	eax, eax
	js	unlock
	mov	eax, [ebp+T_TAG]
	xor	edx, edx		# TAG_FREE
	lock cmpxchg [ebx+ecx*4+BUCKET_TAGS], edx
	jne	unlock			# evicted just now
	mov	RESULT, 0
	jmp	unlock
4:	FAIL	ENOENT
#else
	jne	5f
	call	search
	mov	rdx, -ENOENT
	test	rax, rax
	js	3f
	mov	r11, rax		# its tag
	shr	r11, 3
	shl	r11, BUCKET_SHIFT
	and	eax, BUCKET_SLOTS-1
	lea	r11, [r11+rax*4+BUCKET_TAGS]
	add	r11, [rdi+HDR_INDEX]
	mov	eax, r8d
	xor	ecx, ecx		# TAG_FREE
	lock cmpxchg [rdi+r11], ecx
	jne	3f			# evicted just now
	xor	edx, edx
3:	mov	dword ptr [PLACE+BUCKET_LOCK], 0
	mov	rax, rdx
	ret
4:	FAIL	ENOENT
5:	FAIL	EBUSY
#endif

#ifdef __i386__
#define TAG_AT ebx			/* where the tag of the element is */
#else
#define TAG_AT r11
#endif

ROUTINE map_walk			# map, position, key
	ARG	DI, 1
	ARG	SI, 2
1:	mov	AX, [SI]
#ifdef __i386__
	cmp	dword ptr [esi+4], 0
	jne	4f
	cmp	eax, [edi+HDR_ELEMS]
#else
	mov	ecx, [rdi+HDR_ELEMS]
	cmp	rax, rcx
#endif
	jae	4f
	inc	WORD [SI]
	cmp	dword ptr [DI+HDR_BUCKETS], 0
	je	3f
	mov	TAG_AT, AX
	shr	TAG_AT, 3
	shl	TAG_AT, BUCKET_SHIFT
	mov	ecx, eax
	and	ecx, BUCKET_SLOTS-1
	lea	TAG_AT, [TAG_AT+CX*4+BUCKET_TAGS]
	add	TAG_AT, [DI+HDR_INDEX]
	add	TAG_AT, DI
#ifdef __i386__
	mov	edx, [ebx]
	test	edx, TAG_KEY
	jz	1b
	mov	[ebp+T_TAG], edx
	mov	[ebp+T_ELEM], eax
	push	esi
	push	edi
	mov	esi, [edi+HDR_KEY_STRIDE]
	imul	esi, eax
	add	esi, [edi+HDR_KEYS]
	add	esi, edi
	mov	ecx, [edi+HDR_KEY_SIZE]
	ARG	edi, 3
	call	copy
	pop	edi
	pop	esi
	mov	edx, [ebp+T_TAG]
	cmp	edx, [ebx]
	jne	1b
	mov	eax, [ebp+T_ELEM]
	jmp	5f
3:	ARG	edx, 3
	mov	[edx], eax
5:	call	value
	ANSWER
#else
	mov	r8d, [r11]
	test	r8d, TAG_KEY
	jz	1b
	mov	r9d, [rdi+HDR_KEY_STRIDE]
	imul	r9, rax
	add	r9, [rdi+HDR_KEYS]
	add	r9, rdi
	xor	ecx, ecx
2:	mov	r10b, [r9+rcx]
	mov	[rdx+rcx], r10b
	inc	ecx
	cmp	ecx, [rdi+HDR_KEY_SIZE]
	jb	2b
	cmp	r8d, [r11]
	jne	1b
	jmp	value
3:	mov	[rdx], eax
	jmp	value
#endif
4:	xor	eax, eax
	ANSWER
