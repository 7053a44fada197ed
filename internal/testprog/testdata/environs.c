// Asks for environment variables: one that is there, and one that is not. A round with count N asks
// N times and prints "environs FOUND".
#include "prog.h"

int main(void)
{
	long n = 2;

	setenv("ENVIRONS_HERE", "a value of it", 1);
	while (next_round(&n)) {
		int found = 0;

		for (long i = 0; i < n; i++)
			found += !!getenv(i & 1 ? "ENVIRONS_NOT_HERE" : "ENVIRONS_HERE");
		printf("environs %d\n", found);
	}
	return 0;
}
