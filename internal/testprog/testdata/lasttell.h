// What a program tells of its own end by a fault, on its standard error: where it stood, what is on its stack and
// what is mapped. Then it dies as it would have. A death that comes once in thousands of rounds, on a machine of
// somebody else's, has to be understood from this.
#ifndef LASTTELL_H
#define LASTTELL_H

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <ucontext.h>
#include <unistd.h>

static void tell_last(int sig, siginfo_t *info, void *context)
{
	static char text[4096];
	const unsigned long *stack = NULL;
	const unsigned char *code = NULL;
	int maps;
	ssize_t n;

#if defined(__x86_64__)
	const greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	code = (const unsigned char *)r[REG_RIP];
	stack = (const unsigned long *)r[REG_RSP];
	dprintf(2, "ends by signal %d code %d at %p: ip %p sp %p flags %#llx ax %#llx bx %#llx cx %#llx dx %#llx si %#llx di %#llx bp %#llx error %#llx\n",
		sig, info->si_code, info->si_addr, (void *)code, (void *)stack, r[REG_EFL], r[REG_RAX], r[REG_RBX], r[REG_RCX],
		r[REG_RDX], r[REG_RSI], r[REG_RDI], r[REG_RBP], r[REG_ERR]);
#else
	(void)context;
	dprintf(2, "ends by signal %d code %d at %p\n", sig, info->si_code, info->si_addr);
#endif
	maps = open("/proc/self/maps", O_RDONLY);
	while ((n = read(maps, text, sizeof text)) > 0)
		if (write(2, text, n) != n)
			break;
	// From here on another fault ends it.
	for (int i = -8; code && i < 24; i++)
		dprintf(2, "%s%02x", i ? " " : " | ", code[i]);
	for (int i = -4; stack && i < 32; i++)
		dprintf(2, "%s%#lx", i % 4 ? " " : "\n", stack[i]);
	dprintf(2, "\n");
}

static inline void tell_of_faults(void)
{
	static const int faults[] = {SIGSEGV, SIGILL, SIGBUS, SIGFPE};
	struct sigaction sa = {.sa_sigaction = tell_last, .sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER)};

	for (unsigned i = 0; i < sizeof faults / sizeof *faults; i++)
		sigaction(faults[i], &sa, NULL);
}

#endif
