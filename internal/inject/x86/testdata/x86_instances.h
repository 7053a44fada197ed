# The instances of return probes (internal/segment/away.go): called by detours, on the program's own
# stack. Both machines take the same steps.

	.macro PUSH_WORK
	.irp	r, SI, DI, BX, BP
	push	\r
	.endr
	SEGMENT	BX
	.endm

	.macro POP_WORK
	.irp	r, BP, BX, DI, SI
	pop	\r
	.endr
	.endm

	# One call more, or less, of probe ecx is lost: thread DX counts it.
	.macro LOST_ONE
	add	dword ptr [DX+CX*8+STATE_COUNTERS+LOST_UNWOUND], 1
	adc	dword ptr [DX+CX*8+STATE_COUNTERS+LOST_UNWOUND+4], 0
	.endm

	.macro FOUND_ONE
	sub	dword ptr [DX+CX*8+STATE_COUNTERS+LOST_UNWOUND], 1
	sbb	dword ptr [DX+CX*8+STATE_COUNTERS+LOST_UNWOUND+4], 0
	.endm

	# DI becomes the first key of the bucket of slot AX.
	.macro BUCKET
	imul	edi, eax, HASH_FACTOR
	shr	edi, AWAY_SHIFT
	and	edi, [BX+AWAY_MASK]
	shl	edi, 3
	add	DI, [BX+AWAY_KEYS]
	.endm

	# DI goes on to the next key, and back to \again unless that was the bucket's last.
	.macro NEXT again
	add	DI, 8
	test	edi, AWAY_BUCKET-1
	jnz	\again
	.endm

	# DI goes back to the bucket's first key from behind its last.
	.macro FIRST
	sub	DI, AWAY_BUCKET
	.endm

	# \to becomes the instance of key DI.
	.macro INSTANCE to
	mov	\to, DI
	sub	\to, [BX+AWAY_KEYS]
	shl	\to, CALL_SHIFT-3
	add	\to, [BX+AWAY_CALLS]
	.endm

	# Words of the instance at \from go to the one at \to, by way of CX.
	.macro COPY from, to, words:vararg
	.irp	word, \words
	mov	CX, [\from+\word]
	mov	[\to+\word], CX
	.endr
	.endm

# A call is made at the stack slot AX, and the instances of the thread DX, the first free one being
# CX, end with some whose slots are not above it. The slot tells of each whether it is over. What
# may be under way, in a part of this stack that the program has made another one, goes away to the
# table. Leaves CX at the first free one; 0 if this is no slot of the thread's own stack; 1 if the
# call cannot be watched.
ROUTINE abandon
	cmp	AX, [DX+CALLS_AT+CALL_SLOT]
	jae	elsewhere
	PUSH_WORK
drop:	lea	BP, [CX-CALL_SIZE]
	cmp	dword ptr [BP+CALL_PROBE], -1
	je	kept			# the sentinel
	mov	SI, [BP+CALL_SLOT]
	test	SI, SI
	jz	hole
	cmp	SI, AX
	ja	kept
	push	CX
	je	same
	call	under_way
	jne	gone
	push	AX
	mov	AX, SI
	mov	SI, BP
	call	put_away
	test	BP, BP
	jz	no_room
	mov	dword ptr [BP+CALL_MARK], MARK_LEFT
	mov	[DI], AX
	mov	ecx, [BP+CALL_PROBE]
	LOST_ONE
	pop	AX
	jmp	dropped
same:	mov	CX, [AX]		# the slot is used again, or the last call there ends in
	cmp	CX, [BP+CALL_BACK]	# a jump to the next, which then returns to it
	je	chain
	cmp	CX, [BX+HEAD_OTHER]	# swapped once more, by the controller
	je	chain
gone:	mov	ecx, [BP+CALL_PROBE]
	LOST_ONE
	call	free_data
dropped:
	pop	CX
hole:	sub	CX, CALL_SIZE
	jmp	drop
chain:	pop	CX
kept:	mov	[DX+STATE_CALLS], CX
	POP_WORK
	ret
no_room:
	pop	AX
	pop	CX
	mov	[DX+STATE_CALLS], CX
	mov	ecx, 1
	POP_WORK
	ret
elsewhere:
	xor	ecx, ecx
	ret

# eax becomes the number of calls of probe eax that the thread DX has under way, the first free one
# of its instances being CX.
ROUTINE active
	push	SI
	push	DI
	mov	DI, CX
	mov	esi, [DX+AX*8+STATE_COUNTERS+CALLS_AWAY]
older:	sub	DI, CALL_SIZE
	cmp	dword ptr [DI+CALL_PROBE], -1
	je	counted
	cmp	WORD [DI+CALL_SLOT], 0
	je	older
	cmp	[DI+CALL_PROBE], eax
	jne	older
	inc	esi
	jmp	older
counted:
	mov	eax, esi
	pop	DI
	pop	SI
	ret

# A call is made at the stack slot AX by the thread DX, which has no instance for it: it goes to the
# table. CX is what will be in its slot, STATE_CALL its data, 0 for none, and STATE_ASKED its probe
# and the most calls. Leaves ecx 0 if it cannot be watched.
ROUTINE enter_away
	PUSH_WORK
	mov	SI, [DX+STATE_CALLS]	# behind the last there is always room
	mov	[SI+CALL_BACK], CX
	mov	WORD [SI+CALL_SLOT], 0
	mov	CX, [AX]
	mov	[SI+CALL_RET], CX
	mov	CX, [DX+STATE_CALL]
	mov	[SI+CALL_DATA], CX
	mov	dword ptr [SI+CALL_MARK], 0
	mov	ecx, [DX+STATE_ASKED]
	mov	[SI+CALL_PROBE], ecx
	mov	BP, SI			# no more than all of the thread's instances are its probe's
	sub	BP, DX
	sub	BP, CALLS_AT+CALL_SIZE
	shr	BP, CALL_SHIFT
	add	ebp, [DX+CX*8+STATE_COUNTERS+CALLS_AWAY]
	cmp	ebp, [DX+STATE_ASKED+4]
	jb	few
	push	AX
	mov	eax, ecx
	mov	CX, SI
	call	active_
	mov	ebp, eax
	pop	AX
	xor	ecx, ecx
	cmp	ebp, [DX+STATE_ASKED+4]
	jae	unwatched
few:	mov	CX, [SI+CALL_RET]
	call	put_away
	xor	ecx, ecx
	test	BP, BP
	jz	unwatched
	mov	ecx, [BP+CALL_PROBE]
	lock inc dword ptr [DX+CX*8+STATE_COUNTERS+CALLS_AWAY]
	mov	[DI], AX
	mov	ecx, 1
unwatched:
	POP_WORK
	ret

# A function with the probe ecx has returned from the stack slot AX on the thread DX, and the last
# of the thread's instances is another call's. Leaves CX at its instance, which no call has any
# more. The probe's number stays on the program's own stack: a forked child may have all else in
# common with its parent.
ROUTINE unstack
	PUSH_WORK
	push	CX
	mov	edi, ecx
	mov	CX, [DX+STATE_CALLS]
	mov	SI, CX
	cmp	byte ptr [BX+HEAD_DEAD], 0
	jne	alone
own:	sub	SI, CALL_SIZE
	cmp	dword ptr [SI+CALL_PROBE], -1
	je	others			# the sentinel
	cmp	[SI+CALL_SLOT], AX
	ja	others			# and so are all that come before it
	jne	own
	cmp	[SI+CALL_PROBE], edi
	jne	own
	mov	WORD [SI+CALL_SLOT], 0	# a hole: dropped with the next that is left there
	mov	CX, SI
	jmp	unstacked
others:	mov	ecx, [SP]
	call	find_away
	mov	CX, [DX+STATE_CALLS]
	test	BP, BP
	jnz	away
moved:	xor	ebp, ebp		# called by another thread, on its own stack: a coroutine there has moved
state:	cmp	ebp, [BX+HEAD_NEXT]
	jae	last
	cmp	ebp, [BX+HEAD_MAX]
	jae	last
	inc	ebp			# the sink is the first
	mov	esi, ebp
	shr	esi, GROUP_SHIFT
	imul	SI, [BX+HEAD_SPAN]
	mov	edi, ebp
	and	edi, GROUP_MASK
	imul	DI, [BX+HEAD_STRIDE]
	add	DI, SI
	add	DI, [BX+HEAD_STATES]
	mov	SI, [DI+STATE_CALLS]
	test	SI, SI
	jz	state			# just being made
	mov	edi, [SP]
theirs:	sub	SI, CALL_SIZE
	cmp	dword ptr [SI+CALL_PROBE], -1
	je	state
	cmp	[SI+CALL_SLOT], AX
	jne	theirs
	cmp	[SI+CALL_PROBE], edi
	jne	theirs
	cmp	byte ptr [BX+HEAD_DEAD], 0
	jne	found
	# Copied to where this thread's next would be, before the owner may use it again.
	mov	BP, CX
	COPY	SI, BP, CALL_RET, CALL_PROBE, CALL_DATA
	mov	CX, BP
	mov	WORD [SI+CALL_SLOT], 0
unstacked:
	pop	SI
	POP_WORK
	ret
last:	mov	ecx, [SP]		# it may have gone away just now
	call	find_away
	mov	CX, [DX+STATE_CALLS]
	test	BP, BP
	jnz	away
lost:	int3				# no thread's: the controller may know more
	jmp	lost

away:	mov	SI, CX
	mov	WORD [SI+CALL_SLOT], 0
	COPY	BP, SI, CALL_RET, CALL_PROBE, CALL_DATA
	mov	ecx, [BP+CALL_PROBE]
	cmp	dword ptr [BP+CALL_MARK], MARK_LEFT
	jne	1f
	FOUND_ONE
	jmp	2f
1:	push	SI
	mov	SI, [BP+CALL_OWNER]
	lock dec dword ptr [SI+CX*8+STATE_COUNTERS+CALLS_AWAY]
	pop	SI
2:	mov	WORD [DI], 0
	mov	CX, SI
	jmp	unstacked

# No controller is there any more, to take a forked child out of our code. Parent and child both
# return from the calls that the fork came in, and have one memory for instances: the first of them
# has the call's, and for the other it is over. But since no call is watched any more, what is over
# is still where it was, in the table, before the first free one or behind, and is left there.
alone:	sub	SI, CALL_SIZE
	cmp	dword ptr [SI+CALL_PROBE], -1
	je	gone_away		# the sentinel
	cmp	[SI+CALL_SLOT], AX
	jne	alone
	cmp	[SI+CALL_PROBE], edi
	jne	alone
	jmp	found
gone_away:
	mov	ecx, [SP]
	call	find_away
	mov	CX, [DX+STATE_CALLS]
	mov	SI, BP
	test	BP, BP
	jnz	found
	mov	SI, CX
	mov	edi, [SP]
	lea	BP, [DX+CALLS_AT+MAX_CALLS*CALL_SIZE]
ended:	cmp	SI, BP
	jae	moved
	cmp	[SI+CALL_SLOT], AX
	jne	1f
	cmp	[SI+CALL_PROBE], edi
	je	found
1:	add	SI, CALL_SIZE
	jmp	ended
found:	mov	CX, SI
	jmp	unstacked

# The zero flag becomes whether a call may be under way, by what is in its slot SI, and CX is that;
# its instance is BP. Memory that is gone is no stack.
under_way:
	MAY_FAULT over
	mov	CX, [SI]
	test	CX, CX
	jz	over
	cmp	CX, [BP+CALL_BACK]
	je	2f
	cmp	CX, [BP+CALL_RET]	# it is about to be swapped, or the stack is being walked
	je	2f
	cmp	CX, [BX+HEAD_OTHER]
	je	2f
	.irp	r, AX, DI, SI, BP
	push	\r
	.endr
	mov	AX, SI
	BUCKET
1:	cmp	[DI], AX		# it ended in a jump to another that is away
	jne	3f
	INSTANCE SI
	cmp	CX, [SI+CALL_BACK]
	je	4f
3:	NEXT	1b
	test	SP, SP
4:	.irp	r, BP, SI, DI, AX
	pop	\r
	.endr
2:	ret
over:	test	SP, SP
	ret

# The same for a call that is away: it may have ended in a jump to one that its thread has not put away.
any_under_way:
	call	under_way
	je	2f
	push	DI
	mov	DI, [BP+CALL_OWNER]
	mov	DI, [DI+STATE_CALLS]
1:	sub	DI, CALL_SIZE
	cmp	dword ptr [DI+CALL_PROBE], -1
	je	3f
	cmp	[DI+CALL_SLOT], SI
	jne	1b
	mov	CX, [DI+CALL_RET]
	cmp	CX, [BP+CALL_BACK]
	jne	1b
	pop	DI
	ret
3:	test	SP, SP
	pop	DI
2:	ret

# The private data of the instance BP is free. Changes CX.
free_data:
	mov	CX, [BP+CALL_DATA]
	test	CX, CX
	jz	1f
	push	WORD [DX+STATE_FREE]
	pop	WORD [CX+NODE_NEXT]
	mov	[DX+STATE_FREE], CX
	inc	dword ptr [DX+STATE_FREES]
1:	ret

# The call is over whose instance in the table is BP. Changes CX.
lose_away:
	mov	ecx, [BP+CALL_PROBE]
	cmp	dword ptr [BP+CALL_MARK], MARK_LEFT
	je	free_data		# it is counted
	LOST_ONE
	push	SI
	mov	SI, [BP+CALL_OWNER]
	lock dec dword ptr [SI+CX*8+STATE_COUNTERS+CALLS_AWAY]
	pop	SI
	jmp	free_data

# The call at the slot AX whose instance is SI gets one in the table, BP, 0 where there is no room.
# It is there when its slot is put at DI. CX is what is in the slot, or was just now. What is there
# with this slot is over, unless calls of it jumped to each other: then either this one has the slot
# and was jumped to from there, or one of them has it. Another call of this slot that is right
# before SI among the thread's instances was there later than what is in the table. Changes CX.
put_away:
	mov	byte ptr [BX+AWAY_ANY], 1
	BUCKET
	cmp	CX, [SI+CALL_BACK]
	je	newest
	cmp	CX, [SI+CALL_RET]
	jne	unsure
newest:	mov	CX, [SI+CALL_RET]
	cmp	CX, [BX+HEAD_OTHER]
	je	unsure
	cmp	AX, [SI-CALL_SIZE+CALL_SLOT]
	jne	0f
	cmp	CX, [SI-CALL_SIZE+CALL_BACK]
	je	3f			# jumped to from there: so all in the table is of a time before
0:	xor	ebp, ebp
1:	cmp	[DI], AX
	jne	2f
	INSTANCE BP
	cmp	CX, [BP+CALL_BACK]
	je	jumped
2:	NEXT	1b
	FIRST
	test	BP, BP
	jz	take_key		# there are none
3:	cmp	[DI], AX
	jne	4f
	INSTANCE BP
	call	lose_away
	mov	WORD [DI], 0
4:	NEXT	3b
	FIRST
	jmp	take_key
unsure:	mov	ecx, [SI+CALL_PROBE]	# which of two calls of one probe would be the newer, nothing could tell
1:	cmp	[DI], AX
	jne	2f
	INSTANCE BP
	cmp	[BP+CALL_PROBE], ecx
	jne	2f
	xor	ebp, ebp
	ret
2:	NEXT	1b
	FIRST
	jmp	take_key
jumped:	and	DI, -AWAY_BUCKET
take_key:	cmp	WORD [DI], 0
	jne	1f
	push	AX
	xor	eax, eax
	mov	ecx, AWAY_CLAIMED
	lock cmpxchg [DI], CX
	pop	AX
	je	claimed
1:	NEXT	take_key
	FIRST
	push	SI			# none is free: but some may be over
2:	mov	SI, [DI]
	cmp	SI, AWAY_CLAIMED
	jbe	3f
	cmp	SI, AX
	je	3f
	INSTANCE BP
	call	any_under_way
	je	3f
	push	AX
	mov	AX, SI
	mov	ecx, AWAY_CLAIMED
	lock cmpxchg [DI], CX
	pop	AX
	jne	3f
	call	lose_away
	pop	SI
	jmp	claimed
3:	NEXT	2b
	pop	SI
	xor	ebp, ebp
	ret
claimed:
	INSTANCE BP
	COPY	SI, BP, CALL_RET, CALL_BACK, CALL_DATA
	mov	ecx, [SI+CALL_PROBE]
	mov	[BP+CALL_PROBE], ecx
	mov	dword ptr [BP+CALL_MARK], 0
	mov	[BP+CALL_OWNER], DX
	ret

# BP becomes the instance in the table of the probe ecx, at the slot AX, and DI its key; BP 0 for
# none. Of several that jumped to each other it is one that was jumped to. Changes CX, SI.
find_away:
	push	CX
	BUCKET
	xor	ebp, ebp
1:	cmp	[DI], AX
	jne	3f
	INSTANCE SI
	mov	ecx, [SP]
	cmp	[SI+CALL_PROBE], ecx
	jne	3f
	test	BP, BP
	jz	2f
	call	was_jumped_to
	je	4f
2:	mov	BP, SI
3:	NEXT	1b
	test	BP, BP
	jz	5f
4:	mov	DI, BP
	sub	DI, [BX+AWAY_CALLS]
	shr	DI, CALL_SHIFT-3
	add	DI, [BX+AWAY_KEYS]
5:	pop	CX
	ret

# The zero flag becomes whether another call of the bucket, at the slot AX, ended in a jump to that
# of the instance BP; DI is a key there. Changes CX.
was_jumped_to:
	push	DI
	push	SI
	and	DI, -AWAY_BUCKET
1:	cmp	[DI], AX
	jne	2f
	INSTANCE SI
	mov	CX, [SI+CALL_BACK]
	cmp	CX, [BP+CALL_RET]
	je	3f
2:	NEXT	1b
	test	SP, SP
3:	pop	SI
	pop	DI
	ret
