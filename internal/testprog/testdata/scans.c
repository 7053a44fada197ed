// A program with a runtime that finds the frames of its functions by their return addresses, as OCaml's does when it collects garbage:
// of each call it has a table of where it goes on, and it ends the program where a frame has another address. A round makes COUNT calls that
// lie in each other, of which the innermost looks.
//
// It is built with -fno-omit-frame-pointer.
#include "prog.h"

enum { MOST = 64 };

char caml_frametable[16]; // by its name the runtime is known
static void *known[16];
static int many;

// scan looks at the frames above its own, up to the runtime's.
PROBED void scan(long frames, int learn)
{
	void **fp = __builtin_frame_address(0);

	for (; frames > 0; frames--, fp = *fp) {
		int i = 0;
		while (i < many && known[i] != fp[1])
			i++;
		if (i < many)
			continue;
		if (!learn || many == 16)
			abort();
		known[many++] = fp[1];
	}
}

PROBED long camlScans__deep_80(long n, int learn)
{
	volatile long here = n; // a frame of its own at every level

	if (n == 0)
		scan(MOST / 2, learn);
	long more = n > 0 ? camlScans__deep_80(n - 1, learn) : 0;
	BARRIER();
	return here + more;
}

PROBED long caml_turn(long n, int learn)
{
	long sum = camlScans__deep_80(MOST, learn) + n;
	BARRIER();
	return sum;
}

int main(void)
{
	long n = 1;

	CHECK(caml_turn(0, 1) == MOST * (MOST + 1) / 2);
	while (next_round(&n))
		CHECK(caml_turn(n, 0) == MOST * (MOST + 1) / 2 + n);
	return failures > 0;
}
