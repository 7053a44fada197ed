// Traces the process whose number it is given, says so, and lets it go after half a second.
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 2 || ptrace(PTRACE_SEIZE, atoi(argv[1]), 0, 0) != 0) {
		perror("seize");
		return 1;
	}
	puts("traced");
	fflush(stdout);
	usleep(500000);
	return 0;
}
