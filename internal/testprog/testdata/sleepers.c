// Threads blocked in system calls, each of which must not notice an attach, a stop
// or a detach. Any call that comes back other than by what wakes it is printed:
// "NAME EINTR", "NAME RESULT". A round's line "wake" wakes all of them once,
// counts, and prints "woken N"; any other prints "asleep N".
#define _GNU_SOURCE
#include "prog.h"
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// What every woken thread runs.
PROBED long woke(long n) { BARRIER(); return n + 1; }

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long wakings;

// woken counts a call that came back as it should, and tells of one that did not.
static int woken(const char *name, long result, long want)
{
	int err = errno;

	if (result != want) {
		if (result < 0)
			printf("%s %s\n", name, strerrorname_np(err));
		else
			printf("%s %ld\n", name, result);
		fflush(stdout);
		failures++;
		return 0;
	}
	pthread_mutex_lock(&lock);
	wakings = woke(wakings);
	pthread_cond_signal(&changed);
	pthread_mutex_unlock(&lock);
	return 1;
}

enum { EPOLL, POLL, READ, RECV, PIPES };
static int pipes[PIPES][2];
static int futex_word;
static int sem_id, msg_id;
static sem_t posix_sem;
static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_t waiter;

static void take(int i)
{
	char c;

	CHECK(read(pipes[i][0], &c, 1) == 1);
}

static void *in_epoll(void *p)
{
	struct epoll_event ev = {.events = EPOLLIN};
	int fd = epoll_create1(0);

	epoll_ctl(fd, EPOLL_CTL_ADD, pipes[EPOLL][0], &ev);
	for (;;) {
		// Taken before it is told of, or the next wait ends at once.
		long r = epoll_wait(fd, &ev, 1, -1);

		if (r == 1)
			take(EPOLL);
		woken("epoll_wait", r, 1);
	}
	return p;
}

static void *in_poll(void *p)
{
	struct pollfd fd = {.fd = pipes[POLL][0], .events = POLLIN};

	for (;;) {
		long r = poll(&fd, 1, -1);

		if (r == 1)
			take(POLL);
		woken("poll", r, 1);
	}
	return p;
}

static void *in_read(void *p)
{
	char c;

	for (;;)
		woken("read", read(pipes[READ][0], &c, 1), 1);
	return p;
}

// With a timeout on the socket a receive is not restarted by the kernel but fails.
static void *in_recv(void *p)
{
	struct timeval hour = {3600, 0};
	char c;

	setsockopt(pipes[RECV][0], SOL_SOCKET, SO_RCVTIMEO, &hour, sizeof hour);
	for (;;)
		woken("recv", recv(pipes[RECV][0], &c, 1, 0), 1);
	return p;
}

static void *in_futex(void *p)
{
	for (;;) {
		int old = __atomic_load_n(&futex_word, __ATOMIC_SEQ_CST);
		long r = syscall(SYS_futex, &futex_word, FUTEX_WAIT, old, NULL, NULL, 0);

		if (r == 0 || errno != EAGAIN)
			woken("futex", r, 0);
	}
	return p;
}

static void *in_sigwait(void *p)
{
	struct timespec hour = {3600, 0};
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	for (;;)
		woken("sigtimedwait", sigtimedwait(&set, NULL, &hour), SIGRTMIN);
	return p;
}

static void *in_semop(void *p)
{
	struct sembuf down = {0, -1, 0};

	for (;;)
		woken("semop", semop(sem_id, &down, 1), 0);
	return p;
}

static void *in_msgrcv(void *p)
{
	struct { long type; char text[1]; } msg;

	for (;;)
		woken("msgrcv", msgrcv(msg_id, &msg, 1, 0, 0), 1);
	return p;
}

static void *in_sem_wait(void *p)
{
	for (;;)
		woken("sem_wait", sem_wait(&posix_sem), 0);
	return p;
}

// Sleeps whole hours; wakes for nobody. There are several: any thread may be the one that makes a call for a tracer, and
// only those that sleep for a time forget the number of their own call. By half of them (p) it is made with a number that
// the code does not tell.
static void *in_nanosleep(void *p)
{
	struct timespec hour = {3600, 0};
	long raw[2] = {3600, 0};

	for (;;)
		woken("nanosleep", p ? syscall(SYS_nanosleep, raw, NULL) : nanosleep(&hour, NULL), 0);
	return p;
}

static void *in_mutex(void *p)
{
	woken("mutex", pthread_mutex_lock(&held), 0);
	return p;
}

static void *(*const sleepers[])(void *) = {
	in_epoll, in_poll, in_read, in_recv, in_futex, in_sigwait, in_semop, in_msgrcv, in_sem_wait,
};
enum { WOKEN = sizeof sleepers / sizeof *sleepers, NAPPING = 8 };

static void wake(void)
{
	struct sembuf up = {0, 1, 0};
	struct { long type; char text[1]; } msg = {1, "x"};

	for (int i = 0; i < PIPES; i++)
		CHECK(write(pipes[i][1], "x", 1) == 1);
	__atomic_add_fetch(&futex_word, 1, __ATOMIC_SEQ_CST);
	while (syscall(SYS_futex, &futex_word, FUTEX_WAKE, 1, NULL, NULL, 0) != 1)
		usleep(1000); // it is not asleep yet
	CHECK(!kill(getpid(), SIGRTMIN));
	CHECK(!semop(sem_id, &up, 1));
	CHECK(!msgsnd(msg_id, &msg, 1, 0));
	CHECK(!sem_post(&posix_sem));
}

// Semaphores and message queues of this kind outlive the process, killed or not. A
// child waits for its end, and removes them: no thread sees them go.
static void remove_after_end(void)
{
	int alive[2];
	char c;

	CHECK(!pipe(alive));
	if (fork() == 0) {
		close(alive[1]);
		for (int fd = 0; fd <= 2; fd++)
			close(fd);
		while (read(alive[0], &c, 1) < 0)
			;
		semctl(sem_id, 0, IPC_RMID);
		msgctl(msg_id, IPC_RMID, NULL);
		_exit(0);
	}
	close(alive[0]);
}

int main(void)
{
	long n = 0, rounds = 0;
	sigset_t set;
	pthread_t t;

	sigemptyset(&set);
	sigaddset(&set, SIGRTMIN);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	for (int i = 0; i < PIPES; i++)
		CHECK(!(i == RECV ? socketpair(AF_UNIX, SOCK_STREAM, 0, pipes[i]) : pipe(pipes[i])));
	sem_id = semget(IPC_PRIVATE, 1, 0600);
	msg_id = msgget(IPC_PRIVATE, 0600);
	CHECK(sem_id >= 0 && msg_id >= 0);
	remove_after_end();
	sem_init(&posix_sem, 0, 0);
	pthread_mutex_lock(&held);
	for (int i = 0; i < WOKEN; i++)
		CHECK(!pthread_create(&t, NULL, sleepers[i], NULL));
	for (int i = 0; i < NAPPING; i++)
		CHECK(!pthread_create(&t, NULL, in_nanosleep, i % 2 ? &t : NULL));
	CHECK(!pthread_create(&waiter, NULL, in_mutex, NULL));
	while (next_round(&n)) {
		if (strcmp(command, "wake")) {
			printf("asleep %d\n", WOKEN + NAPPING + 1);
			continue;
		}
		wake();
		rounds++;
		pthread_mutex_lock(&lock);
		while (wakings < rounds * WOKEN)
			pthread_cond_wait(&changed, &lock);
		CHECK(wakings == rounds * WOKEN);
		pthread_mutex_unlock(&lock);
		printf("woken %d\n", WOKEN);
	}
	return failures != 0;
}
