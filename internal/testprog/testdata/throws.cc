// C++ exceptions through probed frames: the unwinder reads return addresses, and
// aborts the program where one is not what the tables say. A round with count N
// prints "caught SUM" and "destroyed N".
#include "prog.h"
#include <stdexcept>
#include <string>
#include <thread>

static long destroyed;
struct Guard {
	~Guard() { destroyed++; }
};

extern "C" PROBED long throw_leaf(long n)
{
	if (n % 3 == 0)
		throw std::runtime_error("three");
	if (n % 3 == 1)
		throw n;
	return n;
}

extern "C" PROBED long throw_mid(long n)
{
	Guard g;
	return throw_leaf(n) + 1;
}

extern "C" PROBED long throw_rethrow(long n)
{
	try {
		return throw_mid(n);
	} catch (const std::exception &) {
		throw;
	}
}

extern "C" PROBED long throw_top(long n)
{
	Guard g;
	try {
		return throw_rethrow(n);
	} catch (const std::runtime_error &e) {
		return static_cast<long>(std::string(e.what()).size());
	} catch (long v) {
		return v * 2;
	}
}

int main()
{
	long n = 100;

	while (next_round(&n)) {
		long sum = 0;

		destroyed = 0;
		for (long i = 0; i < n; i++)
			sum += throw_top(i);
		std::thread([&] { sum += throw_top(1) + throw_top(3); }).join();
		CHECK(destroyed == 2 * (n + 2));
		printf("caught %ld\ndestroyed %ld\n", sum, destroyed);
	}
	return failures != 0;
}
