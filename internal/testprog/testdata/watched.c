// Data that several functions and threads read and write.
//
//	watched [T]
//
// T threads (4) are there from the start. A round's line says what happens:
//
//	N             each of them calls its writer, of writer0 to writer3, N times, and
//	              N/10+1 new ones, one after the other, call newborn once
//	direct N      direct_write, N times
//	reads N       reader, N times
//	repeat N      direct_repeat, N times: rep movsb over block
//	calls N       caller, N times
//	kernel        the kernel writes counter: read(2) from a pipe
//	fork N        a child calls direct_write N times
//	vfork         a child of vfork does, once other is not 0, and then its parent
//	exec          the program executes itself
//	later N       memory is mapped at 0x10000000, and written N times
//	unowned       the thread is given the signal of an access to which the processor does not own up
//
// It prints "counter SUM", or what else the round found.
#define _GNU_SOURCE
#include "prog.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

volatile long counter __attribute__((aligned(8)));
volatile long other;
char block[64] __attribute__((aligned(64)));
static char pattern[64];

PROBED void writer0(void) { __atomic_fetch_add(&counter, 1, __ATOMIC_RELAXED); BARRIER(); }
PROBED void writer1(void) { __atomic_fetch_add(&counter, 2, __ATOMIC_RELAXED); BARRIER(); }
PROBED void writer2(void) { __atomic_fetch_add(&counter, 3, __ATOMIC_RELAXED); BARRIER(); }
PROBED void writer3(void) { __atomic_fetch_add(&counter, 4, __ATOMIC_RELAXED); BARRIER(); }
PROBED void *newborn(void *p) { __atomic_fetch_add(&counter, 5, __ATOMIC_RELAXED); BARRIER(); return p; }
PROBED long reader(void) { return counter; }
PROBED void leaf(void) { BARRIER(); }

// The first instruction is the one that accesses.
void direct_write(void);
void direct_repeat(void *to, const void *from, long unused, long n);
void caller(void);
#ifdef __aarch64__
__asm__(".text\n"
	".globl	direct_write\n"
	".type	direct_write, @function\n"
	"direct_write:\n"
	"	adrp x16, counter\n"
	"	add x16, x16, :lo12:counter\n"
	"	ldr x17, [x16]\n"
	"	add x17, x17, #1\n"
	"	str x17, [x16]\n"
	"	ret\n"
	".size	direct_write, . - direct_write\n"
	".globl	direct_repeat\n"
	".type	direct_repeat, @function\n"
	"direct_repeat:\n"
	"1:	ldrb w16, [x1], #1\n"
	"	strb w16, [x0], #1\n"
	"	subs x3, x3, #1\n"
	"	b.ne 1b\n"
	"	ret\n"
	".size	direct_repeat, . - direct_repeat\n"
	".globl	caller\n"
	".type	caller, @function\n"
	"caller:\n"
	"	stp x29, x30, [sp, #-16]!\n"
	"	bl leaf\n"
	"	ldp x29, x30, [sp], #16\n"
	"	ret\n"
	".size	caller, . - caller\n");
#else
__asm__(".text\n"
	".globl	direct_write\n"
	".type	direct_write, @function\n"
	"direct_write:\n"
	"	lock addq $1, counter(%rip)\n"
	"	ret\n"
	".size	direct_write, . - direct_write\n"
	".globl	direct_repeat\n"
	".type	direct_repeat, @function\n"
	"direct_repeat:\n"
	"	rep movsb\n"
	"	ret\n"
	".size	direct_repeat, . - direct_repeat\n"
	".globl	caller\n"
	".type	caller, @function\n"
	"caller:\n"
	"	call leaf\n"
	"	ret\n"
	".size	caller, . - caller\n");
#endif

static void (*const writers[])(void) = { writer0, writer1, writer2, writer3 };
static pthread_barrier_t begin, end;
static long rounds;

static void *work(void *i)
{
	for (;;) {
		pthread_barrier_wait(&begin);
		for (long n = 0; n < rounds; n++)
			writers[(long)i % 4]();
		pthread_barrier_wait(&end);
	}
	return NULL;
}

static void together(void)
{
	pthread_barrier_wait(&begin);
	for (long n = 0; n < rounds / 10 + 1; n++) {
		pthread_t t;

		CHECK(!pthread_create(&t, NULL, newborn, NULL) && !pthread_join(t, NULL));
	}
	pthread_barrier_wait(&end);
}

static void times(void (*f)(void), long n)
{
	for (long i = 0; i < n; i++)
		f();
}

static void repeat(long n)
{
	for (long i = 0; i < n; i++) {
		memset(pattern, (int)('a' + i % 26), sizeof pattern);
		direct_repeat(block, pattern, 0, sizeof block);
		CHECK(!memcmp(block, pattern, sizeof block));
	}
}

static void by_kernel(void)
{
	long v = counter + 1;
	int p[2];

	CHECK(!pipe(p) && write(p[1], &v, sizeof v) == sizeof v);
	CHECK(read(p[0], (void *)&counter, sizeof counter) == sizeof counter);
	close(p[0]);
	close(p[1]);
}

static void later(long n)
{
	volatile char *page = mmap((void *)0x10000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	CHECK(page == (void *)0x10000000);
	for (long i = 0; i < n; i++)
		page[8] = (char)i;
	CHECK(!munmap((void *)page, 4096));
}

static void unowned(void)
{
	siginfo_t info = { .si_signo = SIGTRAP, .si_code = TRAP_BRKPT };

	CHECK(!syscall(SYS_rt_tgsigqueueinfo, getpid(), gettid(), SIGTRAP, &info));
}

static void child(pid_t pid)
{
	int status;

	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && status == 7 << 8);
}

int main(int argc, char **argv)
{
	long threads = arg(argc, argv, 1, 4), n, sum;
	pthread_t t;
	pid_t pid;

	CHECK(!pthread_barrier_init(&begin, NULL, (unsigned)threads + 1) &&
	      !pthread_barrier_init(&end, NULL, (unsigned)threads + 1));
	for (long i = 0; i < threads; i++)
		CHECK(!pthread_create(&t, NULL, work, (void *)i));
	while (next_round(&rounds)) {
		if (sscanf(command, "direct %ld", &n) == 1) {
			times(direct_write, n);
		} else if (sscanf(command, "reads %ld", &n) == 1) {
			for (sum = 0; n-- > 0;)
				sum |= reader();
			CHECK(sum == counter);
		} else if (sscanf(command, "repeat %ld", &n) == 1) {
			repeat(n);
		} else if (sscanf(command, "calls %ld", &n) == 1) {
			times(caller, n);
		} else if (sscanf(command, "later %ld", &n) == 1) {
			later(n);
		} else if (!strcmp(command, "kernel")) {
			by_kernel();
		} else if (sscanf(command, "fork %ld", &n) == 1) {
			pid = fork();
			if (!pid) {
				times(direct_write, n);
				_exit(7);
			}
			child(pid);
		} else if (!strcmp(command, "vfork")) {
			pid = vfork();
			if (!pid) {
				while (!other)
					usleep(1000);
				direct_write();
				_exit(7);
			}
			direct_write();
			child(pid);
			other = 0;
		} else if (!strcmp(command, "unowned")) {
			unowned();
		} else if (!strcmp(command, "exec")) {
			execv("/proc/self/exe", argv);
			return 1;
		} else {
			together();
		}
		printf("counter %ld\n", counter);
	}
	return failures != 0;
}
