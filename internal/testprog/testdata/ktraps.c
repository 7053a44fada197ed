// What a kernel does with traps and faults that are not a probe's.
//
//	ktraps faults N   calls with addresses where nothing is, N of each kind: prints how
//	                  many of them were refused as they should be
//	ktraps breaks N   executes N trap instructions: prints how many signals came of it
//	ktraps switch N FILE
//	                  writes 1 and 0 to a file, N times, while pairs of processes on all
//	                  CPUs wake each other, and others are born and die: prints N
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int traps;

static void trapped(int sig)
{
	(void)sig;
	traps++;
}

static char page[4096];

static void on(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	sched_setaffinity(0, sizeof(set), &set);
}

/* echoes has a child, on a CPU, send back what it is sent. */
static void echoes(int from, int to, int cpu)
{
	char c;

	if (fork() != 0)
		return;
	on(cpu);
	while (read(from, &c, 1) == 1 && write(to, &c, 1) == 1)
		;
	_exit(0);
}

static int switched(int n, const char *file)
{
	int fd = open(file, O_WRONLY), cpus = sysconf(_SC_NPROCESSORS_ONLN);

	if (fd < 0 || setpgid(0, 0) != 0)
		return 1;
	for (int i = 0; i < 2 * cpus; i++) {
		int a[2], b[2];

		if (pipe(a) != 0 || pipe(b) != 0 || write(a[1], "", 1) != 1)
			return 1;
		echoes(a[0], b[1], i % cpus);
		echoes(b[0], a[1], (i + i / cpus) % cpus); /* the same, or another one */
	}
	if (fork() == 0) {
		for (;;) {
			if (fork() == 0)
				_exit(0);
			wait(NULL);
		}
	}
	signal(SIGTERM, SIG_IGN); /* the children end by it */
	for (int i = 0; i < n; i++) {
		if (pwrite(fd, "1\n", 2, 0) != 2 || pwrite(fd, "0\n", 2, 0) != 2)
			return 1;
		sched_yield();
	}
	kill(0, SIGTERM);
	while (wait(NULL) > 0)
		;
	printf("%d\n", n);
	return 0;
}

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
	if (argc > 3 && strcmp(argv[1], "switch") == 0)
		return switched(n, argv[3]);
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
