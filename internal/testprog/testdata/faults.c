// Functions that fault, and a handler that looks at everything the kernel tells
// it. A round with count N has each fault N times in each of three ways: the
// handler jumps away (siglongjmp), skips the instruction, or mends the page and
// has it run again. It prints "NAME WAY: signal code address instruction stack",
// where address counts from the page, instruction from the function's place of
// fault (so it is 0, or what is said in faults.S), stack from the function's.
#define _GNU_SOURCE
#include "prog.h"
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

typedef uint64_t fn(void *p);

extern uint64_t fault_sp, fault_hole;

enum { CALLED = -1 }; // skipping is returning: the fault is not in the function
enum kind { CPU, PAGE };

// length is the faulting instruction's; kind says whether a page is the cause.
#define FAULTS(X)                                                                   \
	X(fault_read, 4, PAGE) X(fault_write, 6, PAGE) X(fault_movs, 2, PAGE)       \
	X(fault_sse, 4, CPU) X(fault_canon, 3, CPU) X(fault_div, 2, CPU)            \
	X(fault_ud2, 2, CPU) X(fault_hlt, 1, CPU) X(fault_int3, 0, CPU)             \
	X(fault_call, CALLED, CPU) X(fault_riprel, 3, PAGE)

#define DECLARE(f, length, kind) fn f; extern char f##_at[];
FAULTS(DECLARE)

#define ROW(f, length, kind) {#f, f, f##_at, length, kind},
static const struct fault {
	const char *name;
	fn *f;
	char *at;
	int length;
	enum kind kind;
} table[] = {FAULTS(ROW)};

enum way { JUMP, SKIP, MEND };
static const char *const ways[] = {"jump", "skip", "mend"};

static const struct fault *volatile now;
static volatile enum way way;
static volatile int seen;
static sigjmp_buf out;
static char *page;
static long page_size;
static char said[200];

static long relative(char *addr, char *at)
{
	if (addr >= page && addr < page + page_size)
		return addr - page;
	if (addr >= at - 64 && addr < at + 64)
		return addr - at; // SIGILL, SIGFPE: the instruction's own
	return addr ? -1 : 0;
}

static void handler(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	greg_t *r = uc->uc_mcontext.gregs;
	char *rip = (char *)r[REG_RIP];
	char *tells = info->si_addr;

	// An int3's siginfo has no address.
	if (sig == SIGTRAP)
		tells = NULL;
	seen++;
	snprintf(said, sizeof said, "signal %d code %d addr %ld ip %ld sp %ld rcx %lld tf %d", sig,
		 info->si_code, relative(tells, now->at),
		 now->length == CALLED ? (long)(rip - page) : (long)(rip - now->at),
		 (long)((uint64_t)r[REG_RSP] - fault_sp), now->f == fault_movs ? (long long)r[REG_RCX] : 0,
		 !!(r[REG_EFL] & 0x100));
	switch (way) {
	case JUMP:
		siglongjmp(out, 1);
	case SKIP:
		if (now->length == CALLED) {
			r[REG_RIP] = *(greg_t *)r[REG_RSP];
			r[REG_RSP] += 8;
		} else {
			r[REG_RIP] += now->length;
		}
		break;
	case MEND:
		mprotect(page, (size_t)page_size, PROT_READ | PROT_WRITE);
		break;
	}
}

int main(void)
{
	static const int sigs[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	static char stack[65536];
	stack_t alt = {.ss_sp = stack, .ss_size = sizeof stack};
	long n = 1;

	page_size = sysconf(_SC_PAGESIZE);
	page = mmap(NULL, (size_t)page_size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(page != MAP_FAILED);
	fault_hole = (uint64_t)page;
	CHECK(!sigaltstack(&alt, NULL));
	for (unsigned i = 0; i < sizeof sigs / sizeof *sigs; i++)
		CHECK(!sigaction(sigs[i], &sa, NULL));

	while (next_round(&n)) {
		for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
			for (int w = JUMP; w <= MEND; w++) {
				uint64_t got = 0;

				now = &table[i];
				way = (enum way)w;
				if (w == MEND && now->kind != PAGE)
					continue;
				seen = 0;
				for (volatile long k = 0; k < n; k++) {
					mprotect(page, (size_t)page_size, PROT_NONE);
					if (!sigsetjmp(out, 1))
						got = now->f(page);
				}
				CHECK(seen == n);
				CHECK(w == JUMP || (got & 0xffff) == 0x1234 || now->f == fault_div);
				printf("%s %s: %s\n", now->name, ways[w], said);
			}
		}
	}
	return failures != 0;
}
