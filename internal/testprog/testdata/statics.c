// Static probes (USDT), with notes written here: in a register, in memory, constant, of each
// size, with and without a semaphore. A round with count N passes each N times and prints
// "statics N SUM", how often it saw the semaphore up, "wanted TIMES", and "semaphore VALUE".
#include "prog.h"

#if __SIZEOF_POINTER__ == 8
#define WORD ".8byte "
#define WORD_SIZE "8"
#else
#define WORD ".4byte "
#define WORD_SIZE "4"
#endif

#define STATIC_PROBE(name, semaphore, args, ...)                                 \
	__asm__ volatile("990: nop\n"                                            \
			 ".pushsection .note.stapsdt, \"\", \"note\"\n"          \
			 ".balign 4\n"                                           \
			 ".4byte 992f - 991f, 994f - 993f, 3\n"                  \
			 "991: .asciz \"stapsdt\"\n"                             \
			 "992: .balign 4\n"                                      \
			 "993: " WORD "990b\n" WORD "0\n" WORD semaphore "\n"    \
			 ".asciz \"statics\"\n.asciz \"" name "\"\n"             \
			 ".asciz \"" args "\"\n"                                 \
			 "994: .balign 4\n"                                      \
			 ".popsection\n" ::__VA_ARGS__)

__attribute__((section(".probes"), used, visibility("default"))) volatile unsigned short statics_guarded_semaphore;

PROBED unsigned long plain(unsigned long a)
{
	volatile short narrow = (short)-(long)(a & 1000);

	STATIC_PROBE("plain", "0", WORD_SIZE "@%0 -2@%1 -4@%2 1@%b3", "r"(a), "m"(narrow), "i"(-9), "q"((char)a));
	return a * 3 + (unsigned short)narrow;
}

PROBED void guarded(unsigned int a, const char *text)
{
	STATIC_PROBE("guarded", "statics_guarded_semaphore", "4@%k0 " WORD_SIZE "@%1", "r"(a), "r"(text));
}

#ifdef INDEXED // -DINDEXED: in memory, by a base and an index
static const int table[9] = {0, -1, -2, -3, -4, -5, -6, -7, -8};

PROBED void indexed(const int *at, unsigned long i)
{
	STATIC_PROBE("indexed", "0", "-4@4(%0,%1,4)", "r"(at), "r"(i));
}
#endif

#ifdef TWICE // -DTWICE: one at two places, as a function has it that is inlined
static inline __attribute__((always_inline)) void inlined(unsigned long a)
{
	STATIC_PROBE("inlined", "0", WORD_SIZE "@%0", "r"(a));
}

PROBED void once(unsigned long a) { inlined(a); }
PROBED void twice(unsigned long a) { inlined(a + 1); }
#endif

#ifdef VARIABLES // -DVARIABLES: in variables, and one that cannot be read
volatile int statics_counter;
volatile unsigned long statics_table[8];

PROBED void variables(unsigned long a)
{
	statics_counter = -2 * (int)a;
	statics_table[2] = a + 5;
	STATIC_PROBE("variables", "0", "-4@statics_counter(%%rip) 8f@%%xmm0 8@statics_table+16(%%rip) 8@%0", "r"(a));
}
#endif

int main(void)
{
	long n = 1000;

	while (next_round(&n)) {
		unsigned long sum = 0;
		long wanted = 0;

		for (long i = 0; i < n; i++) {
			sum += plain((unsigned long)i);
#ifdef INDEXED
			indexed(table, (unsigned long)i % 8);
#endif
#ifdef VARIABLES
			variables((unsigned long)i);
#endif
#ifdef TWICE
			once((unsigned long)i);
			twice((unsigned long)i);
#endif
			if (statics_guarded_semaphore) {
				guarded((unsigned)i, "some text");
				wanted++;
			}
		}
		printf("statics %ld %lu\n", n, sum);
		printf("wanted %ld\n", wanted);
		printf("semaphore %d\n", statics_guarded_semaphore);
	}
	return 0;
}
