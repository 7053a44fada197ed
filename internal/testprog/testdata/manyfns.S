// MANY functions, 10,000 or as -DMANY=M says, many_0 to many_9999, 16 bytes apart, for batches. Each adds
// its number to its argument. many_table holds their addresses.
#ifndef MANY
#define MANY 10000
#endif
	.altmacro

	.macro	ONE n
	.p2align 4
	.globl	many_\n
	.type	many_\n, @function
many_\n:
	leaq	\n(%rdi), %rax
	ret
	.size	many_\n, .-many_\n
	.endm

	.macro	ADDRESS n
	.quad	many_\n
	.endm

	.text
	.set	i, 0
	.rept	MANY
	ONE	%i
	.set	i, i+1
	.endr

	.section .data.rel.ro, "aw", @progbits
	.p2align 3
	.globl	many_table
	.type	many_table, @object
many_table:
	.set	i, 0
	.rept	MANY
	ADDRESS	%i
	.set	i, i+1
	.endr
	.size	many_table, .-many_table

	.section .note.GNU-stack, "", @progbits
