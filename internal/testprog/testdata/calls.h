// What the families of calls.c say, and how they ask: results that are the same in each run, no addresses, ids or times.
#ifndef CALLS_H
#define CALLS_H

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// Numbers that older headers do not have are the same on every machine from 424 on.
enum {
	N_pidfd_send = 424, N_uring_setup = 425, N_uring_enter = 426, N_pidfd_open = 434, N_clone3 = 435, N_close_range = 436, N_openat2 = 437,
	N_pidfd_getfd = 438, N_faccessat2 = 439, N_madvise_process = 440, N_landlock = 444, N_memfd_secret = 447, N_waitv = 449, N_cachestat = 451,
	N_mseal = 462,
};

// What a thread has to say is printed when it has ended.
static __thread struct { char text[3000]; int n; } said;

__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
	va_list list;

	va_start(list, format);
	said.n += vsnprintf(said.text + said.n, sizeof said.text - said.n, format, list);
	va_end(list);
}

static void tell(void)
{
	for (int at = 0; at < said.n;) {
		ssize_t n = write(1, said.text + at, said.n - at);

		if (n > 0)
			at += n;
		else if (errno != EINTR)
			_exit(99);
	}
	said.n = 0;
}

// A call that a signal interrupts is made again.
#define AGAIN(call) ({ \
	long again_; \
	do { errno = 0; again_ = (long)(call); } while (again_ == -1 && errno == EINTR); \
	again_; })

// R says a result, or the error; IS only whether there was one, for what is another number each time.
#define R(call) ({ long r_ = AGAIN(call); say(" %ld", r_ == -1 ? -(long)errno : r_); r_; })
#define IS(call) ({ long is_ = AGAIN(call); say(" %ld", is_ == -1 ? -(long)errno : 1L); is_; })

static unsigned folded(const void *p, size_t n)
{
	unsigned sum = 7;

	for (size_t i = 0; i < n; i++)
		sum = sum * 31 + ((const unsigned char *)p)[i];
	return sum;
}

// What is probed, with the program's own functions: it works with what the processor has in registers.
__attribute__((noinline, noclone, used)) static long work(long a)
{
	__asm__ volatile("" ::: "memory");
	return a * 3 + 1;
}

// The status of a child, and that there is none where nobody wants to know.
static void waited(pid_t pid)
{
	int status = 0;
	pid_t got = AGAIN(waitpid(pid, &status, __WALL));

	say(got == pid ? " status %#x" : " no status %#x", got == pid ? status : errno);
}

// A pointer to no memory.
static char *volatile nowhere = (char *)16;

static void *area(size_t n) { return mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); }

#endif
