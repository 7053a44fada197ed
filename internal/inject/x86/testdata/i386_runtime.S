# The routines of amd64_runtime.S for an i386 target: the same names, the same work, the
# same memory. Words there have 8 bytes; where they are addresses the upper half is 0 and
# stays so. What is said there is not said again.
	.intel_syntax noprefix
	.code32

	.macro MAY_FAULT to
	.pushsection .faults, "a"
	.long 99f - start, \to - start
	.popsection
99:
	.endm

	.macro ROUTINE name
	.p2align 4, 0xcc
	.globl \name
\name:
\name\()_:
	.endm

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

	# HERE loads the address of the area's code.
	.macro HERE reg
	call	98f
98:	pop	\reg
	lea	\reg, [\reg+start-98b]
	.endm

	# SEGMENT loads the address of the segment.
	.macro SEGMENT reg
	HERE	\reg
	mov	\reg, [\reg-AREA_CODE+AREA_HEAD]
	.endm

	.text
	.org	AREA_CODE, 0xcc
start:

# ---- Called by detours, on the program's own stack ----

# The thread whose key is ecx is not where its hash says: edx is that entry of the
# table. Leaves edx at its entry, or at the sink's. Keeps all else but flags.
ROUTINE find
	push	eax
	push	esi
	push	edi
	lea	edi, [edx+TABLE_WINDOW*ENTRY_SIZE]
look:	xor	esi, esi		# the first entry that could be taken
next:	mov	eax, [edx]
	cmp	eax, ecx
	je	known
	cmp	eax, TOMBSTONE
	ja	other
	test	esi, esi
	cmovz	esi, edx
	test	eax, eax
	jz	claim			# never used: the key is not further on
other:	add	edx, ENTRY_SIZE
	cmp	edx, edi
	jb	next
claim:	mov	edx, esi
	test	edx, edx
	jz	sink
	mov	eax, [edx]
	cmp	eax, TOMBSTONE
	ja	again			# somebody was faster
	lock cmpxchg [edx], ecx
	je	mine
again:	lea	edx, [edi-TABLE_WINDOW*ENTRY_SIZE]
	jmp	look
known:	cmp	dword ptr [edx+8], 0
	jne	done
mine:	SEGMENT	esi
	mov	edi, [edx+8]
	test	edi, edi
	jnz	renew			# that of a thread that is dead
	mov	eax, [esi+HEAD_NEXT]
1:	cmp	eax, [esi+HEAD_MAX]
	jae	none
	lea	edi, [eax+1]
	lock cmpxchg [esi+HEAD_NEXT], edi
	jne	1b
	push	eax
	mov	eax, edi		# the sink is the first
	shr	eax, GROUP_SHIFT
	imul	eax, [esi+HEAD_SPAN]
	and	edi, GROUP_MASK
	imul	edi, [esi+HEAD_STRIDE]
	add	edi, eax
	add	edi, [esi+HEAD_STATES]
	pop	eax
	mov	[edi+STATE_SLOT], eax
	mov	eax, [esi+HEAD_TGID+4]
	mov	[edi+STATE_PID_TGID+4], eax
	.irp	word, CALLS_AT+CALL_PROBE, CONTEXT_ORIG_AX
	mov	dword ptr [edi+\word], -1
	mov	dword ptr [edi+\word+4], -1
	.endr
	mov	dword ptr [edi+CONTEXT_CS], USER_CS
	mov	dword ptr [edi+CONTEXT_SS], USER_SS
	lea	eax, [edi+CALLS_AT+CALL_SIZE]
	mov	[edi+STATE_CALLS], eax
	mov	[edx+8], edi
renew:	cmp	edi, [esi+HEAD_SINK+8]
	je	done
	mov	[edi+STATE_KEY], ecx
	lea	eax, [edi+CALLS_AT+CALL_SIZE]
	mov	[edi+STATE_CALLS], eax
	xor	eax, eax
	mov	[edi+STATE_STACK_LOW], eax
	mov	[edi+STATE_STACK_HIGH], eax
	mov	[edi+CALLS_AT+CALL_SLOT], eax
	mov	[edi+STATE_OVERRIDE], al
	mov	al, [edi+STATE_CLOSED]
	mov	[edi+STATE_BUSY], al
	mov	eax, SYS_GETTID
	int	0x80
	mov	[edi+STATE_PID_TGID], eax
done:	pop	edi
	pop	esi
	pop	eax
	ret
none:	mov	edi, [esi+HEAD_SINK+8]
	mov	[edx+8], edi
	jmp	done
sink:	SEGMENT	edx
	add	edx, HEAD_SINK
	jmp	done

# Who is it that runs here? Leaves edx at the thread's entry of the table, or at the
# sink's; changes ecx and flags.
ROUTINE identify
	push	eax
	push	esi
	push	edi
	HERE	edx
	cmp	byte ptr [edx-AREA_CODE+AREA_CAREFUL], 0
	jne	by_id
	mov	esi, [edx-AREA_CODE+AREA_HEAD]
	MAY_FAULT by_id
	mov	ecx, gs:[0]
	lea	edi, [esi+HEAD_PROOF]
	sub	edi, ecx
	mov	eax, [esi+HEAD_PROOF]
	MAY_FAULT by_id
	cmp	gs:[edi], eax
	jne	by_id
	test	ecx, ecx
	jz	by_id
	test	cl, KEY_ALIGN
	jnz	by_id
	cmp	dword ptr [esi+HEAD_ANY_SHARED], 0
	jne	by_id
	lea	edi, [esi+HEAD_SHARED]
	jmp	2f
1:	cmp	[edi], ecx
	je	by_id
	add	edi, 8
2:	cmp	dword ptr [edi], 0
	jne	1b
	jmp	search_table
by_id:	mov	eax, SYS_GETTID
	int	0x80
	lea	ecx, [eax*4+ODD_KEY]
search_table:
	HERE	edi
	imul	edx, ecx, KEY_FACTOR
	shr	edx, HASH_SHIFT32
	and	edx, HASH_MASK
	add	edx, [edi-AREA_CODE+AREA_TABLE]
	lea	edi, [edx+TABLE_WINDOW*ENTRY_SIZE]
	jmp	look

	# COUNT adds one to a counter of 8 bytes.
	.macro COUNT at:vararg
	add	dword ptr [\at], 1
	adc	dword ptr [\at+4], 0
	.endm

#include "x86_instances.h"

ROUTINE called
	push	ecx
	push	esi
	push	edi
	SEGMENT	esi
	cmp	eax, [esi+HEAD_OTHER]
	je	origin
	.macro INDIRECT first, absent
	.irp	back, 2, 3, 4, 6, 7
	MAY_FAULT \absent
	movzx	ecx, word ptr [eax-\back]
	and	ecx, 0x38ff
	cmp	ecx, 0x1000+\first
	je	origin
	.endr
	.endm
	INDIRECT 0xff, code
code:	lea	edi, [esi+HEAD_FILES-16]
file:	add	edi, 16
	mov	ecx, [edi]
	test	ecx, ecx
	jz	signal
	cmp	eax, ecx
	jb	file
	cmp	eax, [edi+8]
	jae	file
	test	al, FILE_ALIGN
	jz	origin
	MAY_FAULT signal
	cmp	byte ptr [eax-1], 0xc3
	je	origin
	MAY_FAULT signal
	movzx	ecx, word ptr [eax-2]
	and	ecx, 0xf8ff
	cmp	ecx, 0xe0ff		# jmp eax, or another register
	je	origin
	INDIRECT 0xcc, signal
	cmp	byte ptr [eax-5], 0xcc
	je	origin
	.irp	back, 5, 6, 7, 8, 9, 10, 11, 12
	MAY_FAULT signal
	cmp	byte ptr [eax-\back], 0xe9
	je	origin
	.endr
signal:	MAY_FAULT astray
	cmp	dword ptr [eax], 0x0077b858	# pop eax; mov eax, 119 (sigreturn)
	jne	1f
	MAY_FAULT astray
	cmp	dword ptr [eax+4], 0x80cd0000	# int 0x80
	jmp	origin
1:	MAY_FAULT astray
	cmp	dword ptr [eax], 0x0000adb8	# mov eax, 173 (rt_sigreturn)
	jne	origin
	MAY_FAULT astray
	cmp	dword ptr [eax+3], 0x80cd0000
	jmp	origin
astray:	test	esp, esp
origin:	pop	edi
	pop	esi
	pop	ecx
	ret

# ---- The pool of calls: called by detours, at work on the private stack ----

	.macro TO_PRIVATE
	mov	[edx+STATE_RSP], esp
	lea	esp, [edx-TARGET_SP-8]	# it may be there already, with a return address
	.irp	r, ebx, esi, edi, ebp
	push	\r
	.endr
	.endm

	.macro FROM_PRIVATE
	.irp	r, ebp, edi, esi, ebx
	pop	\r
	.endr
	mov	esp, [edx+STATE_RSP]
	.endm

	# Counts the call \node as lost; changes eax.
	.macro LOSE node, why
	mov	eax, [\node+NODE_PROBE]
	COUNT	edx+eax*8+STATE_COUNTERS+\why
	.endm

# The thread edx stands at the stack slot eax. Leaves ebx there, and esi at the owner of calls,
# which is the thread: Go is not served in 32 bits. Calls are given up that this shows to be over.
owner:	mov	ebx, eax
	lea	esi, [edx+STATE_OWN]
1:	mov	edi, [esi+OWNER_TOP]
	test	edi, edi
	jz	2f
	mov	eax, [edi+NODE_PLACE]
	cmp	eax, ebx
	jae	2f
	cmp	eax, [edx+STATE_STACK_LOW]
	jb	2f			# of another stack
	cmp	ebx, [edx+STATE_STACK_HIGH]
	jae	2f
	LOSE	edi, LOST_UNWOUND
	call	pop_call
	jmp	1b
2:	ret

# The newest call edi of the owner esi is over. Changes eax, ecx.
pop_call:
	mov	eax, [edi+NODE_NEXT]
	mov	[esi+OWNER_TOP], eax
	dec	dword ptr [esi+OWNER_COUNT]
# The call edi is free again. What is in it stays until the thread needs one.
free_call:
	mov	eax, [edx+STATE_FREE]
	mov	[edi+NODE_NEXT], eax
	mov	[edx+STATE_FREE], edi
	inc	dword ptr [edx+STATE_FREES]
	cmp	dword ptr [edx+STATE_FREES], 2*POOL_BATCH
	jb	3f
	push	ebx
	push	esi
	push	ebp
	mov	esi, eax		# a batch is given away: those behind the first
	mov	ebp, eax
	mov	ecx, POOL_BATCH-1
1:	mov	ebp, [ebp+NODE_NEXT]
	dec	ecx
	jnz	1b
	mov	eax, [ebp+NODE_NEXT]
	mov	[edi+NODE_NEXT], eax
	mov	[ebp+NODE_NEXT], ecx
	sub	dword ptr [edx+STATE_FREES], POOL_BATCH
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
3:	ret

# edi becomes a free call, 0 where there is none; its private data, as much as is asked for,
# zeros. Changes eax, ecx.
take_call:
	push	ebp
	SEGMENT	ebp
	mov	edi, [edx+STATE_FREE]
	test	edi, edi
	jz	1f
	mov	eax, [edi+NODE_NEXT]
	mov	[edx+STATE_FREE], eax
	dec	dword ptr [edx+STATE_FREES]
	jmp	taken
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
	mov	eax, [edi+NODE_NEXT]
	mov	[edx+STATE_FREE], eax
	mov	dword ptr [edx+STATE_FREES], POOL_BATCH-1
	jmp	taken
3:	pop	edx
	pop	ebx
	xor	edi, edi
	mov	eax, [ebp+POOL_NEXT]
	cmp	eax, [ebp+POOL_MAX]
	jae	5f
	mov	eax, 1
	lock xadd [ebp+POOL_NEXT], eax
	cmp	eax, [ebp+POOL_MAX]
	jae	5f
	mov	edi, eax
	shl	edi, NODE_SHIFT
	add	edi, [ebp+POOL_CALLS]
taken:	mov	eax, edi
	sub	eax, [ebp+POOL_CALLS]
	shl	eax, DATA_SHIFT
	add	eax, [ebp+POOL_DATA]
	mov	ecx, [edx+STATE_ASKED+8]
4:	sub	ecx, 1
	js	5f
	mov	dword ptr [eax+ecx*8], 0
	mov	dword ptr [eax+ecx*8+4], 0
	jmp	4b
5:	pop	ebp
	ret

# edi becomes the call of the probe eax at the place ebx of the owner esi, 0 for none, and
# ebp where the address of it is.
find_call:
	lea	ebp, [esi+OWNER_TOP]
1:	mov	edi, [ebp]
	test	edi, edi
	jz	3f
	cmp	[edi+NODE_PLACE], ebx
	jne	2f
	cmp	[edi+NODE_PROBE], eax
	je	3f
2:	lea	ebp, [edi+NODE_NEXT]
	jmp	1b
3:	ret

# The call edi, whose address is at ebp, is taken off the list of the owner esi.
unlink:	mov	eax, [edi+NODE_NEXT]
	mov	[ebp], eax
	dec	dword ptr [esi+OWNER_COUNT]
	ret

# A function has been entered by the thread edx, with its return address in the slot eax.
# STATE_ASKED has the probe, the most calls, and the words of private data. Leaves the call in
# ecx and in STATE_CALL; or 0 if it cannot be watched; or 1 if it is none: the function
# begins anew.
ROUTINE enter_call
	TO_PRIVATE
	call	owner
	xor	ecx, ecx
	mov	eax, [edx+STATE_ASKED]
	mov	edi, [esi+OWNER_AGAIN]
	mov	ebp, [esi+OWNER_AGAIN+4]
	mov	[esi+OWNER_AGAIN], ecx
	mov	[esi+OWNER_AGAIN+4], ecx
	cmp	edi, eax
	jne	1f
	cmp	ebp, ebx
	jne	1f			# a place is never 0
	inc	ecx
	jmp	entered
1:	call	find_call
	test	edi, edi
	jz	2f
	LOSE	edi, LOST_UNWOUND	# its place is used again
	call	unlink
	call	free_call
2:	mov	ecx, [edx+STATE_ASKED+4]
	cmp	[esi+OWNER_COUNT], ecx
	jb	5f
	mov	edi, [esi+OWNER_TOP]	# calls of whatever probes
	mov	eax, [edx+STATE_ASKED]
3:	test	edi, edi
	jz	4f
	cmp	[edi+NODE_PROBE], eax
	mov	edi, [edi+NODE_NEXT]
	jne	3b
	dec	ecx
	jmp	3b
4:	test	ecx, ecx
	mov	ecx, 0
	jle	entered
5:	call	take_call
	mov	ecx, edi
	test	edi, edi
	jz	entered
	mov	eax, [esi+OWNER_TOP]
	mov	[edi+NODE_NEXT], eax
	mov	[edi+NODE_PLACE], ebx
	mov	eax, [ebx]
	mov	[edi+NODE_RET], eax
	mov	eax, [edx+STATE_ASKED]
	mov	[edi+NODE_PROBE], eax
	mov	[esi+OWNER_TOP], edi
	inc	dword ptr [esi+OWNER_COUNT]
	mov	[edx+STATE_CALL], edi
	mov	[edx+STATE_OWNER], esi
entered:
	FROM_PRIVATE
	ret

# A function is left by the thread edx, with its return address in the slot eax. STATE_ASKED
# has the probe, and in the fourth word 1 if the function is to begin anew. Leaves its call in
# ecx and in STATE_CALL, or 0 if it was not watched. It is taken from its owner, and stays as
# it is until the thread makes another one.
ROUTINE leave_call
	TO_PRIVATE
	call	owner
	xor	ecx, ecx
	mov	eax, [edx+STATE_ASKED]
	cmp	[edx+STATE_ASKED+12], ecx
	je	1f
	mov	[esi+OWNER_AGAIN], eax
	mov	[esi+OWNER_AGAIN+4], ebx
	jmp	left
1:	call	find_call
	test	edi, edi
	jz	left
	call	unlink
	mov	[edx+STATE_CALL], edi
	mov	eax, [edi+NODE_RET]
	mov	ecx, [ebx]
	cmp	ecx, eax
	je	2f
	mov	esi, [edx+STATE_CALLS]	# a detour has swapped it since, perhaps more than once: the last call first
3:	sub	esi, CALL_SIZE
	cmp	dword ptr [esi+CALL_PROBE], -1
	je	4f			# the sentinel
	cmp	[esi+CALL_SLOT], ebx
	jne	3b
	cmp	[esi+CALL_BACK], ecx
	jne	3b
	mov	ecx, [esi+CALL_RET]
	cmp	ecx, eax
	jne	3b
	jmp	2f
4:	SEGMENT	ebp			# or it is away
	push	16
	imul	esi, ebx, HASH_FACTOR
	shr	esi, AWAY_SHIFT
	and	esi, [ebp+AWAY_MASK]
	shl	esi, 3
	add	esi, [ebp+AWAY_KEYS]
5:	cmp	[esi], ebx
	jne	6f
	mov	eax, esi
	sub	eax, [ebp+AWAY_KEYS]
	shl	eax, CALL_SHIFT-3
	add	eax, [ebp+AWAY_CALLS]
	cmp	[eax+CALL_BACK], ecx
	jne	6f
	mov	ecx, [eax+CALL_RET]
	cmp	ecx, [edi+NODE_RET]
	je	8f
	dec	dword ptr [esp]
	jz	7f
	and	esi, -AWAY_BUCKET
	jmp	5b
6:	add	esi, 8
	test	esi, AWAY_BUCKET-1
	jnz	5b
7:	LOSE	edi, LOST_UNWOUND	# another call has its place, that was not seen to begin
	mov	dword ptr [edx+STATE_CALL], 0
8:	pop	eax
2:	call	free_call
	mov	ecx, [edx+STATE_CALL]
left:	FROM_PRIVATE
	ret

# The call STATE_CALL of the thread edx, its owner's newest, is not to be watched.
ROUTINE forget_call
	TO_PRIVATE
	mov	edi, [edx+STATE_CALL]
	mov	esi, [edx+STATE_OWNER]
	call	pop_call
	FROM_PRIVATE
	ret

# The thread edx needs private data, STATE_ASKED+8 words of it. Leaves the call whose it is
# in STATE_CALL, or 0.
ROUTINE take_data
	TO_PRIVATE
	push	eax
	push	ecx
	call	take_call
	mov	[edx+STATE_CALL], edi
	pop	ecx
	pop	eax
	FROM_PRIVATE
	ret

# The private data of STATE_CALL is no longer needed; it stays until the thread takes some.
ROUTINE give_data
	TO_PRIVATE
	push	eax
	push	ecx
	mov	edi, [edx+STATE_CALL]
	call	free_call
	pop	ecx
	pop	eax
	FROM_PRIVATE
	ret

# ---- Called by programs, on the private stack ----

# Where a program returns to that the controller wants to have back. Should nobody be there
# any more, the trap becomes the jump that lies hidden behind it, and goes on where the
# program would have.
ROUTINE trap_exit
	int3
	.long	0
	jmp	[ebp+STATE_BACK]

ROUTINE helpers

# The helpers: their arguments are R1 to R5 in the thread's state, ebp, and the answer goes
# to R0. They may change all registers but ebp and esp. The map is in edi, most often; what
# they remember is in the state too, in words T_...: no program runs twice in a thread.

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

	.macro ARG reg, n
	mov	\reg, [ebp+R+8*\n]
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

# ---- Hash maps ----

# Where the key esi may be in the map edi: T_TAG, T_HOME, T_OTHER.
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
	mov	[ebp+T_HOME], edx
	pop	eax
	pop	edx
	call	times
	call	bucket
	mov	[ebp+T_OTHER], edx
	ret

# edx = the bucket of a hash whose upper half is edx.
bucket:	mov	eax, edx
	mul	dword ptr [edi+HDR_BUCKETS]
	shl	edx, BUCKET_SHIFT
	add	edx, [edi+HDR_INDEX]
	add	edx, edi
	ret

# eax is the element of the map edi with the key esi, whose places are known, the slot ecx
# of the bucket ebx; or negative.
search:	mov	ebx, [ebp+T_HOME]
	call	inside
	test	eax, eax
	jns	1f
	mov	ebx, [ebp+T_OTHER]
	call	inside
1:	ret

# The same in the bucket ebx.
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
	cmp	eax, eax
	repe cmpsb
	pop	edi
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

is_lru:	cmp	dword ptr [edi+HDR_TYPE], LRU_HASH
	je	1f
	cmp	dword ptr [edi+HDR_TYPE], LRU_PERCPU_HASH
1:	ret

# eax becomes the address of this thread's value of the element eax; changes ecx.
value:	imul	eax, [edi+HDR_VALUE_STRIDE]
	add	eax, [edi+HDR_VALUES]
	add	eax, edi
	mov	ecx, [ebp+STATE_SLOT]
	imul	ecx, [edi+HDR_SLOT_STRIDE]
	add	eax, ecx
	ret

# The value R3 for the element eax.
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

# Locks the bucket T_HOME; not equal if it cannot.
lock:	mov	ebx, [ebp+T_HOME]
	mov	ecx, LOCK_TRIES
	mov	edx, [ebp+STATE_PID_TGID+4]
	shl	edx, LOCK_SLOT_BITS
	mov	eax, [ebp+STATE_SLOT]
	lea	edx, [edx+eax+1]
1:	xor	eax, eax
	lock cmpxchg [ebx+BUCKET_LOCK], edx
	je	3f
	cmp	eax, edx
	je	2f			# this thread's, whom a signal's handler has interrupted
	pause
	dec	ecx
	jnz	1b
2:	or	ecx, 1			# not equal
3:	ret

ROUTINE map_lookup_elem			# map, key
	ARG	edi, 1
	ARG	esi, 2
	cmp	dword ptr [edi+HDR_BUCKETS], 0
	jne	1f
	mov	eax, [esi]
	cmp	eax, [edi+HDR_ELEMS]
	jb	2f
	xor	eax, eax
	jmp	answer
1:	call	places
	call	search
	test	eax, eax
	jns	2f
	xor	eax, eax
	jmp	answer
2:	call	value
	jmp	answer

ROUTINE map_update_elem			# map, key, value, flags
	ARG	edi, 1
	ARG	esi, 2
	cmp	dword ptr [ebp+R+8*4+4], 0
	jne	invalid
	cmp	dword ptr [ebp+R+8*4], UPDATE_EXIST
	ja	invalid
	cmp	dword ptr [edi+HDR_BUCKETS], 0
	jne	update_hash
	cmp	dword ptr [edi+HDR_TYPE], ARRAY
	je	1f
	cmp	dword ptr [edi+HDR_TYPE], PERCPU_ARRAY
	jne	invalid
1:	mov	eax, [esi]
	cmp	eax, [edi+HDR_ELEMS]
	jae	2f
	cmp	dword ptr [ebp+R+8*4], UPDATE_NOEXIST
	je	3f
	call	put_value
	xor	eax, eax
	jmp	answer
2:	FAIL	E2BIG
3:	FAIL	EEXIST
invalid:
	FAIL	EINVAL

update_hash:
	call	places
	call	lock
	jne	busy
	call	search
	test	eax, eax
	js	1f
	mov	dword ptr [ebp+T_RESULT], -EEXIST
	cmp	dword ptr [ebp+R+8*4], UPDATE_NOEXIST
	je	unlock
	call	put_value
	mov	dword ptr [ebp+T_RESULT], 0
	jmp	unlock
1:	mov	dword ptr [ebp+T_RESULT], -ENOENT
	cmp	dword ptr [ebp+R+8*4], UPDATE_EXIST
	je	unlock

	# The first free element, by turns in both buckets, so that they fill evenly.
	mov	edx, TAG_BUSY
	xor	ecx, ecx
2:	mov	ebx, [ebp+T_HOME]
	xor	eax, eax
	lock cmpxchg [ebx+ecx*4+BUCKET_TAGS], edx
	je	new
	mov	ebx, [ebp+T_OTHER]
	xor	eax, eax
	lock cmpxchg [ebx+ecx*4+BUCKET_TAGS], edx
	je	new
	inc	ecx
	cmp	ecx, BUCKET_SLOTS
	jb	2b
	mov	dword ptr [ebp+T_RESULT], -E2BIG
	call	is_lru
	jne	unlock

	# LRU: the hand goes round; what was used since gets another chance.
	mov	ebx, [ebp+T_HOME]
	mov	dword ptr [ebp+T_TRIES], 2*BUCKET_SLOTS
evict:	mov	ecx, [ebx+BUCKET_HAND]
	and	ecx, BUCKET_SLOTS-1
	lea	eax, [ecx+1]
	and	eax, BUCKET_SLOTS-1
	mov	[ebx+BUCKET_HAND], eax
	cmp	byte ptr [ebx+ecx+BUCKET_USED], 0
	je	3f
	mov	byte ptr [ebx+ecx+BUCKET_USED], 0
	jmp	4f
3:	mov	eax, [ebx+ecx*4+BUCKET_TAGS]
	cmp	eax, TAG_BUSY
	je	4f
	lock cmpxchg [ebx+ecx*4+BUCKET_TAGS], edx
	je	new
4:	dec	dword ptr [ebp+T_TRIES]
	jnz	evict
	mov	dword ptr [ebp+T_RESULT], -EBUSY
	jmp	unlock

	# Slot ecx of the bucket ebx is ours.
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
	mov	[ebp+T_TRIES], ecx
	xor	edx, edx
5:	cmp	edx, [ebp+T_TRIES]
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
	mov	dword ptr [ebp+T_RESULT], 0
unlock:	mov	ebx, [ebp+T_HOME]
	mov	dword ptr [ebx+BUCKET_LOCK], 0
	mov	eax, [ebp+T_RESULT]
	test	eax, eax
	jnz	minus
	jmp	answer
busy:	FAIL	EBUSY

ROUTINE map_delete_elem			# map, key
	ARG	edi, 1
	ARG	esi, 2
	cmp	dword ptr [edi+HDR_BUCKETS], 0
	jne	1f
	cmp	dword ptr [edi+HDR_TYPE], STACK_TRACE
	jne	invalid
	mov	eax, [esi]
	cmp	eax, [edi+HDR_ELEMS]
	jae	3f
	add	edi, [edi+HDR_INDEX]
	xor	edx, edx
	xchg	[edi+eax*TRACE_INDEX_SIZE+TRACE_COUNT], edx
	test	edx, edx
	jz	3f
	xor	eax, eax
	jmp	answer
1:	call	places
	call	lock
	jne	busy
	call	search
	mov	dword ptr [ebp+T_RESULT], -ENOENT
	test	eax, eax
	js	unlock
	mov	eax, [ebp+T_TAG]
	xor	edx, edx		# TAG_FREE
	lock cmpxchg [ebx+ecx*4+BUCKET_TAGS], edx
	jne	unlock			# evicted just now
	mov	dword ptr [ebp+T_RESULT], 0
	jmp	unlock
3:	FAIL	ENOENT

ROUTINE map_walk			# map, position, key
	ARG	edi, 1
	ARG	esi, 2
1:	mov	eax, [esi]
	cmp	dword ptr [esi+4], 0
	jne	4f
	cmp	eax, [edi+HDR_ELEMS]
	jae	4f
	inc	dword ptr [esi]
	cmp	dword ptr [edi+HDR_BUCKETS], 0
	je	3f
	mov	ebx, eax		# its tag
	shr	ebx, 3
	shl	ebx, BUCKET_SHIFT
	mov	ecx, eax
	and	ecx, BUCKET_SLOTS-1
	lea	ebx, [ebx+ecx*4+BUCKET_TAGS]
	add	ebx, [edi+HDR_INDEX]
	add	ebx, edi
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
	jmp	answer
4:	xor	eax, eax
	jmp	answer

# ---- Rings ----

# A record of eax bytes of the ring edi; eax is 0 if there is no room.
#
# Head and tail have 8 bytes. The reader must never see half of a new head, so both
# halves change at once where the upper one does; and its tail is read until both
# halves are of one.
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
5:	add	dword ptr [ebx+RING_LOST], 1
	adc	dword ptr [ebx+RING_LOST+4], 0
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

# A record of T_LEN bytes at T_FROM for the ring edi; eax is 0 if there is no room.
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
	and	dword ptr [eax-RECORD_HEADER], ~RECORD_BUSY
1:	ret

	# What the record is made of: two arguments.
	.macro RECORD from, len
	ARG	eax, \from
	mov	[ebp+T_FROM], eax
	WHOLE	\len
	mov	[ebp+T_LEN], eax
	.endm

ROUTINE ringbuf_output			# map, data, size, flags
	ARG	edi, 1
	RECORD	2, 3
	mov	ecx, [edi+HDR_RING_SIZE]
	sub	ecx, RECORD_HEADER
	cmp	eax, ecx
	ja	1f
	call	record
	test	eax, eax
	jz	2f
	xor	eax, eax
	jmp	answer
1:	FAIL	E2BIG
2:	FAIL	EAGAIN

ROUTINE perf_event_output		# context, map, flags, data, size
	ARG	edi, 2
	cmp	dword ptr [ebp+R+8*3+4], 0
	jne	invalid
	RECORD	4, 5
	call	record
	test	eax, eax
	jz	1f
	xor	eax, eax
	jmp	answer
1:	FAIL	ENOSPC

ROUTINE trace_printk			# format, size, three values
	lea	eax, [ebp+R+8*3]
	mov	ecx, 3*8
	jmp	print

ROUTINE trace_vprintk			# format, size, values, their size
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
	mov	esi, [ebp+R+8*2]	# the format's
	cmp	esi, MAX_PRINTK
	jbe	1f
	mov	esi, MAX_PRINTK
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
3:	mov	[ebp+T_LEN], esi
	SEGMENT	edi
	mov	edi, [edi+HEAD_TRACE]
	test	edi, edi
	jz	8f
	imul	eax, [esp], PRINTK_TEXT
	add	eax, [esp+4]
	lea	eax, [eax+esi+PRINTK_ARGS+7]
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
	mov	esi, [ebp+T_LEN]
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

# al becomes the verb of the next conversion of the format ebx, of esi bytes, from ecx on, which is
# moved behind it; 0 at the end.
conversion:
1:	call	letter
	jz	4f
	cmp	al, '%'
	jne	1b
2:	call	letter
	jz	4f
	cmp	al, '%'
	je	1b
	cmp	al, 'A'
	jb	2b
	.irp	size, 'l', 'h', 'z', 'j'
	cmp	al, \size
	je	2b
	.endr
	cmp	al, 'p'
	jne	4f
	lea	edx, [ecx+2]
	cmp	edx, esi
	ja	4f
	cmp	byte ptr [ebx+ecx+1], 's'
	jne	4f
	cmp	byte ptr [ebx+ecx], 'k'
	je	3f
	cmp	byte ptr [ebx+ecx], 'u'
	jne	4f
3:	mov	ecx, edx
	mov	al, 's'
4:	ret

letter:	xor	eax, eax
	cmp	ecx, esi
	jae	1f
	mov	al, [ebx+ecx]
	inc	ecx
1:	test	al, al
	ret

# ---- The target's memory ----

ROUTINE probe_read			# destination, size, source
	ARG	edi, 1
	ARG	ecx, 2
	ARG	esi, 3
	cmp	dword ptr [ebp+R+8*3+4], 0
	jne	bad_address
1:	cmp	ecx, 4
	jb	2f
	MAY_FAULT bad_address
	mov	eax, [esi]
	mov	[edi], eax
	add	esi, 4
	add	edi, 4
	sub	ecx, 4
	jmp	1b
2:	test	ecx, ecx
	jz	3f
	MAY_FAULT bad_address
	mov	al, [esi]
	mov	[edi], al
	inc	esi
	inc	edi
	dec	ecx
	jmp	2b
3:	xor	eax, eax
	jmp	answer

bad_address:				# the bytes that were asked for become zeros
	ARG	edi, 1
	ARG	ecx, 2
	xor	eax, eax
	FILL	al, 1
	FAIL	EFAULT

ROUTINE probe_read_str			# destination, size, source
	ARG	edi, 1
	ARG	edx, 2
	ARG	esi, 3
	cmp	dword ptr [ebp+R+8*3+4], 0
	jne	bad_address
	xor	ecx, ecx
1:	cmp	ecx, edx
	jae	2f
	MAY_FAULT bad_address
	mov	al, [esi+ecx]
	mov	[edi+ecx], al
	inc	ecx
	test	al, al
	jnz	1b
	jmp	3f
2:	test	ecx, ecx
	jz	3f
	mov	byte ptr [edi+ecx-1], 0
3:	mov	eax, ecx
	jmp	answer

ROUTINE probe_write_user		# destination, source, size
	ARG	edi, 1
	ARG	esi, 2
	ARG	ecx, 3
	cmp	dword ptr [ebp+R+8*1+4], 0
	jne	no_address
1:	cmp	ecx, 4
	jb	2f
	mov	eax, [esi]
	MAY_FAULT no_address
	mov	[edi], eax
	add	esi, 4
	add	edi, 4
	sub	ecx, 4
	jmp	1b
2:	test	ecx, ecx
	jz	3f
	mov	al, [esi]
	MAY_FAULT no_address
	mov	[edi], al
	inc	esi
	inc	edi
	dec	ecx
	jmp	2b
3:	xor	eax, eax
	jmp	answer
no_address:
	FAIL	EFAULT

# The return addresses of the chain of frame pointers become an element.
ROUTINE get_stackid			# context, map, flags
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
	repe cmpsd
	pop	esi
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

trace_value:				# edi = the value of the element T_ELEM
	mov	edi, [esi+HDR_VALUE_STRIDE]
	imul	edi, [ebp+T_ELEM]
	add	edi, [esi+HDR_VALUES]
	add	edi, esi
	ret

# ---- The rest ----

# edx:eax = the time, esi = the segment: a product of 128 bits, shifted.
now:	SEGMENT	esi
	rdtsc
	mov	[ebp+T_TICKS], eax
	mov	[ebp+T_TICKS+4], edx
	mul	dword ptr [esi+HEAD_CLOCK_MULT]
	mov	[ebp+T_PRODUCT], eax
	mov	[ebp+T_PRODUCT+4], edx
	mov	eax, [ebp+T_TICKS+4]
	mul	dword ptr [esi+HEAD_CLOCK_MULT+4]
	mov	[ebp+T_PRODUCT+8], eax
	mov	[ebp+T_PRODUCT+12], edx
	.irp	half, 0, 4
	mov	eax, [ebp+T_TICKS+\half]
	mul	dword ptr [esi+HEAD_CLOCK_MULT+4-\half]
	add	[ebp+T_PRODUCT+4], eax
	adc	[ebp+T_PRODUCT+8], edx
	adc	dword ptr [ebp+T_PRODUCT+12], 0
	.endr
	mov	ecx, [esi+HEAD_CLOCK_SHIFT]
	mov	ebx, ecx
	shr	ebx, 5
	mov	eax, [ebp+ebx*4+T_PRODUCT]
	mov	edx, [ebp+ebx*4+T_PRODUCT+4]
	mov	edi, [ebp+ebx*4+T_PRODUCT+8]
	shrd	eax, edx, cl
	shrd	edx, edi, cl
	add	eax, [esi+HEAD_CLOCK_BASE]
	adc	edx, [esi+HEAD_CLOCK_BASE+4]
	ret

ROUTINE ktime_get_ns
	call	now
	jmp	answer8

ROUTINE ktime_get_boot_ns
	call	now
	add	eax, [esi+HEAD_CLOCK_BOOT]
	adc	edx, [esi+HEAD_CLOCK_BOOT+4]
	jmp	answer8

ROUTINE get_smp_processor_id
	mov	ecx, CPU_SEGMENT
	xor	eax, eax
	lsl	eax, ecx
	and	eax, CPU_MASK
	jmp	answer

ROUTINE get_prandom_u32
	mov	eax, [ebp+STATE_RANDOM]
	mov	edx, [ebp+STATE_RANDOM+4]
	mov	ecx, eax
	or	ecx, edx
	jnz	1f
	rdtsc
	xor	eax, ebp
1:	.irp	shift, 13, -7, 17
	mov	ebx, eax
	mov	ecx, edx
	.if	\shift > 0
	shld	ecx, ebx, \shift
	shl	ebx, \shift
	.else
	shrd	ebx, ecx, -(\shift)
	shr	ecx, -(\shift)
	.endif
	xor	eax, ebx
	xor	edx, ecx
	.endr
	mov	[ebp+STATE_RANDOM], eax
	mov	[ebp+STATE_RANDOM+4], edx
	mov	eax, edx
	jmp	answer

ROUTINE get_current_uid_gid
	SEGMENT	ecx
	mov	eax, [ecx+HEAD_UID_GID]
	mov	edx, [ecx+HEAD_UID_GID+4]
	jmp	answer8

ROUTINE get_current_comm		# destination, size
	ARG	edi, 1
	ARG	esi, 2
	xor	ecx, ecx
1:	xor	eax, eax
	lea	edx, [ecx+1]
	cmp	edx, esi
	jae	2f			# the last is a NUL
	cmp	ecx, COMM_SIZE
	jae	2f
	mov	al, [ebp+ecx+STATE_COMM]
2:	mov	[edi+ecx], al
	inc	ecx
	cmp	ecx, esi
	jb	1b
	xor	eax, eax
	jmp	answer

ROUTINE override_return			# context, value
	ARG	eax, 2
	mov	[ebp+STATE_VALUE], eax
	mov	byte ptr [ebp+STATE_OVERRIDE], 1
	xor	eax, eax
	jmp	answer
