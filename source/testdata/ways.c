// ways.c: functions that make way for others by a jump. main calls each once, in the order of their places here.
#define KEEP __attribute__((noinline))

volatile int sink;

KEEP int leaf(int n) { return n + ++sink; }

KEEP int direct(int n) { return leaf(n) + 1; } // has a frame

KEEP int one(int n) { sink++; return leaf(n + 1); }

KEEP int two(int n) { sink += n; return one(n - 1); }

KEEP int either(int n) // of two jumps to one function
{
	if (n > sink) {
		sink += 3;
		return one(n);
	}
	sink -= 5;
	int m = sink;
	return one(m * n);
}

KEEP int forked(int n) // by another function, or not
{
	if (n > sink) {
		sink += 3;
		return one(n);
	}
	sink -= 5;
	return leaf(n);
}

KEEP int odd(int n);

KEEP int even(int n) // as often as n says
{
	sink++;
	return n ? odd(n - 1) : leaf(n);
}

KEEP int odd(int n)
{
	sink--;
	return n ? even(n - 1) : leaf(n + 1);
}

int (*volatile where)(int) = leaf;

KEEP int anywhere(int n) { sink++; return where(n); }

KEEP int perhaps(int n) // by a function of which all is known, or by any
{
	if (n > sink)
		return where(n);
	return one(n);
}

static inline __attribute__((always_inline)) int within(int n) { sink += 2; return leaf(n + 2); }

KEEP int around(int n) { sink -= n; return within(n * 3); }

KEEP int again(int n); // leads to itself through what it makes way for

KEEP int relay(int n) { sink += 4; return again(n - 1); }

KEEP int again(int n)
{
	if (n > 0)
		return relay(n);
	return leaf(n) + 2;
}

int main(void)
{
	int n = sink, s = leaf(n) + 1;
	s += direct(n) + 1;
	s += one(n) + 1;
	s += two(n) + 1;
	s += either(n) + 1;
	s += forked(n) + 1;
	s += even(n & 1) + 1;
	s += anywhere(n) + 1;
	s += perhaps(n) + 1;
	s += around(n) + 1;
	s += again(2) + 1;
	s += relay(1) + 1;
	return s == 12345;
}
