// What the programs share: how they are driven. A program prints "ready" and
// then, for each line on stdin, runs one round and prints its results and
// "done". A number on the line is the round's count. End of input ends the
// program: status 0, or 1 if it found one of its own results wrong.
#ifndef PROG_H
#define PROG_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// A probed function must exist once, under its name, and be called.
#define PROBED __attribute__((noinline, noclone, used, visibility("default")))

// Keeps a call where the source has it: no tail call, no merging of equal ones.
#define BARRIER() __asm__ volatile("" ::: "memory")

static int failures __attribute__((unused));
static char command[256]; // the round's line, without its end

#define CHECK(cond)                                                         \
	do {                                                                \
		if (!(cond)) {                                              \
			printf("FAIL %s:%d: %s\n", __func__, __LINE__, #cond); \
			failures++;                                         \
		}                                                           \
	} while (0)

static inline int next_round(long *n)
{
	static int running;

	puts(running++ ? "done" : "ready");
	fflush(stdout);
	while (!fgets(command, sizeof command, stdin)) {
		if (!ferror(stdin) || errno != EINTR)
			return 0;
		clearerr(stdin); // stopped in the read, by an emulator that does not restart it
	}
	command[strcspn(command, "\n")] = 0;
	if (*command >= '0' && *command <= '9')
		*n = atol(command);
	return 1;
}

static inline long arg(int argc, char **argv, int i, long otherwise)
{
	return argc > i ? atol(argv[i]) : otherwise;
}

static inline unsigned long long fold(unsigned long long sum, unsigned long long v)
{
	return (sum ^ v) * 0x9e3779b97f4a7c15ULL + (sum >> 29);
}

#ifdef GUARDED
// A beginning with a landing pad, which the C library's has not everywhere: for programs of arm64 that are linked to be
// guarded (-z force-bti), without start files.
__asm__(".globl _start\n_start:\thint #38\n" // bti jc
	"mov x29, #0\nmov x30, #0\nmov x5, x0\nldr x1, [sp]\nadd x2, sp, #8\nmov x6, sp\n"
	"adrp x0, main\nadd x0, x0, :lo12:main\nmov x3, #0\nmov x4, #0\nbl __libc_start_main\nbrk #1\n");
#endif

#endif
