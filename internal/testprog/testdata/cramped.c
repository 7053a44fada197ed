// Functions that need nothing of their stack, called with little of it left: each of the PLACES cramped_0, cramped_1 and so on with
// WORD bytes more than the one before, above a page that nobody may touch. "signals" has a signal's handler call cramped_in_signal,
// on stacks of the least size on which the kernel delivers any, and some larger ones. "start" has threads do all that at the
// same time, each on a stack of its own, until "join". "exec" executes the program anew.
#define _GNU_SOURCE
#include "prog.h"
#include <pthread.h>
#include <signal.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>

#define PLACES 96

#ifdef __x86_64__
#define WORD "8"
__asm__(".altmacro\n"
	".macro ONE n\n"
	".p2align 4\n.globl cramped_\\n\n.type cramped_\\n, @function\n"
	"cramped_\\n: leaq 0x12345678(%rdi,%rdi), %rax\n ret\n.size cramped_\\n, .-cramped_\\n\n"
	".endm\n"
	// long with_stack(long (*f)(long), long x, void *sp)
	".globl with_stack\n.type with_stack, @function\n"
	"with_stack: pushq %rbp\n movq %rsp, %rbp\n movq %rdi, %rax\n movq %rsi, %rdi\n movq %rdx, %rsp\n"
	"call *%rax\n movq %rbp, %rsp\n popq %rbp\n ret\n.size with_stack, .-with_stack\n");
#else
#define WORD "4"
__asm__(".altmacro\n"
	".macro ONE n\n"
	".p2align 4\n.globl cramped_\\n\n.type cramped_\\n, @function\n"
	"cramped_\\n: leal 0x12345678(%ecx,%ecx), %eax\n ret\n.size cramped_\\n, .-cramped_\\n\n"
	".endm\n"
	".globl with_stack\n.type with_stack, @function\n"
	"with_stack: pushl %ebp\n movl %esp, %ebp\n movl 8(%ebp), %eax\n movl 12(%ebp), %ecx\n movl 16(%ebp), %esp\n"
	"call *%eax\n movl %ebp, %esp\n popl %ebp\n ret\n.size with_stack, .-with_stack\n");
#endif

__asm__(".macro ADDRESS n\n .dc.a cramped_\\n\n.endm\n"
	".text\n.set i, 0\n.rept 96\n ONE %i\n.set i, i+1\n.endr\n ONE in_signal\n"
	".section .data.rel.ro, \"aw\", @progbits\n.p2align 3\ncramped_table:\n.set i, 0\n.rept 96\n ADDRESS %i\n.set i, i+1\n.endr\n"
	".text\n");

typedef long leaf(long);
extern leaf *const cramped_table[PLACES] __attribute__((visibility("hidden")));
leaf cramped_in_signal;
long with_stack(leaf *f, long x, void *sp);

static __thread char *end; // of a stack
static volatile long from_signal;

static long expected(long x)
{
	return (long)(2 * (unsigned long)x + 0x12345678);
}

// The handler's own frame is far above: a signal's takes hundreds of bytes at least.
static void handler(int sig)
{
	long left;

	for (left = 64; left >= 0; left--)
		CHECK(with_stack(cramped_in_signal, sig, end + (left + 1) * sizeof(long)) == expected(sig));
	from_signal = expected(sig);
}

// one calls a function with so many words left.
static void one(int i)
{
	CHECK(with_stack(cramped_table[i], i * 3, end + (i + 1) * sizeof(long)) == expected(i * 3));
}

static void signals(void)
{
	long least = getauxval(AT_MINSIGSTKSZ) + 1024, size; // the handler has a frame, too, above the words that are left
	struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	stack_t stack = {.ss_sp = end, .ss_flags = 0};

	sigaction(SIGUSR1, &action, NULL);
	for (size = least > 2048 ? least : 2048; size < 16384; size += size < 4096 ? 16 : 256) {
		stack.ss_size = size;
		if (sigaltstack(&stack, NULL))
			continue; // less than this kernel's least
		from_signal = 0;
		raise(SIGUSR1);
		CHECK(from_signal == expected(SIGUSR1));
	}
	stack.ss_flags = SS_DISABLE;
	sigaltstack(&stack, NULL);
}

static char *new_stack(void)
{
	long page = sysconf(_SC_PAGESIZE);
	char *at = mmap(NULL, 8 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED || mprotect(at, page, PROT_NONE))
		exit(1);
	return at + page;
}

static void rounds(long n)
{
	long i;

	for (i = 0; i < n * PLACES; i++)
		one(i % PLACES);
}

static volatile int over;

static void *thread(void *unused)
{
	end = new_stack();
	while (!over)
		rounds(1);
	return unused;
}

int main(int argc, char **argv)
{
	long n = 1, i;
	pthread_t threads[4];

	end = new_stack();
	while (next_round(&n)) {
		if (!strcmp(command, "signals")) {
			signals();
		} else if (!strcmp(command, "exec")) {
			execv("/proc/self/exe", argv);
		} else if (!strcmp(command, "start")) {
			over = 0;
			for (i = 0; i < 4; i++)
				pthread_create(&threads[i], NULL, thread, NULL);
		} else if (!strcmp(command, "join")) {
			over = 1;
			for (i = 0; i < 4; i++)
				pthread_join(threads[i], NULL);
		} else {
			rounds(n);
		}
		printf("%d wrong\n", failures);
	}
	return failures > 0;
}
