// Work for a kernel, the same each time: files, pipes, processes, memory, timers
// and signals, with one thread. The sum that it prints in the end tells whether
// everything came out as it should.
//
//	kwork ROUNDS     does it all so often
//	kwork child N    is what it executes: its status is N+1
//	kwork naps N     sleeps N times
//	kwork sleep FIFO FILE    leaves a process that reads a line from FIFO, and then
//	                         writes it to FILE
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t sum = 14695981039346656037u;

static void mix(const void *p, size_t n)
{
	for (const unsigned char *b = p; n--; b++)
		sum = (sum ^ *b) * 1099511628211u;
}

// must takes in a result, which is 0 or more if all is well.
static long must(long v, const char *what)
{
	if (v < 0) {
		printf("kwork: %s: %s\n", what, strerror(errno));
		exit(1);
	}
	mix(&v, sizeof v);
	return v;
}
#define MUST(x) must((long)(x), #x)

static char data[9000], back[9000];

static void files(void)
{
	struct stat st;
	struct dirent *e;
	int names = 0;

	MUST(mkdir("kwork.d", 0700));
	int fd = MUST(open("kwork.d/a", O_RDWR | O_CREAT | O_EXCL, 0600));
	MUST(write(fd, data, sizeof data));
	MUST(pwrite(fd, "hole", 4, 20000));
	MUST(lseek(fd, 1, SEEK_SET));
	MUST(read(fd, back, 5000));
	mix(back, 5000);
	struct iovec v[2] = {{back, 10}, {back + 100, 200}};
	MUST(readv(fd, v, 2));
	MUST(fstat(fd, &st));
	mix(&st.st_size, sizeof st.st_size);
	MUST(ftruncate(fd, 100));
	MUST(fsync(fd));
	MUST(fchmod(fd, 0644));
	MUST(close(dup(fd)));
	MUST(close(fd));
	MUST(link("kwork.d/a", "kwork.d/b"));
	MUST(symlink("b", "kwork.d/c"));
	MUST(readlink("kwork.d/c", back, sizeof back));
	MUST(rename("kwork.d/b", "kwork.d/e"));
	MUST(access("kwork.d/c", F_OK) == -1 && errno == ENOENT);
	DIR *d = opendir("kwork.d");
	while ((e = readdir(d)))
		names++;
	closedir(d);
	MUST(names);
	MUST(unlink("kwork.d/a"));
	MUST(unlink("kwork.d/c"));
	MUST(unlink("kwork.d/e"));
	MUST(rmdir("kwork.d"));
}

static void pipes(void)
{
	int p[2], s[2];
	MUST(pipe(p));
	MUST(write(p[1], data, 4000));
	struct pollfd q = {p[0], POLLIN, 0};
	MUST(poll(&q, 1, 1000));
	MUST(read(p[0], back, sizeof back));
	mix(back, 4000);
	MUST(close(p[1]));
	MUST(read(p[0], back, 1));
	MUST(close(p[0]));
	MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
	MUST(send(s[0], "hello", 5, 0));
	MUST(recv(s[1], back, 10, 0));
	MUST(shutdown(s[0], SHUT_WR));
	MUST(recv(s[1], back, 10, 0));
	MUST(close(s[0]));
	MUST(close(s[1]));
	uint64_t n = 7;
	int e = MUST(eventfd(0, 0));
	MUST(write(e, &n, 8));
	MUST(read(e, &n, 8));
	MUST(close(e));
}

static void memory(void)
{
	char *m = mmap(0, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	MUST(m == MAP_FAILED ? -1 : 0);
	for (int i = 0; i < 1 << 16; i += 8192)
		m[i] = i >> 13;
	MUST(mprotect(m, 4096, PROT_READ));
	MUST(madvise(m + 8192, 8192, MADV_DONTNEED));
	mix(m + 8192, 100);
	m = mremap(m + 16384, 16384, 1 << 17, MREMAP_MAYMOVE);
	MUST(m == MAP_FAILED ? -1 : 0);
	mix(m, 20000);
	MUST(munmap(m, 1 << 17));
	MUST(munmap(m, 1 << 16));
}

static void processes(void)
{
	char number[20];
	int status;
	pid_t pid = fork();
	if (pid == 0)
		_exit(sum & 0x3f);
	MUST(pid < 0 ? -1 : 0);
	MUST(waitpid(pid, &status, 0) != pid);
	MUST(WEXITSTATUS(status));
	snprintf(number, sizeof number, "%d", (int)(sum & 0x3f));
	pid = vfork();
	if (pid == 0) {
		execl("/proc/self/exe", "kwork", "child", number, (char *)0);
		_exit(127);
	}
	MUST(pid < 0 ? -1 : 0);
	MUST(waitpid(pid, &status, 0) != pid);
	MUST(WEXITSTATUS(status));
}

static volatile sig_atomic_t rang;

static void ring(int signal) { rang = signal; }

static void timers(void)
{
	struct timespec t = {0, 2000000};
	MUST(nanosleep(&t, 0));
	int fd = MUST(timerfd_create(CLOCK_MONOTONIC, 0));
	struct itimerspec once = {{0, 0}, {0, 1000000}};
	uint64_t n;
	MUST(timerfd_settime(fd, 0, &once, 0));
	MUST(read(fd, &n, sizeof n));
	MUST(close(fd));
	sigset_t alarms, none;
	sigemptyset(&none);
	sigemptyset(&alarms);
	sigaddset(&alarms, SIGALRM);
	MUST(sigprocmask(SIG_BLOCK, &alarms, 0));
	struct sigaction a = {.sa_handler = ring};
	MUST(sigaction(SIGALRM, &a, 0));
	struct itimerval soon = {{0, 0}, {0, 1000}};
	rang = 0;
	MUST(setitimer(ITIMER_REAL, &soon, 0));
	while (!rang)
		sigsuspend(&none);
	MUST(rang);
}

// sleeper is in the read when its parent ends.
static int sleeper(const char *fifo, const char *file)
{
	MUST(mkfifo(fifo, 0600));
	int from = MUST(open(fifo, O_RDWR));
	pid_t pid = MUST(fork());
	if (pid)
		return 0;
	MUST(setsid());
	for (int i = 0; i < 3; i++)
		MUST(dup2(MUST(open("/dev/null", O_RDWR)), i));
	ssize_t n = MUST(read(from, data, sizeof data));
	MUST(write(MUST(open(file, O_WRONLY | O_CREAT, 0600)), data, n));
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 4)
		return sleeper(argv[2], argv[3]);
	if (argc == 3 && strcmp(argv[1], "naps") == 0) {
		for (int n = atoi(argv[2]); n > 0; n--)
			usleep(50000);
		return 0;
	}
	if (argc == 3)
		return atoi(argv[2]) + 1;
	for (size_t i = 0; i < sizeof data; i++)
		data[i] = i * 7 + (i >> 8);
	for (int rounds = argc > 1 ? atoi(argv[1]) : 1; rounds > 0; rounds--) {
		files();
		pipes();
		memory();
		processes();
		timers();
	}
	printf("kwork %016llx\n", (unsigned long long)sum);
	return 0;
}
