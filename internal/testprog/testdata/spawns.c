// A program whose children share its memory until they execute another: a round makes so many of them, one after the other.
#include "prog.h"
#include <spawn.h>
#include <sys/wait.h>

extern char **environ;

int main(int argc, char **argv)
{
	char *child[] = {argv[0], "child", NULL};
	long n = 0;

	if (argc > 1)
		return 3;
	while (next_round(&n)) {
		long ended = 0;

		for (long i = 0; i < n; i++) {
			int status = 0;
			pid_t pid;

			CHECK(posix_spawn(&pid, "/proc/self/exe", NULL, NULL, child, environ) == 0);
			CHECK(waitpid(pid, &status, 0) == pid);
			ended += WEXITSTATUS(status) == 3;
		}
		printf("ended %ld\n", ended);
	}
	return failures != 0;
}
