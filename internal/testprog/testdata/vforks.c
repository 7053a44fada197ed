// A child of vfork that executes a program when it is told to.
//
// A round: the child prints "child" and waits for a line. Then it executes this program, which prints "executed", waits for another
// line and ends. The process prints "ended" with the child's status.
#include "prog.h"
#include <sys/wait.h>
#include <unistd.h>

static char *exec_argv[] = {"vforks", "exec", NULL};

static int tell(const char *text)
{
	char line[16];

	return write(1, text, strlen(text)) > 0 && read(0, line, sizeof line) > 0;
}

int main(int argc, char **argv)
{
	long n = 0;

	if (argc > 1 && !strcmp(argv[1], "exec"))
		return tell("executed\n") ? 7 : 1;
	while (next_round(&n)) {
		int status = 0;
		pid_t pid = vfork();

		if (pid == 0) {
			if (tell("child\n"))
				execv("/proc/self/exe", exec_argv);
			_exit(127);
		}
		CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
		printf("ended %d\n", WEXITSTATUS(status));
	}
	return failures != 0;
}
