# A kernel's calls, amd64's alone: a call is found by the stack slot of its return address, on
# whatever CPU. Called by detours, on the task's own stack.

	# What a detour has not saved, on the task's own stack.
	.macro PUSH_ALL
	.irp	r, rsi, rdi, r8, r9, r10, r11
	push	\r
	.endr
	.endm

	.macro POP_ALL
	.irp	r, r11, r10, r9, r8, rdi, rsi
	pop	\r
	.endr
	.endm

	# r9 becomes the r10-th call from rdi on, which is where a slot's search begins.
	.macro NTH
	lea	r9, [rdi+r10]
	and	r9d, [r8+SLOTS_MASK]
	shl	r9, NODE_SHIFT
	add	r9, [r8+POOL_CALLS]
	.endm

	# A call on the task's own stack, which leaves nothing of it below (see wipe in calls.go).
	.macro LOCAL to
	call	\to
	mov	qword ptr [rsp-8], 0
	.endm

# Leaves r9 at the call of the probe that is asked for, esi, at the slot rax, 0 for none; r8, the
# segment; rdi, where the search began. No other CPU looks for that call: what runs on its stack has
# masked interrupts. Changes rcx, r10.
find_slot:
	SEGMENT	r8
	mov	esi, [rdx+STATE_ASKED]
	movabs	rdi, HASH_MUL
	imul	rdi, rax
	shr	rdi, 32
	mov	ecx, [r8+SLOTS_FAR]
	xor	r10d, r10d
1:	NTH
	cmp	[r9+NODE_PLACE], rax
	jne	2f
	cmp	[r9+NODE_PROBE], esi
	je	3f
2:	inc	r10d
	cmp	r10d, ecx
	jbe	1b
	xor	r9d, r9d
3:	ret

# The call r9 of the probe esi is over. Changes r10.
drop_slot:
	mov	dword ptr [r9+NODE_PROBE], -1
	mov	qword ptr [r9+NODE_PLACE], 0
	mov	r10, [r8+SLOTS_ACTIVE]
	lock dec dword ptr [r10+rsi*4]
	ret

# enter_call for a kernel: STATE_ASKED has the probe, the most calls that it may have under way, and the
# words of private data. Leaves the call in rcx and in STATE_CALL; or 0 if it cannot be watched.
ROUTINE enter_slot
	PUSH_ALL
	LOCAL find_slot
	test	r9, r9
	jz	1f
	mov	ecx, esi		# its place is used again: its task has ended in it
	inc	qword ptr [rdx+rcx*8+STATE_COUNTERS+LOST_EXITED]
	jmp	5f
1:	mov	rcx, rax
	mov	r10, [r8+SLOTS_ACTIVE]
	mov	eax, [r10+rsi*4]
2:	cmp	eax, [rdx+STATE_ASKED+4]
	jae	8f
	lea	r11d, [rax+1]
	lock cmpxchg [r10+rsi*4], r11d
	jne	2b
	xor	r10d, r10d
3:	NTH
	xor	eax, eax
	cmp	[r9+NODE_PLACE], rax
	jne	4f
	lock cmpxchg [r9+NODE_PLACE], rcx
	je	6f
4:	inc	r10d
	cmp	r10d, [r8+SLOTS_MASK]
	jbe	3b
	mov	r10, [r8+SLOTS_ACTIVE]	# all are in use, by whatever probes
	lock dec dword ptr [r10+rsi*4]
	jmp	8f
5:	mov	rcx, rax
	jmp	7f
6:	mov	eax, [r8+SLOTS_FAR]	# so far searches have to look from now on
1:	cmp	r10d, eax
	jbe	7f
	lock cmpxchg [r8+SLOTS_FAR], r10d
	jne	1b
7:	mov	[r9+NODE_PROBE], esi
	mov	rax, [rcx]
	mov	[r9+NODE_RET], rax
	mov	[rdx+STATE_CALL], r9
	mov	rdi, r9
	sub	rdi, [r8+POOL_CALLS]
	shl	rdi, SLOT_DATA_SHIFT
	add	rdi, [r8+POOL_DATA]
	mov	ecx, [rdx+STATE_ASKED+8]
1:	sub	ecx, 1
	js	2f
	mov	qword ptr [rdi+rcx*8], 0
	jmp	1b
2:	mov	rcx, r9
	jmp	9f
8:	xor	ecx, ecx
9:	POP_ALL
	ret

# leave_call for a kernel. The call stays what it is until free_slot.
ROUTINE leave_slot
	PUSH_ALL
	LOCAL find_slot
	xor	ecx, ecx
	test	r9, r9
	jz	3f
	mov	rcx, [rax]
	cmp	rcx, [r9+NODE_RET]
	je	2f
	cmp	rcx, [r8+HEAD_OTHER]	# swapped since, by the controller
	je	2f
	cmp	rcx, [r8+SLOTS_CARRIER]	# or by the kernel itself
	je	2f
	cmp	rcx, [r8+SLOTS_CARRIER+8]
	je	2f
	mov	ecx, esi		# another call has its place, that was not seen to begin
	inc	qword ptr [rdx+rcx*8+STATE_COUNTERS+LOST_EXITED]
	LOCAL drop_slot
	xor	ecx, ecx
	jmp	3f
2:	mov	[rdx+STATE_CALL], r9
	mov	rcx, r9
3:	POP_ALL
	ret

# The call STATE_CALL of the CPU rdx is over, or not to be watched.
ROUTINE free_slot
	PUSH_ALL
	SEGMENT	r8
	mov	r9, [rdx+STATE_CALL]
	mov	esi, [r9+NODE_PROBE]
	LOCAL drop_slot
	POP_ALL
	ret
