// Functions of C++ that share names, with each other and with functions of C. A round calls all N times.
#include "prog.h"

#define CALLED(result) { BARRIER(); return (result); }

extern "C" {
PROBED int plain(int a) CALLED(a)
PROBED int work(int a) CALLED(a + 1)
}

namespace ns {
struct box {
	PROBED int work(int a) CALLED(a)
	PROBED int work(long a) CALLED((int)a)
	PROBED int operator[](int a) CALLED(a)
	PROBED int operator+(int a) CALLED(a)
};
PROBED int work(const char *p) CALLED(*p)
template <class T> PROBED int shaped(T a) CALLED((int)a)
}

PROBED int over(int a) CALLED(a)
PROBED int over(double a) CALLED((int)a)

int main(void)
{
	ns::box b;
	long n = 1;
	int sum = 0;

	while (next_round(&n))
		for (long i = 0; i < n; i++)
			sum += plain(1) + work(2) + b.work(3) + b.work(4L) + b[5] + (b + 6) + ns::work("a") + ns::shaped(7) + ns::shaped(8L) + over(9) + over(10.0);
	return sum == 1;
}
