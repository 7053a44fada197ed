# Stacks: elements of a map of stack traces.

# The return addresses of the chain of frame pointers become an element.
ROUTINE get_stackid			# context, map, flags
#ifdef __i386__
	cmp	dword ptr [ebp+R+8*3+4], 0
	jne	invalid
	ARG	eax, 3
	test	eax, ~(STACK_SKIP|STACK_FLAGS)
	jnz	invalid
	and	eax, STACK_SKIP
	mov	[ebp+T_SKIP], eax
	ARG	esi, 2
	mov	eax, [esi+HDR_VALUE_SIZE]
	shr	eax, 3
	mov	[ebp+T_MAX], eax
	ARG	edi, 1
	mov	eax, [edi+8*CONTEXT_IP]
	mov	ebx, [edi+8*CONTEXT_FP]
	xor	ecx, ecx		# how many there are
	xor	edx, edx
1:	cmp	ecx, [ebp+T_MAX]
	jae	walked
	cmp	edx, [ebp+T_SKIP]
	jb	2f
	mov	[ebp+ecx*8+STATE_TRACE], eax
	mov	dword ptr [ebp+ecx*8+STATE_TRACE+4], 0
	inc	ecx
2:	inc	edx
	btr	dword ptr [ebp+R+8*3], STACK_ENTRY_BIT
	jnc	3f
	mov	edi, [edi+8*CONTEXT_SP]
	MAY_FAULT walked
	mov	eax, [edi]		# where a function begins, it has no frame yet
	test	eax, eax
	jnz	1b
	jmp	walked
3:	test	ebx, ebx
	jz	walked
	test	bl, 3
	jnz	walked
	MAY_FAULT walked
	mov	edi, [ebx]
	MAY_FAULT walked
	mov	eax, [ebx+4]
	test	eax, eax
	jz	walked
	cmp	edi, ebx
	mov	ebx, edi
	ja	1b
	xor	ebx, ebx		# frames that go down are none
	jmp	1b
#else
	test	rdx, ~(STACK_SKIP|STACK_FLAGS)
	jnz	invalid
	push	rbx
	mov	rbx, [rdi+8*CONTEXT_SP]
	mov	r8, rdx
	movzx	edx, dl			# to be skipped
	mov	r9, [rdi+8*CONTEXT_IP]
	mov	r10, [rdi+8*CONTEXT_FP]
	mov	edi, [rsi+HDR_VALUE_SIZE]
	shr	edi, 3
	xor	ecx, ecx
	xor	r11d, r11d		# how many there are
1:	cmp	r11d, edi
	jae	walked
	cmp	ecx, edx
	jb	2f
	mov	[r12+r11*8+STATE_TRACE], r9
	inc	r11d
2:	inc	ecx
	btr	r8d, STACK_ENTRY_BIT
	jnc	3f
	MAY_FAULT walked
	mov	r9, [rbx]		# where a function begins, it has no frame yet
	jmp	4f
3:	test	r10, r10
	jz	walked
	test	r10b, 7
	jnz	walked
	MAY_FAULT walked
	mov	rax, [r10]
	MAY_FAULT walked
	mov	r9, [r10+8]
	xor	ebx, ebx
	cmp	rax, r10
	cmovbe	rax, rbx		# frames that go down are none
	mov	r10, rax
4:	test	r9, r9
	jnz	1b
walked:	jmp	keep_stack_
#endif

# The addresses that the state has become an element of the map SI. On i386 ecx is how many there are,
# and the flags are the third argument. On amd64 it is a routine, which is jumped to where a kernel's
# stack has been walked, too: r11d is how many there are, r8d the flags, and rbx is on the stack.
#ifdef __i386__
walked:	mov	[ebp+T_COUNT], ecx
	test	ecx, ecx
	jz	nothing
	xor	eax, eax
	xor	edx, edx
	xor	ebx, ebx
3:	xor	eax, [ebp+ebx*8+STATE_TRACE]
	xor	edx, [ebp+ebx*8+STATE_TRACE+4]
	call	mix
	inc	ebx
	cmp	ebx, [ebp+T_COUNT]
	jb	3b
	xor	eax, edx
	mov	[ebp+T_HASH], eax
	mov	dword ptr [ebp+T_TRIES], 0
4:	mov	eax, [ebp+T_TRIES]
	call	entry
	xor	eax, eax
	mov	ecx, TRACE_BUSY
	lock cmpxchg [ebx+TRACE_COUNT], ecx
	je	fill
	cmp	eax, [ebp+T_COUNT]
	jne	5f
	mov	eax, [ebp+T_HASH]
	cmp	[ebx+TRACE_HASH], eax
	jne	5f
	call	trace_value
	push	esi
	lea	esi, [ebp+STATE_TRACE]
	mov	ecx, [ebp+T_COUNT]
	add	ecx, ecx
	jz	9f
8:	mov	eax, [esi+ecx*4-4]
	cmp	eax, [edi+ecx*4-4]
	jne	9f
	dec	ecx
	jnz	8b
9:	pop	esi
	jne	5f
	mov	eax, [ebp+T_ELEM]
	jmp	answer
5:	inc	dword ptr [ebp+T_TRIES]
	cmp	dword ptr [ebp+T_TRIES], TRACE_PROBES
	jb	4b
	test	dword ptr [ebp+R+8*3], STACK_REUSE
	jz	6f
	xor	eax, eax
	call	entry
	mov	eax, [ebx+TRACE_COUNT]
	mov	ecx, TRACE_BUSY
	cmp	eax, ecx
	je	busy
	lock cmpxchg [ebx+TRACE_COUNT], ecx
	jne	busy

fill:	call	trace_value
	push	esi
	mov	edx, [esi+HDR_VALUE_SIZE]
	lea	esi, [ebp+STATE_TRACE]
	mov	ecx, [ebp+T_COUNT]
	add	ecx, ecx
	shr	edx, 2
	sub	edx, ecx
	MOVE_WORDS
	mov	ecx, edx
	xor	eax, eax
	FILL	eax, 4
	pop	esi
	mov	eax, [ebp+T_HASH]
	mov	[ebx+TRACE_HASH], eax
	mov	eax, [ebp+T_COUNT]
	mov	[ebx+TRACE_COUNT], eax
	mov	eax, [ebp+T_ELEM]
	jmp	answer
6:	FAIL	EEXIST
nothing:
	FAIL	EFAULT

# T_ELEM = the place of the trace's hash and eax more; ebx = its entry in the index.
entry:	mov	ecx, [esi+HDR_ELEMS]
	push	eax
	mov	eax, [ebp+T_HASH]
	xor	edx, edx
	div	ecx
	pop	eax
	add	eax, edx
	xor	edx, edx
	div	ecx
	mov	[ebp+T_ELEM], edx
	mov	ebx, [esi+HDR_INDEX]
	lea	ebx, [ebx+edx*TRACE_INDEX_SIZE]
	add	ebx, esi
	ret
#else
ROUTINE keep_stack
	mov	rax, -EFAULT
	test	r11d, r11d
	jz	9f
	movabs	r9, HASH_MUL
	xor	eax, eax
	xor	ecx, ecx
3:	xor	rax, [r12+rcx*8+STATE_TRACE]
	MIX	r9, rdx
	inc	ecx
	cmp	ecx, r11d
	jb	3b
	mov	r9, rax
	shr	r9, 32
	xor	r9d, eax		# the hash
	mov	r10, [rsi+HDR_INDEX]
	add	r10, rsi
	xor	ecx, ecx
4:	mov	eax, r9d
	add	rax, rcx
	xor	edx, edx
	mov	edi, [rsi+HDR_ELEMS]
	div	rdi
	mov	rdi, rdx		# the element
	xor	eax, eax
	mov	edx, TRACE_BUSY
	lock cmpxchg [r10+rdi*TRACE_INDEX_SIZE+TRACE_COUNT], edx
	je	fill
	cmp	eax, r11d
	jne	6f
	cmp	[r10+rdi*TRACE_INDEX_SIZE+TRACE_HASH], r9d
	jne	6f
	call	trace_value
	xor	edx, edx
5:	mov	rbx, [rax+rdx*8]
	cmp	rbx, [r12+rdx*8+STATE_TRACE]
	jne	6f
	inc	edx
	cmp	edx, r11d
	jb	5b
	mov	eax, edi
	jmp	9f
6:	inc	ecx
	cmp	ecx, TRACE_PROBES
	jb	4b
	mov	rax, -EEXIST
	test	r8d, STACK_REUSE
	jz	9f
	mov	eax, r9d
	xor	edx, edx
	mov	edi, [rsi+HDR_ELEMS]
	div	rdi
	mov	rdi, rdx
	mov	eax, [r10+rdi*TRACE_INDEX_SIZE+TRACE_COUNT]
	mov	edx, TRACE_BUSY
	cmp	eax, edx
	je	7f
	lock cmpxchg [r10+rdi*TRACE_INDEX_SIZE+TRACE_COUNT], edx
	je	fill
7:	mov	rax, -EBUSY
	jmp	9f

fill:	call	trace_value
	mov	edx, [rsi+HDR_VALUE_SIZE]
	shr	edx, 3
	xor	ecx, ecx
1:	xor	ebx, ebx
	cmp	ecx, r11d
	jae	2f
	mov	rbx, [r12+rcx*8+STATE_TRACE]
2:	mov	[rax+rcx*8], rbx
	inc	ecx
	cmp	ecx, edx
	jb	1b
	mov	[r10+rdi*TRACE_INDEX_SIZE+TRACE_HASH], r9d
	mov	[r10+rdi*TRACE_INDEX_SIZE+TRACE_COUNT], r11d
	mov	eax, edi
9:	pop	rbx
	ret
#endif

# The value of the element: on i386 edi of T_ELEM, on amd64 rax of rdi.
#ifdef __i386__
#define VALUE edi
#else
#define VALUE rax
#endif
trace_value:
#ifdef __i386__
	mov	edi, [esi+HDR_VALUE_STRIDE]
	imul	edi, [ebp+T_ELEM]
#else
	mov	eax, [rsi+HDR_VALUE_STRIDE]	# 4 bytes
	imul	rax, rdi
#endif
	add	VALUE, [SI+HDR_VALUES]
	add	VALUE, SI
	ret
