/* reads N: N reads of one byte of /dev/zero. */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 100000;
	int fd = open("/dev/zero", O_RDONLY);
	char b;

	for (long i = 0; i < n; i++)
		if (read(fd, &b, 1) != 1)
			return 1;
	return 0;
}
