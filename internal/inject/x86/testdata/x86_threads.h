# A thread finds its own state: called by detours, on the program's own stack.

# The thread whose key is CX is not where its hash says: DX is that entry of the
# table. Leaves DX at its entry, or at the sink's. Keeps all else but flags.
ROUTINE find
	push	AX
	push	SI
	push	DI
	lea	DI, [DX+TABLE_WINDOW*ENTRY_SIZE]
look:	xor	esi, esi		# the first entry that could be taken
next:	mov	AX, [DX]
	cmp	AX, CX
	je	known
	cmp	AX, TOMBSTONE
	ja	other
	test	SI, SI
	cmovz	SI, DX
	test	AX, AX
	jz	claim			# never used: the key is not further on
other:	add	DX, ENTRY_SIZE
	cmp	DX, DI
	jb	next
claim:	mov	DX, SI
	test	DX, DX
	jz	sink
	mov	AX, [DX]
	cmp	AX, TOMBSTONE
	ja	again			# another thread was faster
	lock cmpxchg [DX], CX
	je	mine
again:	lea	DX, [DI-TABLE_WINDOW*ENTRY_SIZE]
	jmp	look
known:	cmp	WORD [DX+8], 0
	jne	done
	# The entry is this thread's, and has no state yet. A signal handler that gets
	# here too leaves a state unused, no more.
mine:	SEGMENT	SI
	mov	DI, [DX+8]
	test	DI, DI
	jnz	renew			# that of a thread that is dead
	mov	eax, [SI+HEAD_NEXT]
1:	cmp	eax, [SI+HEAD_MAX]
	jae	none
	lea	edi, [AX+1]
	lock cmpxchg [SI+HEAD_NEXT], edi
	jne	1b
	push	AX
	mov	eax, edi		# the sink is the first
	shr	eax, GROUP_SHIFT
	imul	AX, [SI+HEAD_SPAN]
	and	edi, GROUP_MASK
	imul	DI, [SI+HEAD_STRIDE]
	add	DI, AX
	add	DI, [SI+HEAD_STATES]
	pop	AX
	# What Segment.initState does, and in its order: until the first free instance is there this
	# is no state to others, and until the entry has it to no signal handler of this thread's.
	mov	[DI+STATE_SLOT], AX
#ifdef __i386__
	mov	eax, [esi+HEAD_TGID+4]	# the lower half is 0
	mov	[edi+STATE_PID_TGID+4], eax
#else
	mov	rax, [rsi+HEAD_TGID]
	mov	[rdi+STATE_PID_TGID], rax
#endif
	FILL8	-1, DI+CALLS_AT+CALL_PROBE
	FILL8	-1, DI+CONTEXT_ORIG_AX
	mov	WORD [DI+CONTEXT_CS], USER_CS
	mov	WORD [DI+CONTEXT_SS], USER_SS
	lea	AX, [DI+CALLS_AT+CALL_SIZE]
	mov	[DI+STATE_CALLS], AX
	mov	[DX+8], DI
renew:	cmp	DI, [SI+HEAD_SINK+8]
	je	done
	mov	[DI+STATE_KEY], CX
	lea	AX, [DI+CALLS_AT+CALL_SIZE]
	mov	[DI+STATE_CALLS], AX
	xor	eax, eax
	mov	[DI+STATE_STACK_LOW], AX
	mov	[DI+STATE_STACK_HIGH], AX
	mov	[DI+CALLS_AT+CALL_SLOT], AX
	mov	[DI+STATE_OVERRIDE], al
	mov	al, [DI+STATE_CLOSED]
	mov	[DI+STATE_BUSY], al
#ifdef __x86_64__
	push	rcx
	push	r11
#endif
	mov	eax, SYS_GETTID		# the one system call that there is, once in a thread's life
	SYSTEM_CALL
#ifdef __x86_64__
	pop	r11
	pop	rcx
#endif
	mov	[DI+STATE_PID_TGID], eax
done:	pop	DI
	pop	SI
	pop	AX
	ret
none:	mov	DI, [SI+HEAD_SINK+8]
	mov	[DX+8], DI
	jmp	done
sink:	SEGMENT	DX
	add	DX, HEAD_SINK
	jmp	done

# Which thread runs here? Leaves DX at its entry of the table, or at the
# sink's; changes CX and flags. See internal/segment/keys.go.
ROUTINE identify
	push	AX
	push	SI
	push	DI
#ifdef __i386__
	HERE	edx
	cmp	byte ptr [edx-AREA_CODE+AREA_CAREFUL], 0
	jne	by_id
	mov	esi, [edx-AREA_CODE+AREA_HEAD]
#else
	push	r11
	SEGMENT	rsi
	cmp	byte ptr [rsi+HEAD_READS_BASE], 0
	jne	base
	cmp	byte ptr [rip+start-AREA_CODE+AREA_CAREFUL], 0
	jne	by_id
#endif
	MAY_FAULT by_id
	mov	CX, TLS:[0]
	lea	DI, [SI+HEAD_PROOF]
	sub	DI, CX
	mov	AX, [SI+HEAD_PROOF]
	MAY_FAULT by_id
	cmp	TLS:[DI], AX
	jne	by_id
#ifdef __x86_64__
	jmp	pointer
base:	rdfsbase rcx			# i386 has no such instruction
pointer:
#endif
	test	CX, CX
	jz	by_id
	test	cl, KEY_ALIGN
	jnz	by_id
	cmp	WORD [SI+HEAD_ANY_SHARED], 0
	jne	by_id
	lea	DI, [SI+HEAD_SHARED]
	jmp	2f
1:	cmp	[DI], CX
	je	by_id
	add	DI, 8
2:	cmp	WORD [DI], 0
	jne	1b
	jmp	search_table
by_id:	mov	eax, SYS_GETTID
	SYSTEM_CALL
	lea	CX, [AX*4+ODD_KEY]
#ifdef __x86_64__
	bts	rcx, ODD_BIT
#endif
search_table:
#ifdef __i386__
	HERE	edi
#endif
	imul	DX, CX, KEY_FACTOR
	shr	DX, HASH_SHIFT
	and	edx, HASH_MASK
#ifdef __i386__
	add	edx, [edi-AREA_CODE+AREA_TABLE]
#else
	add	rdx, [rip+start-AREA_CODE+AREA_TABLE]
#endif
	lea	DI, [DX+TABLE_WINDOW*ENTRY_SIZE]
#ifdef __x86_64__
	pop	r11
#endif
	jmp	look
