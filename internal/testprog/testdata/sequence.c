/* A thread that is in a restartable sequence (rseq(2)) until a signal comes. A round: it says where the sequence is, stays
 * there until SIGUSR1, and says how often the kernel has led it out. */
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

extern const ptrdiff_t __rseq_offset; /* of struct rseq from the thread pointer: glibc 2.35 */
extern const unsigned __rseq_size;

extern char sequence_begin[], sequence_end[], sequence_abort[];
extern struct {
	unsigned version, flags;
	unsigned long start, length, abort;
} sequence;
volatile int stops;
volatile long aborts;

__asm__(
	".pushsection __rseq_cs, \"aw\"\n.balign 32\n"
	"sequence: .long 0, 0\n.quad sequence_begin, sequence_end - sequence_begin, sequence_abort\n.popsection\n"
	".pushsection .text\n"
	".byte 0x0f, 0xb9, 0x3d\n.long 0x53053053\n" /* the signature */
	"sequence_abort: incq aborts(%rip)\n"
	"stay: lea sequence(%rip), %rax\n mov %rax, (%rdi)\n"
	"sequence_begin: pause\n cmpl $0, stops(%rip)\n je sequence_begin\n"
	"sequence_end: ret\n"
	".popsection\n");

void stay(void *pointer);

static void stop(int s) { stops = 1; }

int main(void)
{
	char line[100];
	void **pointer = (void **)((char *)__builtin_thread_pointer() + __rseq_offset + 8);

	signal(SIGUSR1, stop);
	puts(__rseq_size ? "ready" : "none");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		stops = aborts = 0;
		printf("in %lx %lx %lx\n", (long)sequence_begin, (long)sequence_end, (long)sequence_abort);
		fflush(stdout);
		stay(pointer);
		*pointer = NULL;
		printf("left %d\ndone\n", aborts > 0);
		fflush(stdout);
	}
	return 0;
}
