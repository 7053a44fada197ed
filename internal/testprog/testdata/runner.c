// Starts a program and stays its parent, so that the test is no relative of
// what it traces: a process that is both parent and tracer has one wait status
// to share between the two, and whoever asks first takes it from the other.
//
// To descriptor 3 go the child's pid, then its raw wait status, each as a line.
// When descriptor 4 hangs up (the test is over, or dead), the child is killed.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void on_child(int sig) { (void)sig; }

int main(int argc, char **argv)
{
	enum { report = 3, life = 4 };
	sigset_t chld, old;
	struct sigaction sa = {.sa_handler = on_child}, was;
	pid_t pid;
	int status;

	if (argc < 2)
		return 2;
	fcntl(report, F_SETFD, FD_CLOEXEC);
	fcntl(life, F_SETFD, FD_CLOEXEC);
	// The signal is let in only inside ppoll, so none is lost between the
	// look and the wait.
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	sigprocmask(SIG_BLOCK, &chld, &old);
	sigaction(SIGCHLD, &sa, &was);
	pid = fork();
	if (pid == 0) {
		sigaction(SIGCHLD, &was, NULL);
		sigprocmask(SIG_SETMASK, &old, NULL);
		execvp(argv[1], argv + 1);
		perror(argv[1]);
		_exit(127);
	}
	if (pid < 0) {
		perror("fork");
		return 2;
	}
	dprintf(report, "%d\n", pid);
	// The child's pipes must end when the child does.
	close(0);
	close(1);
	close(2);
	while (waitpid(pid, &status, WNOHANG) == 0) {
		struct pollfd gone = {.fd = life};
		if (ppoll(&gone, 1, NULL, &old) > 0) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			return 1;
		}
	}
	dprintf(report, "%d\n", status);
	return 0;
}
