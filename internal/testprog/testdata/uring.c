/* Has threads of the kernel's among its own, which do its input (io_uring(7)): one that looks for requests, and one that
 * waits in a read. It says "none" where there is no io_uring, or its threads are not in the list of the program's (before
 * Linux 5.12). A round calls work a hundred times; "end" has something to read written, and says what the read gave. */
#define _GNU_SOURCE
#include <dirent.h>
#include <linux/io_uring.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

__attribute__((noinline, noclone, used)) long work(long n)
{
	__asm__ volatile("");
	return n * 3;
}

static int threads(void)
{
	DIR *all = opendir("/proc/self/task");
	int n = 0;

	for (struct dirent *d; (d = readdir(all));)
		n += d->d_name[0] != '.';
	closedir(all);
	return n;
}

int main(void)
{
	struct io_uring_params p = {.flags = IORING_SETUP_SQPOLL, .sq_thread_idle = 1};
	int fd = syscall(SYS_io_uring_setup, 8, &p), ends[2];
	char line[100], in[1];
	char *sq, *cq;
	struct io_uring_sqe *sqe;

	if (fd < 0 || threads() == 1 || pipe(ends)) {
		puts("none");
		return 0;
	}
	sq = mmap(0, p.sq_off.array + p.sq_entries * 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQ_RING);
	cq = mmap(0, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe), PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_CQ_RING);
	sqe = mmap(0, p.sq_entries * sizeof *sqe, PROT_READ | PROT_WRITE, MAP_SHARED, fd, IORING_OFF_SQES);
	memset(sqe, 0, sizeof *sqe);
	sqe->opcode = IORING_OP_READ;
	sqe->flags = IOSQE_ASYNC;
	sqe->fd = ends[0];
	sqe->addr = (unsigned long)in;
	sqe->len = 1;
	*(unsigned *)(sq + p.sq_off.array) = 0;
	__atomic_store_n((unsigned *)(sq + p.sq_off.tail), 1, __ATOMIC_RELEASE);
	syscall(SYS_io_uring_enter, fd, 1, 0, IORING_ENTER_SQ_WAKEUP, 0, 0);
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof line, stdin)) {
		long sum = 0;

		if (!strcmp(line, "end\n")) {
			write(ends[1], "x", 1);
			syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, 0, 0);
			printf("read %d\ndone\n", ((struct io_uring_cqe *)(cq + p.cq_off.cqes))->res);
			return 0;
		}
		for (long n = 0; n < 100; n++)
			sum += work(n);
		printf("sum %ld\ndone\n", sum);
		fflush(stdout);
	}
	return 0;
}
