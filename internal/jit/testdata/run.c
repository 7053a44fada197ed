/*
 * Runs compiled programs for the tests: batches of jobs on standard input, each
 * answered on standard output by what became of it.
 *
 * Arguments: the addresses, in hexadecimal, of the code, of the segment with the maps,
 * of the top of the stack, and of the context. First it says, a u64 each, the address of the routine for
 * helper 0, how far it is to the next one's, and the addresses of the native_ functions.
 *
 * A batch: u64 bytes, u64 jobs, then the jobs; each a struct job and what follows
 * it. The answer: the same bytes, the results put in.
 *
 * Built for i386 it runs 32-bit code, and for arm64 and riscv64 that of theirs; jobs are the same.
 *
 * Helpers are replayed: a job has a list of the calls that the interpreter
 * made, their arguments, results and what they wrote; a call that is not the
 * next one of the list is an error. So every helper there will ever be is
 * covered, and nothing of them is written twice.
 *
 * Jobs run in a child, so that one may crash or hang; a new one goes on
 * behind it.
 */
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

/* The stack pointer is at first BELOW_TOP above the programs' R10. */
#if defined __i386__
#define PC(context) (context)->uc_mcontext.gregs[REG_EIP]
enum { CONTEXT_REG = 0, STATE_REG = 5, STACK_REG = 4, BELOW_TOP = 16 };
#elif defined __aarch64__
#define PC(context) (context)->uc_mcontext.pc
enum { CONTEXT_REG = 0, STATE_REG = 28, STACK_REG = 31, BELOW_TOP = 0 };
#elif defined __riscv
#define PC(context) (context)->uc_mcontext.__gregs[REG_PC]
enum { CONTEXT_REG = 10, STATE_REG = 27, STACK_REG = 2, BELOW_TOP = 0 };
#else
#define PC(context) (context)->uc_mcontext.gregs[REG_RIP]
enum { CONTEXT_REG = 7, STATE_REG = 12, STACK_REG = 4, BELOW_TOP = 8 };
#endif

#define PATIENCE 20 /* seconds of CPU that the jobs of one child may take */

enum { CODE_SIZE = 4 << 20, SEGMENT_SIZE = 4 << 20, STACK_SIZE = 64 << 10, CONTEXT_SIZE = 168, STATE_SIZE = 512 };
enum { CALL_DATA = 2048, CALL_DATA_SIZE = 64 }; /* where a call's private data is, behind the context, and how much */
enum { DONE = 1, CRASHED, MISMATCH };

struct job { /* tests know it as job in run_test.go */
	uint64_t size; /* of the whole job */
	uint64_t repeat; /* how often it is run; only the last counts */
	uint64_t entry; /* 0: the code's begin */
	uint64_t emptied; /* the address of a ring that is emptied after each time, or 0 */
	uint64_t code, segment, calls; /* bytes that follow, in this order */

	/* the result */
	uint64_t status;
	uint64_t signal, pc; /* CRASHED; the PC where it is known */
	uint64_t call, id, args[5]; /* MISMATCH: the number of the call, and what was called */
	uint64_t depth; /* bytes of stack at the deepest helper call */
	uint64_t ns; /* that all took */
	uint64_t regs[32]; /* as they are numbered in ModRM, or x0 to x30 and sp, or x0 to x31; in and out */
	uint8_t context[CONTEXT_SIZE], state[STATE_SIZE];
};

struct call {
	uint64_t id, args[5], result;
	uint64_t exact; /* bits of the arguments that must be as they are here */
	uint64_t writes;
};

struct write {
	uint64_t arg; /* relative to this argument; 5: not relative */
	uint64_t off, size; /* followed by the bytes, padded to 8 */
};

static uint8_t *code, *segment, *stack_top, *context, *batch;
static struct job *job; /* that runs */
static uint8_t *next; /* call */

/* What runs a job. The registers go in and out through it. */
uint64_t regs[32], entry, outer_sp, deepest, repeat, *emptied;

#if defined __aarch64__
__asm__(
	".text\n"
	"enter:\n"
	"	stp x29, x30, [sp, #-96]!; stp x19, x20, [sp, #16]; stp x21, x22, [sp, #32]\n"
	"	stp x23, x24, [sp, #48]; stp x25, x26, [sp, #64]; stp x27, x28, [sp, #80]\n"
	"	ldr x0, =outer_sp; mov x1, sp; str x1, [x0]\n"
	"	ldr x30, =regs; ldr x0, [x30, #248]; mov sp, x0\n"
	"	ldp x0, x1, [x30]; ldp x2, x3, [x30, #16]; ldp x4, x5, [x30, #32]; ldp x6, x7, [x30, #48]\n"
	"	ldp x8, x9, [x30, #64]; ldp x10, x11, [x30, #80]; ldp x12, x13, [x30, #96]; ldp x14, x15, [x30, #112]\n"
	"	ldp x16, x17, [x30, #128]; ldp x18, x19, [x30, #144]; ldp x20, x21, [x30, #160]; ldp x22, x23, [x30, #176]\n"
	"	ldp x24, x25, [x30, #192]; ldp x26, x27, [x30, #208]; ldp x28, x29, [x30, #224]\n"
	"1:	ldr x30, =regs; ldr x0, [x30]\n"
	"	ldr x30, =entry; ldr x30, [x30]; blr x30\n"
	"	stp x16, x17, [sp, #-16]!\n"
	"	ldr x30, =repeat; ldr x16, [x30]; sub x16, x16, #1; str x16, [x30]; cbz x16, 2f\n"
	"	ldr x30, =emptied; ldr x30, [x30]; ldr x16, [x30]; str x16, [x30, #64]\n"
	"	ldp x16, x17, [sp], #16; b 1b\n"
	"2:	ldp x16, x17, [sp], #16\n"
	"	ldr x30, =regs\n"
	"	stp x0, x1, [x30]; stp x2, x3, [x30, #16]; stp x4, x5, [x30, #32]; stp x6, x7, [x30, #48]\n"
	"	stp x8, x9, [x30, #64]; stp x10, x11, [x30, #80]; stp x12, x13, [x30, #96]; stp x14, x15, [x30, #112]\n"
	"	stp x16, x17, [x30, #128]; stp x18, x19, [x30, #144]; stp x20, x21, [x30, #160]; stp x22, x23, [x30, #176]\n"
	"	stp x24, x25, [x30, #192]; stp x26, x27, [x30, #208]; stp x28, x29, [x30, #224]\n"
	"	mov x0, sp; str x0, [x30, #248]\n"
	"	ldr x0, =outer_sp; ldr x0, [x0]; mov sp, x0\n"
	"	ldp x19, x20, [sp, #16]; ldp x21, x22, [sp, #32]; ldp x23, x24, [sp, #48]; ldp x25, x26, [sp, #64]\n"
	"	ldp x27, x28, [sp, #80]; ldp x29, x30, [sp], #96\n"
	"	ret\n"
	/* A routine spoils all that it may spoil. */
	"called_out:\n"
	"	ldr x17, =deepest; ldr x9, [x17]; mov x10, sp; cmp x10, x9; b.hs 1f; str x10, [x17]; 1:\n"
	"	stp x29, x30, [sp, #-16]!; mov x5, x16; bl called; ldp x29, x30, [sp], #16\n"
	"	mov x7, x0; ldr x0, =0xbadbadbadbad\n"
	"	mov x1, x0; mov x2, x0; mov x3, x0; mov x4, x0; mov x5, x0; mov x6, x0; mov x8, x0; mov x9, x0; mov x10, x0\n"
	"	mov x11, x0; mov x12, x0; mov x13, x0; mov x14, x0; mov x15, x0; mov x16, x0; mov x17, x0; cmp x0, x7\n"
	"	ret\n"
	"	.ltorg\n"
	"	.balign 16\n"
	"routines:\n"
	"	.set id, 0\n"
	"	.rept 256\n"
	"	.balign 16\n"
	"	mov x16, #id; b called_out\n"
	"	.set id, id+1\n"
	"	.endr\n");
#elif defined __riscv
/*
 * gp and tp have any value while a program runs, and while a helper does: this is linked without gp, and what
 * a helper calls has no variables of its thread. Globals are reached from the PC. x0 stays as it came.
 */
__asm__(
	".text\n"
	".option push\n.option norvc\n.option norelax\n"
	".macro move insn, base\n"
	"	.irp n, 5,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31\n"
	"	\\insn x\\n, 8*\\n(\\base)\n"
	"	.endr\n"
	".endm\n"
	"enter:\n"
	"	addi sp, sp, -128; sd ra, 0(sp); sd gp, 8(sp); sd tp, 16(sp)\n"
	"	sd s0, 24(sp); sd s1, 32(sp); sd s2, 40(sp); sd s3, 48(sp); sd s4, 56(sp); sd s5, 64(sp)\n"
	"	sd s6, 72(sp); sd s7, 80(sp); sd s8, 88(sp); sd s9, 96(sp); sd s10, 104(sp); sd s11, 112(sp)\n"
	"	la t1, outer_sp; sd sp, 0(t1)\n"
	"	la t1, regs; ld sp, 16(t1); ld gp, 24(t1); ld tp, 32(t1); move ld, t1; ld t1, 48(t1)\n"
	"1:	la ra, regs; ld a0, 80(ra)\n"
	"	la ra, entry; ld ra, 0(ra); jalr ra, 0(ra)\n"
	"	addi sp, sp, -16; sd t0, 0(sp)\n"
	"	la ra, repeat; ld t0, 0(ra); addi t0, t0, -1; sd t0, 0(ra); beqz t0, 2f\n"
	"	la ra, emptied; ld ra, 0(ra); ld t0, 0(ra); sd t0, 64(ra)\n"
	"	ld t0, 0(sp); addi sp, sp, 16; j 1b\n"
	"2:	ld t0, 0(sp); addi sp, sp, 16\n"
	"	la ra, regs; sd sp, 16(ra); sd gp, 24(ra); sd tp, 32(ra); sd t1, 48(ra); move sd, ra\n"
	"	la t1, outer_sp; ld sp, 0(t1)\n"
	"	ld s0, 24(sp); ld s1, 32(sp); ld s2, 40(sp); ld s3, 48(sp); ld s4, 56(sp); ld s5, 64(sp)\n"
	"	ld s6, 72(sp); ld s7, 80(sp); ld s8, 88(sp); ld s9, 96(sp); ld s10, 104(sp); ld s11, 112(sp)\n"
	"	ld ra, 0(sp); ld gp, 8(sp); ld tp, 16(sp); addi sp, sp, 128\n"
	"	ret\n"
	/* A routine spoils all that it may spoil. */
	"called_out:\n"
	"	la t0, deepest; ld t1, 0(t0); bgeu sp, t1, 1f; sd sp, 0(t0); 1:\n"
	"	addi sp, sp, -16; sd ra, 0(sp); mv a5, t6; call called; ld ra, 0(sp); addi sp, sp, 16\n"
	"	mv a5, a0; li a0, 0xbadbadbadbad\n"
	"	mv a1, a0; mv a2, a0; mv a3, a0; mv a4, a0; mv a6, a0; mv a7, a0\n"
	"	mv t0, a0; mv t1, a0; mv t2, a0; mv t3, a0; mv t4, a0; mv t5, a0; mv t6, a0\n"
	"	ret\n"
	"	.balign 16\n"
	"routines:\n"
	"	.set id, 0\n"
	"	.rept 256\n"
	"	.balign 16\n"
	"	li t6, id; j called_out\n"
	"	.set id, id+1\n"
	"	.endr\n"
	".option pop\n");
#elif defined __i386__
/* The registers that 32-bit code has are the first eight; only their lower halves are. */
__asm__(
	".text\n"
	"enter:\n"
	"	push %ebx; push %ebp; push %esi; push %edi\n"
	"	mov %esp, outer_sp\n"
	"	mov regs+8, %ecx; mov regs+16, %edx; mov regs+24, %ebx; mov regs+32, %esp; mov regs+40, %ebp\n"
	"	mov regs+48, %esi; mov regs+56, %edi\n"
	"1:	mov regs, %eax\n"
	"	call *entry\n"
	"	decl repeat; jz 2f\n"
	"	mov emptied, %edi; mov (%edi), %ecx; mov %ecx, 64(%edi)\n"
	"	jmp 1b\n"
	"2:	mov %ecx, regs+8; mov %ebx, regs+24; mov %esp, regs+32; mov %ebp, regs+40\n"
	"	mov %esi, regs+48; mov %edi, regs+56; mov %edx, regs+16; mov %eax, regs; mov %edx, regs+4\n"
	"	mov outer_sp, %esp\n"
	"	pop %edi; pop %esi; pop %ebp; pop %ebx\n"
	"	ret\n"
	"called_out:\n"
	"	cmp deepest, %esp; jae 1f; mov %esp, deepest; 1:\n"
	"	push %ebp; push %eax; call called32; add $8, %esp\n"
	"	mov $0xbadbadba, %eax; mov %eax, %ecx; mov %eax, %edx; mov %eax, %ebx; mov %eax, %esi; mov %eax, %edi; cmp %esp, %eax\n"
	"	ret\n"
	"	.balign 16\n"
	"routines:\n"
	"	.set id, 0\n"
	"	.rept 256\n"
	"	.balign 16\n"
	"	mov $id, %eax; jmp called_out\n"
	"	.set id, id+1\n"
	"	.endr\n");
#else
__asm__(
	".text\n"
	"enter:\n"
	"	push %rbx; push %rbp; push %r12; push %r13; push %r14; push %r15\n"
	"	mov %rsp, outer_sp(%rip)\n"
	"	lea regs(%rip), %rax\n"
	"	mov 8(%rax), %rcx; mov 16(%rax), %rdx; mov 24(%rax), %rbx; mov 32(%rax), %rsp; mov 40(%rax), %rbp\n"
	"	mov 48(%rax), %rsi; mov 56(%rax), %rdi; mov 64(%rax), %r8; mov 72(%rax), %r9; mov 80(%rax), %r10\n"
	"	mov 88(%rax), %r11; mov 96(%rax), %r12; mov 104(%rax), %r13; mov 112(%rax), %r14; mov 120(%rax), %r15\n"
	"	mov (%rax), %rax\n"
	"1:	mov regs+56(%rip), %rdi\n"
	"	call *entry(%rip)\n"
	"	decq repeat(%rip); jz 2f\n"
	"	mov emptied(%rip), %rdi; mov (%rdi), %rcx; mov %rcx, 64(%rdi)\n" /* RingTail = RingHead: all is read */
	"	jmp 1b\n"
	"2:\n"
	"	push %rax; lea regs(%rip), %rax\n"
	"	mov %rcx, 8(%rax); mov %rdx, 16(%rax); mov %rbx, 24(%rax); mov %rbp, 40(%rax)\n"
	"	mov %rsi, 48(%rax); mov %rdi, 56(%rax); mov %r8, 64(%rax); mov %r9, 72(%rax); mov %r10, 80(%rax)\n"
	"	mov %r11, 88(%rax); mov %r12, 96(%rax); mov %r13, 104(%rax); mov %r14, 112(%rax); mov %r15, 120(%rax)\n"
	"	pop %rcx; mov %rcx, (%rax); mov %rsp, 32(%rax)\n"
	"	mov outer_sp(%rip), %rsp\n"
	"	pop %r15; pop %r14; pop %r13; pop %r12; pop %rbp; pop %rbx\n"
	"	ret\n"
	/* A routine spoils all that it may spoil. */
	"called_out:\n"
	"	cmp deepest(%rip), %rsp; jae 1f; mov %rsp, deepest(%rip); 1:\n"
	"	call called\n"
	"	mov $0xbadbadbadbad, %rdi; mov %rdi, %rsi; mov %rdi, %rdx; mov %rdi, %rcx; mov %rdi, %r8\n"
	"	mov %rdi, %r9; mov %rdi, %r10; mov %rdi, %r11; cmp %rsp, %rdi\n"
	"	ret\n"
	"	.balign 16\n"
	"routines:\n"
	"	.set id, 0\n"
	"	.rept 256\n"
	"	.balign 16\n"
	"	mov $id, %r9d; jmp called_out\n"
	"	.set id, id+1\n"
	"	.endr\n");
#endif
void enter(void);
extern char routines[];

static void die(const char *what) { perror(what); exit(1); }

/* called is a helper call: the arguments, and the helper's number. */
__attribute__((used)) uint64_t called(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t id)
{
	uint64_t args[5] = { a, b, c, d, e };
	struct call *want = (struct call *)next;
	int same = next < (uint8_t *)job + job->size && want->id == id;
	for (int i = 0; same && i < 5; i++)
		if (want->exact >> i & 1 && want->args[i] != args[i]) same = 0;
	if (!same) {
		job->status = MISMATCH;
		job->id = id;
		memcpy(job->args, args, sizeof args);
		_exit(0);
	}
	job->call++;
	next += sizeof *want;
	for (uint64_t i = 0; i < want->writes; i++) {
		struct write *w = (struct write *)next;
		memcpy((void *)(uintptr_t)((w->arg < 5 ? args[w->arg] : 0) + w->off), w + 1, w->size);
		next += sizeof *w + ((w->size + 7) & ~7ull);
	}
	return want->result;
}

#ifdef __i386__
enum { STATE_REGS = 256 };

/* called32 has the arguments in the state, and puts the result there. */
__attribute__((used)) void called32(uint32_t id, uint8_t *state)
{
	uint64_t *r = (uint64_t *)(state + STATE_REGS);
	r[0] = called(r[1], r[2], r[3], r[4], r[5], id);
	for (int i = 1; i <= 5; i++) r[i] = 0xbadbadbadbad;
}
#endif

static void crashed(int sig, siginfo_t *si, void *ucontext)
{
	(void)si;
	job->status = CRASHED;
	job->signal = sig;
	job->pc = PC((ucontext_t *)ucontext);
	_exit(0);
}

#ifdef __x86_64__
/*
 * What a person would write in C instead of a program, for the benchmarks: a
 * count in a per-thread array, a record of 32 bytes in a per-thread ring, a count in a
 * hash by an argument. They know what a compiled program knows: addresses and sizes.
 */
#define THREAD_STATE ({ uint8_t *s; __asm__("mov %%r12, %0" : "=r"(s)); s; })
#define SLOT(state) (*(uint32_t *)((state) + 8))

static void native_empty(uint64_t *context) { (void)context; }

static void native_count(uint64_t *context)
{
	(void)context;
	uint64_t *values = (uint64_t *)(0x123456780000 + 128 + SLOT(THREAD_STATE) * 64);
	++values[3];
}

static void native_record(uint64_t *context)
{
	uint8_t *state = THREAD_STATE;
	uint64_t *ring = (uint64_t *)(0x123456780000 + 128 + SLOT(state) * (128ul + 65536));
	uint64_t head = ring[0], at = head % 65536, need = 40, fill = 0;
	if (65536 - at < need) fill = 65536 - at;
	if (head + fill + need - ring[8] > 65536) { ring[1]++; return; }
	if (fill) ring[16 + at / 8] = (fill - 8) | 1u << 30, at = 0;
	uint64_t *record = ring + 16 + at / 8;
	record[0] = 1u << 31 | 32;
	ring[0] = head + fill + need;
	record[1] = __builtin_ia32_rdtsc();
	record[2] = *(uint64_t *)state;
	record[3] = context[14];
	record[4] = context[13];
	__atomic_store_n((uint32_t *)record, 32, __ATOMIC_RELEASE);
}

static uint64_t native_hash(uint64_t *context)
{
	uint8_t *map = (uint8_t *)0x123456780000;
	uint64_t key = context[14], h = key * 0x9e3779b97f4a7c15, home = (h >> 32) * 256 >> 32;
	uint32_t tag = (uint32_t)(h ^ h >> 32) | 2, *tags = (uint32_t *)(map + 128 + home * 64 + 8);
	for (int i = 0; i < 8; i++)
		if (tags[i] == tag && ((uint64_t *)(map + 16512))[home * 8 + i] == key) {
			((uint64_t *)(map + 32896))[home * 8 + i]++;
			return 1;
		}
	return 0; /* the other bucket */
}

#define NATIVES (uintptr_t)native_empty, (uintptr_t)native_count, (uintptr_t)native_record, (uintptr_t)native_hash
#else
#define NATIVES 0, 0, 0, 0
#endif

static void run(void)
{
	static uint64_t no_ring[16];
	uint8_t *bytes = (uint8_t *)(job + 1);
	memcpy(code, bytes, job->code);
	__builtin___clear_cache((char *)code, (char *)code + job->code);
	memcpy(segment, bytes + job->code, job->segment);
	next = bytes + job->code + job->segment;
	memcpy(regs, job->regs, sizeof regs);
	memcpy(context, job->context, CONTEXT_SIZE);
	memset(context + CALL_DATA, 0, CALL_DATA_SIZE);
	regs[CONTEXT_REG] = (uintptr_t)context;
	regs[STATE_REG] = (uintptr_t)job->state;
	deepest = (uintptr_t)stack_top;
	regs[STACK_REG] = (uintptr_t)stack_top + BELOW_TOP; /* x86's call puts its return address there */
	entry = job->entry ? job->entry : (uintptr_t)code;
	repeat = job->repeat;
	emptied = job->emptied ? (uint64_t *)(uintptr_t)job->emptied : no_ring;
	struct timespec begin, end;
	clock_gettime(CLOCK_MONOTONIC, &begin);
	enter();
	clock_gettime(CLOCK_MONOTONIC, &end);
	job->ns = (end.tv_sec - begin.tv_sec) * 1000000000 + end.tv_nsec - begin.tv_nsec;
	memcpy(job->regs, regs, sizeof regs);
	memcpy(bytes + job->code, segment, job->segment);
	job->regs[STATE_REG] -= (uintptr_t)job->state;
	job->regs[STACK_REG] -= (uintptr_t)stack_top;
	job->depth = (uintptr_t)stack_top - deepest;
	if (job->status == 0) job->status = next == (uint8_t *)job + job->size ? DONE : MISMATCH;
}

static void child(uint64_t jobs)
{
	static char alternative[1 << 16];
	stack_t ss = { .ss_sp = alternative, .ss_size = sizeof alternative };
	struct sigaction sa = { .sa_sigaction = crashed, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	int signals[] = { SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP };
	struct rlimit patience = { PATIENCE, PATIENCE };
	setrlimit(RLIMIT_CPU, &patience);
	cpu_set_t cpu; /* one only, because of its time-stamp counter */
	CPU_ZERO(&cpu);
	CPU_SET(sched_getcpu(), &cpu);
	sched_setaffinity(0, sizeof cpu, &cpu);
	sigaltstack(&ss, 0);
	for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++) sigaction(signals[i], &sa, 0);
	for (job = (struct job *)batch; jobs; jobs--, job = (struct job *)((uint8_t *)job + job->size)) {
		if (job->status) continue;
		run();
	}
	_exit(0);
}

static int whole(void *p, size_t n) { return fread(p, 1, n, stdin) == n; }

static uint8_t *map(uint64_t at, size_t size, int prot)
{
	void *p = mmap((void *)(uintptr_t)at, size, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
	if (p != (void *)(uintptr_t)at) die("mmap");
	return p;
}

int main(int argc, char **argv)
{
	uint64_t said[6] = { (uintptr_t)routines, 16, NATIVES }, head[2];
	if (argc != 5) return 2;
	code = map(strtoull(argv[1], 0, 16), CODE_SIZE, PROT_READ | PROT_WRITE | PROT_EXEC);
	segment = map(strtoull(argv[2], 0, 16), SEGMENT_SIZE, PROT_READ | PROT_WRITE);
	stack_top = (uint8_t *)(uintptr_t)strtoull(argv[3], 0, 16);
	map(strtoull(argv[3], 0, 16) - STACK_SIZE, 2 * STACK_SIZE, PROT_READ | PROT_WRITE);
	context = map(strtoull(argv[4], 0, 16), 4096, PROT_READ | PROT_WRITE);
	fwrite(said, sizeof said, 1, stdout);
	fflush(stdout);
	while (whole(head, sizeof head)) {
		batch = mmap(0, head[0], PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		if (batch == MAP_FAILED) die("mmap");
		if (!whole(batch, head[0])) die("read");
		for (;;) {
			int left = 0, status;
			job = (struct job *)batch;
			for (uint64_t i = 0; i < head[1]; i++, job = (struct job *)((uint8_t *)job + job->size)) left += !job->status;
			if (!left) break;
			pid_t pid = fork();
			if (pid < 0) die("fork");
			if (pid == 0) child(head[1]);
			if (waitpid(pid, &status, 0) != pid) die("waitpid");
			if (WIFSIGNALED(status)) { /* not even a handler could run */
				job = (struct job *)batch;
				while (job->status) job = (struct job *)((uint8_t *)job + job->size);
				job->status = CRASHED;
				job->signal = WTERMSIG(status);
			}
		}
		if (fwrite(batch, 1, head[0], stdout) != head[0]) die("write");
		fflush(stdout);
		munmap(batch, head[0]);
	}
}
