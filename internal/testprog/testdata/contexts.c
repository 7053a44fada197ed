// Contexts that end, and go on in the ones they are linked with: what leads them there is not called but returned to. A round
// with count N runs N pairs of them and prints "contexts SUM".
#include "prog.h"
#include <ucontext.h>

static ucontext_t back, first, second;
static char stacks[2][65536];
static long sum;

static void adds(int a, int b) { sum += a * b; }

static void begin(int i, ucontext_t *c, ucontext_t *next)
{
	CHECK(getcontext(c) == 0);
	c->uc_stack.ss_sp = stacks[i];
	c->uc_stack.ss_size = sizeof stacks[i];
	c->uc_link = next;
	makecontext(c, (void (*)(void))adds, 2, 3, 4 + i);
}

int main(int argc, char **argv)
{
	long n = 1;

	CHECK(argc == 1 && argv[1] == NULL); // on the stack that it began with
	while (next_round(&n)) {
		sum = 0;
		for (long i = 0; i < n; i++) {
			begin(0, &first, &second);
			begin(1, &second, &back);
			CHECK(swapcontext(&back, &first) == 0);
		}
		printf("contexts %ld\n", sum);
	}
	return 0;
}
