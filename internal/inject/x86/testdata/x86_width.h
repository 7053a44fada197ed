# The names and macros that hide a machine's width. A register's name is that of its whole, 8 or 4
# bytes; the name of its lower 4 bytes, eax, is the same on both.
#ifdef __i386__
#define AX eax
#define BX ebx
#define CX ecx
#define DX edx
#define SI esi
#define DI edi
#define BP ebp
#define SP esp
#define WORD dword ptr
#define WORD_SIZE 4
#define HASH_SHIFT HASH_SHIFT32
#define TLS gs				/* the segment of a thread's own memory */
#define SYSTEM_CALL int 0x80
#define STATE ebp			/* the thread's state, where programs run */
#else
#define AX rax
#define BX rbx
#define CX rcx
#define DX rdx
#define SI rsi
#define DI rdi
#define BP rbp
#define SP rsp
#define WORD qword ptr
#define WORD_SIZE 8
#define HASH_SHIFT HASH_SHIFT64
#define TLS fs
#define SYSTEM_CALL syscall		/* changes rcx and r11 */
#define STATE r12
#endif

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

#ifdef __i386__
	# HERE loads the address of the area's code, since no operand can name it.
	.macro HERE reg
	call	98f
98:	pop	\reg
	lea	\reg, [\reg+start-98b]
	.endm
#endif

	# SEGMENT loads the address of the segment.
	.macro SEGMENT reg
#ifdef __i386__
	HERE	\reg
	mov	\reg, [\reg-AREA_CODE+AREA_HEAD]
#else
	mov	\reg, [rip+start-AREA_CODE+AREA_HEAD]
#endif
	.endm

	# COUNT adds one to a counter of 8 bytes.
	.macro COUNT at:vararg
#ifdef __i386__
	add	dword ptr [\at], 1
	adc	dword ptr [\at+4], 0
#else
	inc	qword ptr [\at]
#endif
	.endm

	# FILL8 makes 8 bytes zeros or ones: by is 0 or -1.
	.macro FILL8 by, at:vararg
	mov	WORD [\at], \by
#ifdef __i386__
	mov	dword ptr [\at+4], \by
#endif
	.endm
