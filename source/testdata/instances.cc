// Instances of templates, inlined into one function, each with a counter of its calls.
#include <cstdio>
#include <cstdlib>

static volatile long ints, shorts, sink;

template <class T> static inline T most(const T *v, int n)
{
	if (sizeof(T) == sizeof(int))
		ints++;
	else
		shorts++;
	T m = v[0];
	for (int i = 1; i < n; i++)
		if (v[i] > m)
			m = v[i];
	sink += m;
	return m;
}

__attribute__((noinline)) static long both(const int *a, const short *b, int n)
{
	long s = most(a, n);
	if (n & 1)
		s += most(b, n);
	return s;
}

int main(int argc, char **argv)
{
	int a[8] = {1, 2, 3, 4, 5, 6, 7, 8}, n = argc > 1 ? atoi(argv[1]) : 10;
	short b[8] = {1, 2, 3, 4, 8, 7, 6, 5};
	long s = 0;

	for (int i = 0; i < n; i++)
		s += both(a, b, 3 + i % 5);
	printf("sum %ld\nmost<int> %ld\n", s, ints);
	printf("most<short> %ld\n", shorts);
	return 0;
}
