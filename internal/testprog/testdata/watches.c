// Watches a word of a child by the debug registers, lets the child write to it, and says
// whether the processor reported that.
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int word;

int main(void)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		word = 1;
		_exit(0);
	}
	if (child < 0 || waitpid(child, &status, 0) != child || !WIFSTOPPED(status))
		return 1;
	// DR7: register 0, all tasks' own way (bit 0), on writes (1) of four bytes (3).
	if (ptrace(PTRACE_POKEUSER, child, offsetof(struct user, u_debugreg[0]), &word) ||
	    ptrace(PTRACE_POKEUSER, child, offsetof(struct user, u_debugreg[7]), 1 | 1 << 16 | 3 << 18)) {
		puts("the system sets no debug register");
	} else {
		ptrace(PTRACE_CONT, child, 0, 0);
		if (waitpid(child, &status, 0) != child)
			return 1;
		puts(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP ? "reported" : "a write to a watched word is not reported");
	}
	if (WIFSTOPPED(status)) {
		kill(child, SIGKILL);
		waitpid(child, &status, 0);
	}
	return 0;
}
