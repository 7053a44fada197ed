# Time, CPUs, random numbers, credentials, names, and what a probed function returns.

# ktime_get_ns and ktime_get_boot_ns: a product of 128 bits, shifted. Both leave the segment in a
# register, r8 or esi; on i386 the time is edx:eax.
#ifdef __i386__
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
#else
ROUTINE ktime_get_ns
	SEGMENT	r8
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
#endif

# The kernel leaves the CPU's number in the limit of a segment, for the vDSO.
ROUTINE get_smp_processor_id
	mov	ecx, CPU_SEGMENT
	xor	eax, eax
	lsl	eax, ecx
	and	eax, CPU_MASK
	ANSWER

# The state has 8 bytes, which are shifted as one on both machines.
ROUTINE get_prandom_u32
#ifdef __i386__
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
#else
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
#endif
	ANSWER

ROUTINE get_current_uid_gid
#ifdef __i386__
	SEGMENT	ecx
	mov	eax, [ecx+HEAD_UID_GID]
	mov	edx, [ecx+HEAD_UID_GID+4]
	jmp	answer8
#else
	SEGMENT	rax
	mov	ecx, [rax+HEAD_CRED]
	test	ecx, ecx
	jnz	1f			# a kernel: the task's that this CPU runs
	mov	rax, [rax+HEAD_UID_GID]
	ret
1:	movsxd	rdx, dword ptr [rax+HEAD_CURRENT]
	mov	rdx, gs:[rdx]
	mov	rdx, [rdx+rcx]		# its own: no other task changes it
	mov	ecx, [rax+HEAD_GID]
	mov	eax, [rax+HEAD_UID]
	mov	eax, [rdx+rax]
	mov	edx, [rdx+rcx]
	shl	rdx, 32
	or	rax, rdx
	ret
#endif

ROUTINE get_current_comm		# destination, size
	ARG	DI, 1
	ARG	SI, 2
	xor	ecx, ecx
1:	xor	eax, eax
	lea	DX, [CX+1]
	cmp	DX, SI
	jae	2f			# the last is a NUL
	cmp	ecx, COMM_SIZE
	jae	2f
	mov	al, [STATE+CX+STATE_COMM]
2:	mov	[DI+CX], al
	inc	CX
	cmp	CX, SI
	jb	1b
	xor	eax, eax
	ANSWER

#ifdef __i386__
#define NEW eax				/* the value */
#else
#define NEW rsi
#endif

ROUTINE override_return			# context, value
	ARG	NEW, 2
	mov	[STATE+STATE_VALUE], NEW
	mov	byte ptr [STATE+STATE_OVERRIDE], 1
	xor	eax, eax
	ANSWER
