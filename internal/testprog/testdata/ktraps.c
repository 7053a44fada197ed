// What a kernel does with traps and faults that are not a probe's.
//
//	ktraps faults N   calls with addresses where nothing is, N of each kind: prints how
//	                  many of them were refused as they should be
//	ktraps breaks N   executes N trap instructions: prints how many signals came of it
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile int traps;

static void trapped(int sig)
{
	(void)sig;
	traps++;
}

static char page[4096];

int main(int argc, char **argv)
{
	char *nowhere = (char *)64;
	int n = argc > 2 ? atoi(argv[2]) : 0, refused = 0;
	if (argc > 1 && strcmp(argv[1], "breaks") == 0) {
		signal(SIGTRAP, trapped);
		for (int i = 0; i < n; i++)
			__asm__ volatile("int3");
		printf("%d\n", traps);
		return 0;
	}
	int zero = open("/dev/zero", O_RDONLY), p[2];
	if (zero < 0 || pipe(p) != 0)
		return 1;
	for (int i = 0; i < n; i++) {
		refused += read(zero, nowhere, 4000) == -1 && errno == EFAULT;
		refused += write(p[1], nowhere, 3000) == -1 && errno == EFAULT;
		refused += write(p[1], page, 100) == 100 && read(p[0], nowhere, 100) == -1 && errno == EFAULT;
		refused += read(p[0], page, 4096) == 100;
		refused += open(nowhere, O_RDONLY) == -1 && errno == EFAULT;
		refused += getcwd(nowhere, 100) == NULL && errno == EFAULT;
		refused += stat("/", (struct stat *)nowhere) == -1 && errno == EFAULT;
	}
	printf("%d\n", refused);
	return 0;
}
