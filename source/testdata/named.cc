// Functions of C++ without a namespace, instances of a template, a bool, an enumeration.
#include <cstdio>
#include <string>

static volatile long sink;

enum colour { RED, GREEN = 5, BLUE };

template <class T> __attribute__((noinline)) T most(T a, T b)
{
	sink += a;
	return a > b ? a : b;
}

__attribute__((noinline)) void take_int(int n, bool odd, colour c, const int *p) { sink += n + odd + c + *p; }
__attribute__((noinline)) void take_text(const std::string &s) { sink += s.size(); }

int main()
{
	int seven = 7;
	for (int i = 0; i < 4; i++) {
		take_int(i, i & 1, i > 2 ? BLUE : GREEN, &seven);
		take_text("text");
		sink += most(i, 2) + most(3L, 4L);
	}
	printf("%ld\n", (long)sink);
	return 0;
}
