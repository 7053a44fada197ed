# The routines that live in an amd64 target beside the detours (area.go): they
# find threads and instances, and they are the helpers that programs call. The
# names in capitals are offsets and numbers of package bpf, internal/jit and this
# one; a test passes them in. General registers only.
	.intel_syntax noprefix

	# MAY_FAULT is the next instruction's: if its operand in the target's memory
	# is not there, the controller sends the thread to the label.
	.macro MAY_FAULT to
	.pushsection .faults, "a"
	.long 99f - start, \to - start
	.popsection
99:
	.endm

	# A routine that is known outside by its name. Inside it is name_, since the
	# assembler leaves calls of global names to a linker.
	.macro ROUTINE name
	.p2align 4, 0xcc
	.globl \name
\name:
\name\()_:
	.endm

	.text
	.org	AREA_CODE, 0xcc
start:

# ---- Called by detours, on the program's own stack ----

# The thread whose key is rcx is not where its hash says: rdx is that entry of the
# table. Leaves rdx at its entry, or at the sink's. Keeps all else but flags.
ROUTINE find
	push	rax
	push	rsi
	push	rdi
	lea	rdi, [rdx+TABLE_WINDOW*ENTRY_SIZE]
look:	xor	esi, esi		# the first entry that could be taken
next:	mov	rax, [rdx]
	cmp	rax, rcx
	je	known
	cmp	rax, TOMBSTONE
	ja	other
	test	rsi, rsi
	cmovz	rsi, rdx
	test	rax, rax
	jz	claim			# never used: the key is not further on
other:	add	rdx, ENTRY_SIZE
	cmp	rdx, rdi
	jb	next
claim:	mov	rdx, rsi
	test	rdx, rdx
	jz	sink
	mov	rax, [rdx]
	cmp	rax, TOMBSTONE
	ja	again			# somebody was faster
	lock cmpxchg [rdx], rcx
	je	mine
again:	lea	rdx, [rdi-TABLE_WINDOW*ENTRY_SIZE]
	jmp	look
known:	cmp	qword ptr [rdx+8], 0
	jne	done
	# The entry is this thread's, and has no state yet. A signal handler that gets
	# here too leaves a state unused, no more.
mine:	mov	rsi, [rip+start-AREA_CODE+AREA_HEAD]
	mov	rdi, [rdx+8]
	test	rdi, rdi
	jnz	renew			# that of a thread that is dead
	mov	eax, [rsi+HEAD_NEXT]
1:	cmp	eax, [rsi+HEAD_MAX]
	jae	none
	lea	edi, [rax+1]
	lock cmpxchg [rsi+HEAD_NEXT], edi
	jne	1b
	push	rax
	mov	eax, edi		# the sink is the first
	shr	eax, GROUP_SHIFT
	imul	rax, [rsi+HEAD_SPAN]
	and	edi, GROUP_MASK
	imul	rdi, [rsi+HEAD_STRIDE]
	add	rdi, rax
	add	rdi, [rsi+HEAD_STATES]
	pop	rax
	# What Segment.initState does, and in its order: until the first free instance is there this
	# is no state to others, and until the entry has it to no signal handler of this thread's.
	mov	[rdi+STATE_SLOT], rax
	mov	rax, [rsi+HEAD_TGID]
	mov	[rdi+STATE_PID_TGID], rax
	mov	qword ptr [rdi+CALLS_AT+CALL_PROBE], -1
	mov	qword ptr [rdi+CONTEXT_ORIG_AX], -1
	mov	qword ptr [rdi+CONTEXT_CS], USER_CS
	mov	qword ptr [rdi+CONTEXT_SS], USER_SS
	lea	rax, [rdi+CALLS_AT+CALL_SIZE]
	mov	[rdi+STATE_CALLS], rax
	mov	[rdx+8], rdi
renew:	cmp	rdi, [rsi+HEAD_SINK+8]
	je	done
	mov	[rdi+STATE_KEY], rcx
	lea	rax, [rdi+CALLS_AT+CALL_SIZE]
	mov	[rdi+STATE_CALLS], rax
	xor	eax, eax
	mov	[rdi+STATE_STACK_LOW], rax
	mov	[rdi+STATE_STACK_HIGH], rax
	mov	[rdi+CALLS_AT+CALL_SLOT], rax
	mov	[rdi+STATE_OVERRIDE], al
	mov	al, [rdi+STATE_CLOSED]
	mov	[rdi+STATE_BUSY], al
	push	rcx
	push	r11
	mov	eax, SYS_GETTID		# the one system call that there is, once in a thread's life
	syscall
	pop	r11
	pop	rcx
	mov	[rdi+STATE_PID_TGID], eax
done:	pop	rdi
	pop	rsi
	pop	rax
	ret
none:	mov	rdi, [rsi+HEAD_SINK+8]
	mov	[rdx+8], rdi
	jmp	done
sink:	mov	rdx, [rip+start-AREA_CODE+AREA_HEAD]
	add	rdx, HEAD_SINK
	jmp	done

# Who is it that runs here? Leaves rdx at the thread's entry of the table, or at the
# sink's; changes rcx and flags. See internal/segment/keys.go.
ROUTINE identify
	push	rax
	push	rsi
	push	rdi
	push	r11
	mov	rsi, [rip+start-AREA_CODE+AREA_HEAD]
	cmp	byte ptr [rsi+HEAD_READS_BASE], 0
	jne	base
	cmp	byte ptr [rip+start-AREA_CODE+AREA_CAREFUL], 0
	jne	by_id
	MAY_FAULT by_id
	mov	rcx, fs:[0]
	lea	rdi, [rsi+HEAD_PROOF]
	sub	rdi, rcx
	mov	rax, [rsi+HEAD_PROOF]
	MAY_FAULT by_id
	cmp	fs:[rdi], rax
	jne	by_id
	jmp	pointer
base:	rdfsbase rcx
pointer:
	test	rcx, rcx
	jz	by_id
	test	cl, KEY_ALIGN
	jnz	by_id
	cmp	qword ptr [rsi+HEAD_ANY_SHARED], 0
	jne	by_id
	lea	rdi, [rsi+HEAD_SHARED]
	jmp	2f
1:	cmp	[rdi], rcx
	je	by_id
	add	rdi, 8
2:	cmp	qword ptr [rdi], 0
	jne	1b
	jmp	search_table
by_id:	mov	eax, SYS_GETTID
	syscall
	lea	rcx, [rax*4+ODD_KEY]
	bts	rcx, ODD_BIT
search_table:
	imul	rdx, rcx, KEY_FACTOR
	shr	rdx, HASH_SHIFT64
	and	edx, HASH_MASK
	add	rdx, [rip+start-AREA_CODE+AREA_TABLE]
	lea	rdi, [rdx+TABLE_WINDOW*ENTRY_SIZE]
	pop	r11
	jmp	look

#include "x86_instances.h"

# A function begins with the word rax on top of its stack, and no direct call is in front of where that leads. The zero
# flag becomes whether it may be a return address nevertheless: the controller's; behind an indirect call; in a file
# where a function or a part of one begins, or behind a call that a probe stands on; or what ends a signal
# (package returns, Origin). Keeps all else.
ROUTINE called
	push	rcx
	push	rsi
	push	rdi
	mov	rsi, [rip+start-AREA_CODE+AREA_HEAD]
	cmp	rax, [rsi+HEAD_OTHER]
	je	origin
	.macro INDIRECT first, absent	# the opcode's first byte, or what has its place, and then /2
	.irp	back, 2, 3, 4, 6, 7
	MAY_FAULT \absent
	movzx	ecx, word ptr [rax-\back]
	and	ecx, 0x38ff
	cmp	ecx, 0x1000+\first
	je	origin
	.endr
	.endm
	INDIRECT 0xff, code
code:	lea	rdi, [rsi+HEAD_FILES-16]
file:	add	rdi, 16
	mov	rcx, [rdi]
	test	rcx, rcx
	jz	signal
	cmp	rax, rcx
	jb	file
	cmp	rax, [rdi+8]
	jae	file
	test	al, FILE_ALIGN
	jz	origin
	MAY_FAULT signal
	cmp	byte ptr [rax-1], 0xc3
	je	origin
	MAY_FAULT signal
	movzx	ecx, word ptr [rax-2]
	and	ecx, 0xf8ff
	cmp	ecx, 0xe0ff		# jmp rax, or another register
	je	origin
	INDIRECT 0xcc, signal
	cmp	byte ptr [rax-5], 0xcc
	je	origin
	.irp	back, 5, 6, 7, 8, 9, 10, 11, 12	# a jump takes a call's beginning, and what is in front of it
	MAY_FAULT signal
	cmp	byte ptr [rax-\back], 0xe9
	je	origin
	.endr
signal:	MAY_FAULT astray
	mov	rcx, [rax]
	movabs	rdi, 0x0f0000000fc0c748	# mov rax, 15 (rt_sigreturn)
	cmp	rcx, rdi
	je	origin
	shl	rcx, 8
	movabs	rdi, 0x050f0000000fb800	# mov eax, 15; syscall
	cmp	rcx, rdi
	jmp	origin
astray:	test	rsp, rsp
origin:	pop	rdi
	pop	rsi
	pop	rcx
	ret

# ---- The pool of calls: called by detours, at work on the private stack ----

	.macro TO_PRIVATE
	mov	[rdx+STATE_RSP], rsp
	lea	rsp, [rdx-TARGET_SP-8]	# it may be there already, with a return address
	.irp	r, rbx, rsi, rdi, rbp, r8, r9, r10, r11
	push	\r
	.endr
	.endm

	.macro FROM_PRIVATE
	.irp	r, r11, r10, r9, r8, rbp, rdi, rsi, rbx
	pop	\r
	.endr
	mov	rsp, [rdx+STATE_RSP]
	.endm

	# Counts the call \node as lost; changes eax.
	.macro LOSE node, why
	mov	eax, [\node+NODE_PROBE]
	inc	qword ptr [rdx+rax*8+STATE_COUNTERS+\why]
	.endm

# The thread rdx stands at the stack slot rax; its goroutine's descriptor is rcx, 0 for none.
# Leaves rsi at the owner of calls there, 0 for none; rbx, the slot's place on the owner's stack;
# rbp, the slot; r8, the segment. The calls are given up that this shows to be over.
owner:	mov	rbp, rax
	mov	r8, [rip+start-AREA_CODE+AREA_HEAD]
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
	jz	6f
	LOSE	r9, LOST_GOEXIT
	call	pop_call
	jmp	5b
6:	ret

deeper:	mov	r9, [rsi+OWNER_TOP]
	test	r9, r9
	jz	6b
	cmp	[r9+NODE_PLACE], rbx
	jge	6b
	LOSE	r9, LOST_UNWOUND
	call	pop_call
	jmp	deeper

thread:	lea	rsi, [rdx+STATE_OWN]
	mov	rbx, rbp
7:	mov	r9, [rsi+OWNER_TOP]
	test	r9, r9
	jz	6b
	mov	rax, [r9+NODE_PLACE]
	cmp	rax, rbx
	jae	6b
	cmp	rax, [rdx+STATE_STACK_LOW]
	jb	6b			# of another stack
	cmp	rbx, [rdx+STATE_STACK_HIGH]
	jae	6b
	LOSE	r9, LOST_UNWOUND
	call	pop_call
	jmp	7b

# The newest call r9 of the owner rsi is over. Changes rax, rcx, rdi, r10, r11.
pop_call:
	mov	rax, [r9+NODE_NEXT]
	mov	[rsi+OWNER_TOP], rax
	dec	dword ptr [rsi+OWNER_COUNT]
# The call r9 is free again. What is in it stays until the thread needs one.
free_call:
	mov	rax, [rdx+STATE_FREE]
	mov	[r9+NODE_NEXT], rax
	mov	[rdx+STATE_FREE], r9
	inc	dword ptr [rdx+STATE_FREES]
	cmp	dword ptr [rdx+STATE_FREES], 2*POOL_BATCH
	jb	3f
	mov	r10, rax		# a batch is given away: those behind the first
	mov	r11, rax
	mov	ecx, POOL_BATCH-1
1:	mov	r11, [r11+NODE_NEXT]
	dec	ecx
	jnz	1b
	mov	rax, [r11+NODE_NEXT]
	mov	[r9+NODE_NEXT], rax
	mov	[r11+NODE_NEXT], rcx
	sub	dword ptr [rdx+STATE_FREES], POOL_BATCH
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
3:	ret

# r9 becomes a free call, 0 where there is none; its private data, as much as is asked for,
# zeros. Changes rax, rcx, rdi, r10, r11.
take_call:
	mov	r9, [rdx+STATE_FREE]
	test	r9, r9
	jz	1f
	mov	rax, [r9+NODE_NEXT]
	mov	[rdx+STATE_FREE], rax
	dec	dword ptr [rdx+STATE_FREES]
	jmp	taken
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
	mov	rax, [r9+NODE_NEXT]
	mov	[rdx+STATE_FREE], rax
	mov	dword ptr [rdx+STATE_FREES], POOL_BATCH-1
	jmp	taken
3:	xor	r9d, r9d
	mov	eax, [r8+POOL_NEXT]
	cmp	eax, [r8+POOL_MAX]
	jae	5f
	mov	eax, 1
	lock xadd [r8+POOL_NEXT], eax
	cmp	eax, [r8+POOL_MAX]
	jae	5f
	mov	r9, rax
	shl	r9, NODE_SHIFT
	add	r9, [r8+POOL_CALLS]
taken:	mov	rdi, r9
	sub	rdi, [r8+POOL_CALLS]
	shl	rdi, DATA_SHIFT
	add	rdi, [r8+POOL_DATA]
	mov	ecx, [rdx+STATE_ASKED+8]
4:	sub	ecx, 1
	js	5f
	mov	qword ptr [rdi+rcx*8], 0
	jmp	4b
5:	ret

# r10 becomes the call of the probe eax at the place rbx of the owner rsi, 0 for none, and
# r11 where the address of it is.
find_call:
	lea	r11, [rsi+OWNER_TOP]
	lea	rdi, [rdx+STATE_OWN]
1:	mov	r10, [r11]
	test	r10, r10
	jz	4f
	cmp	[r10+NODE_PLACE], rbx
	jne	2f
	cmp	[r10+NODE_PROBE], eax
	je	4f
	jmp	3f
2:	cmp	rsi, rdi		# a goroutine's calls are in order
	jne	5f
3:	lea	r11, [r10+NODE_NEXT]
	jmp	1b
5:	xor	r10d, r10d
4:	ret

	# What may be about to begin anew: rdi, of eax and rbx.
	.macro AGAIN
	mov	edi, ebx
	shl	rdi, 32
	or	rdi, rax
	.endm

# A function has been entered by the thread rdx, its goroutine rcx, with its return address
# in the slot rax. STATE_ASKED has the probe, the most calls, and the words of private data.
# Leaves the call in rcx and in STATE_CALL; or 0 if it cannot be watched; or 1 if it
# is none: the function begins anew.
ROUTINE enter_call
	TO_PRIVATE
	call	owner
	xor	ecx, ecx
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
	inc	ecx
	jmp	entered
1:	call	find_call
	test	r10, r10
	jz	2f
	LOSE	r10, LOST_UNWOUND	# its place is used again
	mov	r9, r10
	mov	rax, [r9+NODE_NEXT]
	mov	[r11], rax
	dec	dword ptr [rsi+OWNER_COUNT]
	call	free_call
2:	mov	ecx, [rdx+STATE_ASKED+4]
	cmp	[rsi+OWNER_COUNT], ecx
	jb	5f
	mov	r10, [rsi+OWNER_TOP]	# calls of whatever probes
	mov	eax, [rdx+STATE_ASKED]
3:	test	r10, r10
	jz	4f
	cmp	[r10+NODE_PROBE], eax
	mov	r10, [r10+NODE_NEXT]
	jne	3b
	dec	ecx
	jmp	3b
4:	test	ecx, ecx
	mov	ecx, 0
	jle	entered
5:	call	take_call
	mov	rcx, r9
	test	r9, r9
	jz	entered
	mov	rax, [rsi+OWNER_TOP]
	mov	[r9+NODE_NEXT], rax
	mov	[r9+NODE_PLACE], rbx
	mov	rax, [rbp]
	mov	[r9+NODE_RET], rax
	mov	eax, [rdx+STATE_ASKED]
	mov	[r9+NODE_PROBE], eax
	mov	[rsi+OWNER_TOP], r9
	inc	dword ptr [rsi+OWNER_COUNT]
	mov	[rdx+STATE_CALL], r9
	mov	[rdx+STATE_OWNER], rsi
entered:
	FROM_PRIVATE
	ret

# A function is left by the thread rdx, its goroutine rcx, with its return address in the slot
# rax. STATE_ASKED has the probe, and in the fourth word 1 if the function is to begin
# anew. Leaves its call in rcx and in STATE_CALL, or 0 if it was not watched. It is taken
# from its owner, and stays as it is until the thread makes another one.
ROUTINE leave_call
	TO_PRIVATE
	call	owner
	xor	ecx, ecx
	test	rsi, rsi
	jz	left
	mov	eax, [rdx+STATE_ASKED]
	cmp	[rdx+STATE_ASKED+12], ecx
	je	1f
	AGAIN
	mov	[rsi+OWNER_AGAIN], rdi
	jmp	left
1:	call	find_call
	xor	ecx, ecx
	test	r10, r10
	jz	left
	mov	r9, r10
	mov	rax, [r9+NODE_NEXT]
	mov	[r11], rax
	dec	dword ptr [rsi+OWNER_COUNT]
	mov	[rdx+STATE_CALL], r9
	mov	rax, [r9+NODE_RET]
	mov	rdi, [rbp]
	cmp	rdi, rax
	je	2f
	mov	r10, [rdx+STATE_CALLS]	# a detour has swapped it since, perhaps more than once: the last call first
3:	sub	r10, CALL_SIZE
	cmp	dword ptr [r10+CALL_PROBE], -1
	je	4f			# the sentinel
	cmp	[r10+CALL_SLOT], rbp
	jne	3b
	cmp	[r10+CALL_BACK], rdi
	jne	3b
	mov	rdi, [r10+CALL_RET]
	cmp	rdi, rax
	jne	3b
	jmp	2f
4:	mov	ecx, 16			# or it is away
	imul	r10d, ebp, HASH_FACTOR
	shr	r10d, AWAY_SHIFT
	and	r10d, [r8+AWAY_MASK]
	shl	r10d, 3
	add	r10, [r8+AWAY_KEYS]
5:	cmp	[r10], rbp
	jne	6f
	mov	r11, r10
	sub	r11, [r8+AWAY_KEYS]
	shl	r11, CALL_SHIFT-3
	add	r11, [r8+AWAY_CALLS]
	cmp	[r11+CALL_BACK], rdi
	jne	6f
	mov	rdi, [r11+CALL_RET]
	cmp	rdi, rax
	je	2f
	dec	ecx
	jz	7f
	and	r10, -AWAY_BUCKET
	jmp	5b
6:	add	r10, 8
	test	r10d, AWAY_BUCKET-1
	jnz	5b
7:	LOSE	r9, LOST_UNWOUND	# another call has its place, that was not seen to begin
	mov	qword ptr [rdx+STATE_CALL], 0
2:	call	free_call
	mov	rcx, [rdx+STATE_CALL]
left:	FROM_PRIVATE
	ret

# The call STATE_CALL of the thread rdx, its owner's newest, is not to be watched.
ROUTINE forget_call
	TO_PRIVATE
	mov	r8, [rip+start-AREA_CODE+AREA_HEAD]
	mov	r9, [rdx+STATE_CALL]
	mov	rsi, [rdx+STATE_OWNER]
	call	pop_call
	FROM_PRIVATE
	ret

# The thread rdx needs private data, STATE_ASKED+8 words of it. Leaves the call whose it is
# in STATE_CALL, or 0.
ROUTINE take_data
	TO_PRIVATE
	push	rax
	push	rcx
	mov	r8, [rip+start-AREA_CODE+AREA_HEAD]
	call	take_call
	mov	[rdx+STATE_CALL], r9
	pop	rcx
	pop	rax
	FROM_PRIVATE
	ret

# The private data of STATE_CALL is no longer needed; it stays until the thread takes some.
ROUTINE give_data
	TO_PRIVATE
	push	rax
	push	rcx
	mov	r8, [rip+start-AREA_CODE+AREA_HEAD]
	mov	r9, [rdx+STATE_CALL]
	call	free_call
	pop	rcx
	pop	rax
	FROM_PRIVATE
	ret

# ---- Called by programs, on the private stack ----

# ---- Kernels: a call is found by the stack slot of its return address, on whatever CPU ----

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

	# A call on the task's own stack, which leaves nothing of it below (see wipe in amd64_calls.go).
	.macro LOCAL to
	call	\to
	mov	qword ptr [rsp-8], 0
	.endm

# Leaves r9 at the call of the probe that is asked for, esi, at the slot rax, 0 for none; r8, the segment;
# rdi, where the search began. Nobody else looks for that call: who runs on its stack has masked
# interrupts. Changes rcx, r10.
find_slot:
	mov	r8, [rip+start-AREA_CODE+AREA_HEAD]
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
	mov	r8, [rip+start-AREA_CODE+AREA_HEAD]
	mov	r9, [rdx+STATE_CALL]
	mov	esi, [r9+NODE_PROBE]
	LOCAL drop_slot
	POP_ALL
	ret

# Where a program returns to that the controller wants to have back. Should nobody be there
# any more, the trap becomes the jump that lies hidden behind it, and goes on where the
# program would have.
ROUTINE trap_exit
	int3
	.long	0
	jmp	[r12+STATE_BACK]

ROUTINE helpers

# The helpers: see package bpf for what they do, and for the layout of what they work
# on. Arguments in rdi, rsi, rdx, rcx, r8; the answer in rax. They may change these and
# r9 to r11, and have the thread's state in r12.

	# r11 = the 8 bytes at r10, or the ecx, less than 8, that are left, padded with zeros
	.macro NEXT_WORD
	cmp	ecx, 8
	jae	7f
	call	partial
	jmp	8f
7:	mov	r11, [r10]
8:
	.endm

	.macro FAIL errno
	mov	rax, -\errno
	ret
	.endm

	# ax = ax * HASH_MUL (in mul), mixed; changes tmp
	.macro MIX mul, tmp
	imul	rax, \mul
	mov	\tmp, rax
	shr	\tmp, 32
	xor	rax, \tmp
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

# ---- Hash maps ----

# Where the key rsi may be in the map rdi: the tag r8d, the buckets r9 (home) and r10.
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
	mov	r10, r9
	mov	r9, rax
	ret

# rax is the element of the map rdi with the key rsi, whose places are known; or negative.
search:	mov	r11, r9
	call	inside
	test	rax, rax
	jns	1f
	mov	r11, r10
	call	inside
1:	ret

# The same in the bucket r11.
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

is_lru:	cmp	dword ptr [rdi+HDR_TYPE], LRU_HASH
	je	1f
	cmp	dword ptr [rdi+HDR_TYPE], LRU_PERCPU_HASH
1:	ret

# rax becomes the address of this thread's value of the element rax.
value:	mov	ecx, [rdi+HDR_VALUE_STRIDE]
	imul	rax, rcx
	add	rax, [rdi+HDR_VALUES]
	add	rax, rdi
	mov	ecx, [r12+STATE_SLOT]
	imul	rcx, [rdi+HDR_SLOT_STRIDE]
	add	rax, rcx
	ret

# Locks the bucket r9; not equal if it cannot.
lock:	mov	ecx, LOCK_TRIES
	mov	edx, [r12+STATE_PID_TGID+4]
	shl	edx, LOCK_SLOT_BITS
	mov	eax, [r12+STATE_SLOT]
	lea	edx, [rdx+rax+1]
1:	xor	eax, eax
	lock cmpxchg [r9+BUCKET_LOCK], edx
	je	3f
	cmp	eax, edx
	je	2f			# this thread's, whom a signal's handler has interrupted
	pause
	dec	ecx
	jnz	1b
2:	or	ecx, 1			# not equal
3:	ret

ROUTINE map_lookup_elem			# map, key
	cmp	dword ptr [rdi+HDR_BUCKETS], 0
	jne	1f
	mov	eax, [rsi]
	cmp	eax, [rdi+HDR_ELEMS]
	jb	value
	xor	eax, eax
	ret
1:	call	places
	call	search
	test	rax, rax
	jns	value
	xor	eax, eax
	ret

ROUTINE map_update_elem			# map, key, value, flags
	cmp	rcx, UPDATE_EXIST
	ja	invalid
	cmp	dword ptr [rdi+HDR_BUCKETS], 0
	jne	update_hash
	cmp	dword ptr [rdi+HDR_TYPE], ARRAY
	je	1f
	cmp	dword ptr [rdi+HDR_TYPE], PERCPU_ARRAY
	jne	invalid
1:	mov	eax, [rsi]
	cmp	eax, [rdi+HDR_ELEMS]
	jae	2f
	cmp	ecx, UPDATE_NOEXIST
	je	3f
	call	value
	mov	r9, rax
	mov	r10, rdx
	mov	ecx, [rdi+HDR_VALUE_SIZE]
	call	copy
	xor	eax, eax
	ret
2:	FAIL	E2BIG
3:	FAIL	EEXIST
invalid:
	FAIL	EINVAL

update_hash:
	.irp	r, rbx, rbp, r13, r14, r15
	push	\r
	.endr
	mov	r13, rdx		# value
	mov	r14, rcx		# flags
	call	places
	call	lock
	mov	rax, -EBUSY
	jne	out
	mov	r15, r9			# the home, which is locked
	call	search
	test	rax, rax
	js	1f
	mov	rbx, -EEXIST
	cmp	r14d, UPDATE_NOEXIST
	jne	store
	jmp	unlock
1:	mov	rbx, -ENOENT
	cmp	r14d, UPDATE_EXIST
	je	unlock

	# The first free element, by turns in both buckets, so that they fill evenly.
	mov	ebp, TAG_BUSY
	xor	ecx, ecx
2:	xor	eax, eax
	lock cmpxchg [r9+rcx*4+BUCKET_TAGS], ebp
	je	new
	xor	eax, eax
	lock cmpxchg [r10+rcx*4+BUCKET_TAGS], ebp
	je	3f
	inc	ecx
	cmp	ecx, BUCKET_SLOTS
	jb	2b
	mov	rbx, -E2BIG
	call	is_lru
	jne	unlock
	mov	edx, 2*BUCKET_SLOTS
	jmp	evict
3:	mov	r9, r10
	jmp	new

	# LRU: the hand goes round; what was used since gets another chance.
evict:	mov	ecx, [r9+BUCKET_HAND]
	and	ecx, BUCKET_SLOTS-1
	lea	eax, [rcx+1]
	and	eax, BUCKET_SLOTS-1
	mov	[r9+BUCKET_HAND], eax
	cmp	byte ptr [r9+rcx+BUCKET_USED], 0
	je	4f
	mov	byte ptr [r9+rcx+BUCKET_USED], 0
	jmp	5f
4:	mov	eax, [r9+rcx*4+BUCKET_TAGS]
	cmp	eax, TAG_BUSY
	je	5f
	lock cmpxchg [r9+rcx*4+BUCKET_TAGS], ebp
	je	new
5:	dec	edx
	jnz	evict
	mov	rbx, -EBUSY
	jmp	unlock

	# Slot ecx of the bucket r9 is ours.
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
	mov	rcx, [rip+start-AREA_CODE+AREA_HEAD]
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
8:	call	value
	mov	r9, rax
	mov	r10, r13
	mov	ecx, [rdi+HDR_VALUE_SIZE]
	call	copy
	mov	[r14], r8d		# and now it is there
	xor	ebx, ebx
	jmp	unlock

	# The value r13 for the element rax, which was there.
store:	call	value
	mov	r9, rax
	mov	r10, r13
	mov	ecx, [rdi+HDR_VALUE_SIZE]
	call	copy
	xor	ebx, ebx
unlock:	mov	dword ptr [r15+BUCKET_LOCK], 0
	mov	rax, rbx
out:
	.irp	r, r15, r14, r13, rbp, rbx
	pop	\r
	.endr
	ret

ROUTINE map_delete_elem			# map, key
	cmp	dword ptr [rdi+HDR_BUCKETS], 0
	jne	1f
	cmp	dword ptr [rdi+HDR_TYPE], STACK_TRACE
	jne	invalid
	mov	eax, [rsi]
	cmp	eax, [rdi+HDR_ELEMS]
	jae	4f
	mov	rcx, [rdi+HDR_INDEX]
	add	rcx, rdi
	xor	edx, edx
	xchg	[rcx+rax*TRACE_INDEX_SIZE+TRACE_COUNT], edx
	test	edx, edx
	jz	4f
	xor	eax, eax
	ret
1:	call	places
	call	lock
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
3:	mov	dword ptr [r9+BUCKET_LOCK], 0
	mov	rax, rdx
	ret
4:	FAIL	ENOENT
5:	FAIL	EBUSY

ROUTINE map_walk			# map, position, key
1:	mov	rax, [rsi]
	mov	ecx, [rdi+HDR_ELEMS]
	cmp	rax, rcx
	jae	4f
	inc	qword ptr [rsi]
	cmp	dword ptr [rdi+HDR_BUCKETS], 0
	je	3f
	mov	r11, rax		# its tag
	shr	r11, 3
	shl	r11, BUCKET_SHIFT
	mov	ecx, eax
	and	ecx, BUCKET_SLOTS-1
	lea	r11, [r11+rcx*4+BUCKET_TAGS]
	add	r11, [rdi+HDR_INDEX]
	add	r11, rdi
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
4:	xor	eax, eax
	ret

# ---- Rings ----

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
3:	inc	qword ptr [rcx+RING_LOST]
	xor	eax, eax
	ret

# A record of rdx bytes at rsi for the ring rdi; rax is 0 if there is no room.
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
	and	dword ptr [rax-RECORD_HEADER], ~RECORD_BUSY
1:	ret

ROUTINE ringbuf_output			# map, data, size, flags
	mov	eax, [rdi+HDR_RING_SIZE]
	sub	eax, RECORD_HEADER
	cmp	rdx, rax
	ja	1f
	call	record
	test	rax, rax
	jz	2f
	xor	eax, eax
	ret
1:	FAIL	E2BIG
2:	FAIL	EAGAIN

ROUTINE perf_event_output		# context, map, flags, data, size
	shr	rdx, 32
	jnz	invalid
	mov	rdi, rsi
	mov	rsi, rcx
	mov	rdx, r8
	call	record
	test	rax, rax
	jz	1f
	xor	eax, eax
	ret
1:	FAIL	ENOSPC

ROUTINE trace_printk			# format, size, three values
	push	r8
	push	rcx
	push	rdx
	mov	rdx, rsp
	mov	ecx, 3*8
	call	trace_vprintk_
	add	rsp, 3*8
	ret

ROUTINE trace_vprintk			# format, size, values, their size
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
	cmp	rsi, r15
	cmovb	r15, rsi		# the format's
	xor	ebp, ebp		# texts
	xor	ecx, ecx
1:	call	conversion
	test	al, al
	jz	2f
	cmp	al, 's'
	jne	1b
	inc	ebp
	jmp	1b
2:	mov	rdi, [rip+start-AREA_CODE+AREA_HEAD]
	mov	rdi, [rdi+HEAD_TRACE]
	test	rdi, rdi
	jz	6f
	imul	esi, ebp, PRINTK_TEXT
	add	esi, r14d
	lea	esi, [rsi+r15+PRINTK_ARGS+7]
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
	mov	rax, [rip+start-AREA_CODE+AREA_HEAD]
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

# al becomes the verb of the next conversion of the format rbx, of r15 bytes, from rcx on, which is
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
	lea	rdx, [rcx+2]
	cmp	rdx, r15
	ja	4f
	cmp	byte ptr [rbx+rcx+1], 's'
	jne	4f
	cmp	byte ptr [rbx+rcx], 'k'
	je	3f
	cmp	byte ptr [rbx+rcx], 'u'
	jne	4f
3:	mov	rcx, rdx
	mov	al, 's'
4:	ret

letter:	xor	eax, eax
	cmp	rcx, r15
	jae	1f
	mov	al, [rbx+rcx]
	inc	rcx
1:	test	al, al
	ret

# probe_read_str where a kernel has nothing to read text with.
ROUTINE no_text
	FAIL	EFAULT

# ---- The target's memory ----

ROUTINE probe_read			# destination, size, source
	mov	r8, rdi
	mov	r9, rsi
1:	cmp	rsi, 8
	jb	2f
	MAY_FAULT bad_address
	mov	rax, [rdx]
	mov	[rdi], rax
	add	rdx, 8
	add	rdi, 8
	sub	rsi, 8
	jmp	1b
2:	test	rsi, rsi
	jz	3f
	MAY_FAULT bad_address
	mov	al, [rdx]
	mov	[rdi], al
	inc	rdx
	inc	rdi
	dec	rsi
	jmp	2b
3:	xor	eax, eax
	ret

bad_address:				# the r9 bytes at r8 become zeros
	test	r9, r9
	jz	1f
	mov	byte ptr [r8], 0
	inc	r8
	dec	r9
	jmp	bad_address
1:	FAIL	EFAULT

ROUTINE probe_read_str			# destination, size, source
	mov	r8, rdi
	mov	r9, rsi
	xor	ecx, ecx
1:	cmp	rcx, rsi
	jae	2f
	MAY_FAULT bad_address
	mov	al, [rdx+rcx]
	mov	[rdi+rcx], al
	inc	rcx
	test	al, al
	jnz	1b
	mov	rax, rcx
	ret
2:	test	rcx, rcx
	jz	3f
	mov	byte ptr [rdi+rcx-1], 0
3:	mov	rax, rcx
	ret

ROUTINE probe_write_user		# destination, source, size
1:	cmp	rdx, 8
	jb	2f
	mov	rax, [rsi]
	MAY_FAULT no_address
	mov	[rdi], rax
	add	rsi, 8
	add	rdi, 8
	sub	rdx, 8
	jmp	1b
2:	test	rdx, rdx
	jz	3f
	mov	al, [rsi]
	MAY_FAULT no_address
	mov	[rdi], al
	inc	rsi
	inc	rdi
	dec	rdx
	jmp	2b
3:	xor	eax, eax
	ret
no_address:
	FAIL	EFAULT

# The return addresses of the chain of frame pointers become an element.
ROUTINE get_stackid			# context, map, flags
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

# The r11d addresses that the state has become an element of the map rsi, by the flags r8d. rbx is on the stack.
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

trace_value:				# rax = the value of the element rdi
	mov	eax, [rsi+HDR_VALUE_STRIDE]
	imul	rax, rdi
	add	rax, [rsi+HDR_VALUES]
	add	rax, rsi
	ret

# ---- The rest ----

ROUTINE ktime_get_ns
	mov	r8, [rip+start-AREA_CODE+AREA_HEAD]
	rdtsc
	shl	rdx, 32
	or	rax, rdx
	mul	qword ptr [r8+HEAD_CLOCK_MULT]
	mov	ecx, [r8+HEAD_CLOCK_SHIFT]
	shrd	rax, rdx, cl
	add	rax, [r8+HEAD_CLOCK_BASE]
	ret

ROUTINE ktime_get_boot_ns
	call	ktime_get_ns_
	add	rax, [r8+HEAD_CLOCK_BOOT]
	ret

# The kernel leaves the CPU's number in the limit of a segment, for the vDSO.
ROUTINE get_smp_processor_id
	mov	ecx, CPU_SEGMENT
	xor	eax, eax
	lsl	eax, ecx
	and	eax, CPU_MASK
	ret

ROUTINE get_prandom_u32
	mov	rax, [r12+STATE_RANDOM]
	test	rax, rax
	jnz	1f
	rdtsc
	shl	rdx, 32
	or	rax, rdx
	xor	rax, r12
1:	.irp	shift, 13, -7, 17
	mov	rcx, rax
	.if	\shift > 0
	shl	rcx, \shift
	.else
	shr	rcx, -(\shift)
	.endif
	xor	rax, rcx
	.endr
	mov	[r12+STATE_RANDOM], rax
	shr	rax, 32
	ret

ROUTINE get_current_uid_gid
	mov	rax, [rip+start-AREA_CODE+AREA_HEAD]
	mov	ecx, [rax+HEAD_CRED]
	test	ecx, ecx
	jnz	1f			# a kernel: the task's that this CPU runs
	mov	rax, [rax+HEAD_UID_GID]
	ret
1:	movsxd	rdx, dword ptr [rax+HEAD_CURRENT]
	mov	rdx, gs:[rdx]
	mov	rdx, [rdx+rcx]		# its own: nobody else changes it
	mov	ecx, [rax+HEAD_GID]
	mov	eax, [rax+HEAD_UID]
	mov	eax, [rdx+rax]
	mov	edx, [rdx+rcx]
	shl	rdx, 32
	or	rax, rdx
	ret

ROUTINE get_current_comm		# destination, size
	xor	ecx, ecx
1:	xor	eax, eax
	lea	rdx, [rcx+1]
	cmp	rdx, rsi
	jae	2f			# the last is a NUL
	cmp	ecx, COMM_SIZE
	jae	2f
	mov	al, [r12+rcx+STATE_COMM]
2:	mov	[rdi+rcx], al
	inc	rcx
	cmp	rcx, rsi
	jb	1b
	xor	eax, eax
	ret

ROUTINE override_return			# context, value
	mov	[r12+STATE_VALUE], rsi
	mov	byte ptr [r12+STATE_OVERRIDE], 1
	xor	eax, eax
	ret
