// Families of calls.c: processes, their rights, and who may do what to them.
#include <grp.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <spawn.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/utsname.h>

extern char **environ;

// in_child runs something in a child, and says the child's status.
#define IN_CHILD(...) do { \
	pid_t child_ = fork(); \
	if (child_ == 0) { __VA_ARGS__; _exit(0); } \
	waited(child_); \
} while (0)

static void forks(void)
{
	for (int i = 0; i < 3; i++)
		IN_CHILD(_exit(work(i)));
	IN_CHILD(abort());
	IN_CHILD(IN_CHILD(_exit(3)); _exit(said.n > 0 ? 4 : 5));
	IN_CHILD(raise(SIGKILL));
	IN_CHILD(execl("/nowhere", "nowhere", NULL); _exit(errno));
}

static void vforks(void)
{
	pid_t pid = vfork();

	if (pid == 0) {
		execl("/bin/true", "true", NULL);
		_exit(99);
	}
	waited(pid);
	if ((pid = vfork()) == 0)
		_exit(work(7));
	waited(pid);
	if ((pid = vfork()) == 0) {
		execl("/bin/sh", "sh", "-c", "kill -TERM $$", NULL);
		_exit(99);
	}
	waited(pid);
}

static void spawns(void)
{
	posix_spawnattr_t a;
	posix_spawn_file_actions_t f;
	sigset_t all;
	pid_t pid = 0;

	posix_spawnattr_init(&a);
	posix_spawn_file_actions_init(&f);
	sigfillset(&all);
	posix_spawnattr_setsigdefault(&a, &all);
	posix_spawnattr_setflags(&a, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	posix_spawn_file_actions_addopen(&f, 0, "/dev/null", O_RDONLY, 0);
	R(posix_spawn(&pid, "/bin/sh", &f, &a, (char *[]){"sh", "-c", "read x; exit $((40 + $?))", NULL}, environ));
	waited(pid);
	R(posix_spawn(&pid, "/nowhere", NULL, NULL, (char *[]){"x", NULL}, environ));
	R(posix_spawnp(&pid, "false", NULL, NULL, (char *[]){"false", NULL}, environ));
	waited(pid);
	posix_spawn_file_actions_destroy(&f);
	posix_spawnattr_destroy(&a);
}

static void shells(void)
{
	char line[64] = "";
	FILE *f = popen("echo piped; exit 3", "r");

	R(fgets(line, sizeof line, f) != NULL);
	say(" %.5s", line);
	R(pclose(f));
	R(system("exit 5"));
	R(system("kill -KILL $$"));
	f = popen("cat >/dev/null", "w");
	R(fputs("into it", f) >= 0);
	R(pclose(f));
}

static void memory_programs(void)
{
	int from = open("/bin/true", O_RDONLY), f = syscall(SYS_memfd_create, "program", 1 /* CLOEXEC */);
	char buf[8192];

	for (ssize_t n; (n = AGAIN(read(from, buf, sizeof buf))) > 0;)
		if (AGAIN(write(f, buf, n)) != n)
			say(" short");
	close(from);
	IN_CHILD(syscall(SYS_execveat, f, "", (char *[]){"program", NULL}, environ, AT_EMPTY_PATH); _exit(errno));
	pid_t pid = vfork();
	if (pid == 0) {
		syscall(SYS_execveat, f, "", (char *[]){"program", NULL}, environ, AT_EMPTY_PATH);
		_exit(98);
	}
	waited(pid);
	IN_CHILD(fexecve(f, (char *[]){"program", "argument", NULL}, (char *[]){"A=B", NULL}); _exit(97));
	close(f);
}

static int cloned(void *arg) { return work((long)arg); }

static void clones(void)
{
	static const int flags[] = {0, CLONE_FILES, CLONE_FS, CLONE_VM, CLONE_VM | CLONE_VFORK, CLONE_VM | CLONE_SIGHAND, CLONE_IO | CLONE_SYSVSEM};
	char *stack = area(1 << 16);

	for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++)
		waited(clone(cloned, stack + (1 << 16), flags[i] | SIGCHLD, (void *)(long)i));
	waited(clone(cloned, stack + (1 << 16), CLONE_VM, (void *)9L)); // without a signal at its end
	R(clone(cloned, stack + (1 << 16), CLONE_SIGHAND | SIGCHLD, NULL));
	munmap(stack, 1 << 16);
}

static void clones3(void)
{
	int pidfd = -1;
	uint64_t a[11] = {CLONE_PIDFD, (uintptr_t)&pidfd, 0, 0, SIGCHLD};
	pid_t pid = syscall(N_clone3, a, 64L);

	if (pid == 0)
		_exit(work(6));
	siginfo_t info = {.si_pid = 0};
	R(AGAIN(waitid(3 /* P_PIDFD */, pidfd, &info, WEXITED | WNOWAIT)));
	say(" %d %d", info.si_code, info.si_status);
	waited(pid);
	close(pidfd);
	a[0] = 0x8000; // PARENT without a signal that may be chosen
	R(syscall(N_clone3, a, 64L));
	R(syscall(N_clone3, a, 5L));
}

static void pidfds(void)
{
	int p[2];

	R(pipe(p));
	pid_t pid = fork();
	if (pid == 0) {
		char c;
		_exit(read(p[0], &c, 1) + 10);
	}
	int f = syscall(N_pidfd_open, pid, 0);
	struct pollfd poller = {f, POLLIN, 0};
	R(poll(&poller, 1, 0));
	R(syscall(N_pidfd_send, f, 0, NULL, 0));
	R(syscall(N_pidfd_send, f, SIGKILL, NULL, 0));
	R(poll(&poller, 1, -1));
	waited(pid);
	R(syscall(N_pidfd_send, f, 0, NULL, 0));
	R(syscall(N_pidfd_open, -5, 0));
	close(f), close(p[0]), close(p[1]);
}

static void stolen(void)
{
	int p[2], ready[2], got;
	char c;

	R(pipe(p) | pipe(ready));
	pid_t pid = fork();
	if (pid == 0) {
		c = 'r';
		_exit(write(ready[1], &c, 1) != 1 || (close(ready[0]), read(p[0], &c, 1)) != 1);
	}
	R(read(ready[0], &c, 1));
	int f = syscall(N_pidfd_open, pid, 0);
	IS(got = syscall(N_pidfd_getfd, f, p[1], 0));
	R(write(got, "x", 1));
	waited(pid);
	close(f), close(got);
	for (int i = 0; i < 2; i++)
		close(p[i]), close(ready[i]);
}

static void compares(void)
{
	int f = dup(1);

	R(syscall(SYS_kcmp, getpid(), getpid(), 0, 1, f));
	R(syscall(SYS_kcmp, getpid(), getpid(), 1, 0, 0));
	R(syscall(SYS_kcmp, getpid(), getpid(), 99, 0, 0));
	close(f);
}

static void reads_child(void)
{
	static char text[32] = "before";
	char buf[32] = "";
	int p[2];

	R(pipe(p));
	pid_t pid = fork();
	if (pid == 0) {
		char c;
		_exit(read(p[0], &c, 1) == 1 ? text[0] : 0);
	}
	struct iovec here = {buf, 32}, there = {text, 32}, wrong = {(void *)16, 8};
	R(syscall(SYS_process_vm_readv, pid, &here, 1L, &there, 1L, 0L));
	say(" %s", buf);
	strcpy(buf, "after");
	R(syscall(SYS_process_vm_writev, pid, &here, 1L, &there, 1L, 0L));
	R(syscall(SYS_process_vm_readv, pid, &here, 1L, &wrong, 1L, 0L));
	R(write(p[1], "x", 1));
	waited(pid);
	close(p[0]), close(p[1]);
}

static void groups_of_processes(void)
{
	IN_CHILD(_exit(setsid() == getpid() && getsid(0) == getpid() && getpgrp() == getpid() && setpgid(0, 0) == -1 ? errno : 88));
	IN_CHILD(_exit(setpgid(0, 0) == 0 && getpgid(0) == getpid() && kill(-getpid(), 0) == 0 ? 3 : 88));
	R(setpgid(1, 1));
	R(kill(-0x7ffffff, 0));
}

// A shell's work: a session with a terminal, jobs of which one reads in the background and is stopped, brought to the front,
// interrupted by the terminal's key.
static void job_control(void)
{
	IN_CHILD(
		char name[64]; int m = posix_openpt(O_RDWR | O_NOCTTY); int status; char c;
		if (grantpt(m) || unlockpt(m) || ptsname_r(m, name, sizeof name) || setsid() < 0) _exit(81);
		int s = open(name, O_RDWR);
		if (ioctl(s, TIOCSCTTY, 0)) _exit(82);
		signal(SIGTTOU, SIG_IGN); signal(SIGHUP, SIG_IGN);
		pid_t job = fork();
		if (job == 0) {
			setpgid(0, 0); signal(SIGTTOU, SIG_DFL);
			if (read(s, &c, 1) != 1) _exit(83);
			pause();
			_exit(84);
		}
		setpgid(job, job);
		if (waitpid(job, &status, WUNTRACED) != job || !WIFSTOPPED(status) || WSTOPSIG(status) != SIGTTIN) _exit(85);
		if (tcsetpgrp(s, job) || write(m, "x\n", 2) != 2 || kill(-job, SIGCONT)) _exit(86);
		if (waitpid(job, &status, WCONTINUED) != job || !WIFCONTINUED(status)) _exit(87);
		while (write(m, "\003", 1) == 1 && waitpid(job, &status, WNOHANG) == 0) usleep(2000);
		if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGINT) _exit(88);
		tcsetpgrp(s, getpgrp());
		_exit(31);
	);
}

static void reaped(void)
{
	IN_CHILD(
		int status; pid_t orphan = 0;
		if (prctl(PR_SET_CHILD_SUBREAPER, 1)) _exit(81);
		pid_t mid = fork();
		if (mid == 0) { if (fork() == 0) { usleep(2000); _exit(17); } _exit(0); }
		waitpid(mid, &status, 0);
		orphan = wait(&status);
		_exit(orphan > 0 ? WEXITSTATUS(status) : 82);
	);
	IN_CHILD(prctl(PR_SET_PDEATHSIG, SIGKILL); int v = 0; prctl(PR_GET_PDEATHSIG, &v); _exit(v));
	IN_CHILD(signal(SIGCHLD, SIG_IGN); pid_t p = fork(); if (p == 0) _exit(3); _exit(waitpid(p, NULL, 0) == -1 ? errno : 0));
	struct sigaction a = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDWAIT};
	sigaction(SIGCHLD, &a, NULL);
	IN_CHILD(_exit(3));
	signal(SIGCHLD, SIG_DFL);
}

// A child that is traced by its parent. Under -f that takes it from us, with a sentence.
static void traces(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0) {
		long r = ptrace(PTRACE_TRACEME, 0, 0, 0);
		if (r == 0)
			raise(SIGSTOP);
		_exit(r == 0 ? work(4) : 66);
	}
	AGAIN(waitpid(pid, &status, 0));
	say(" %#x", status);
	if (WIFSTOPPED(status)) {
		R(ptrace(PTRACE_SETOPTIONS, pid, 0, PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD));
		R(ptrace(PTRACE_SYSCALL, pid, 0, 0));
		AGAIN(waitpid(pid, &status, 0));
		say(" %#x", status);
		R(ptrace(PTRACE_CONT, pid, 0, 0));
		waited(pid);
	}
}

static void namespaces(void)
{
	IN_CHILD(_exit(unshare(CLONE_NEWUTS) == 0 ? sethostname("calls", 5) == 0 : errno));
	IN_CHILD(_exit(unshare(CLONE_NEWUSER) == 0 ? getuid() % 100 : errno));
	IN_CHILD(_exit(unshare(CLONE_NEWNS | CLONE_NEWIPC) == 0 ? work(2) : errno));
	IN_CHILD(
		if (unshare(CLONE_NEWPID)) _exit(errno);
		pid_t p = fork(); int status;
		if (p == 0) _exit(getpid());
		waitpid(p, &status, 0);
		_exit(WEXITSTATUS(status)));
	IN_CHILD(int f = open("/proc/self/ns/uts", O_RDONLY); _exit(setns(f, CLONE_NEWUTS) == 0 ? 5 : errno));
	IN_CHILD(_exit(unshare(CLONE_FILES | CLONE_FS | CLONE_SYSVSEM) == 0 ? 6 : errno));
	IN_CHILD(_exit(chroot("/proc") == 0 ? open("/self", O_PATH) >= 0 : errno));
}

static void landlocked(void)
{
	IN_CHILD(
		uint64_t handled = 0x1fff & ~1ULL; // all of the first version but to execute
		int f = syscall(N_landlock, &handled, 8L, 0);
		if (f < 0) _exit(errno == ENOSYS || errno == EOPNOTSUPP ? 44 : 45);
		prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		if (syscall(N_landlock + 2, f, 0)) _exit(46);
		work(3);
		_exit(open("/etc/passwd", O_RDONLY) == -1 && errno == EACCES ? 44 : 47));
}

static void filter_with(unsigned number, unsigned then, unsigned flags, int *fd)
{
	struct { unsigned short code; unsigned char jt, jf; unsigned k; } f[] = {{0x20, 0, 0, 0}, {0x15, 0, 1, number}, {0x06, 0, 0, then}, {0x06, 0, 0, 0x7fff0000}};
	struct { unsigned short n; void *f; } prog = {4, f};

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	*fd = syscall(SYS_seccomp, 1, flags, &prog);
}

static void filters(void)
{
	int fd;

	IN_CHILD(filter_with(SYS_getppid, 0x00050000 | 55, 0, &fd); work(1); _exit(syscall(SYS_getppid) == -1 ? errno : 1));
	IN_CHILD(filter_with(SYS_getppid, 0x80000000, 0, &fd); work(1); syscall(SYS_getppid));
	IN_CHILD(filter_with(SYS_getppid, 0, 0, &fd); work(1); syscall(SYS_getppid));
	IN_CHILD(filter_with(SYS_getppid, 0x7ff00000, 0, &fd); work(1); _exit(syscall(SYS_getppid) == -1 ? errno : 1));
	IN_CHILD(filter_with(SYS_getppid, 0x7ffc0000, 1, &fd); work(1); _exit(syscall(SYS_getppid) == -1));
	IN_CHILD(prctl(PR_SET_SECCOMP, 1); work(2); syscall(SYS_exit, 9));
}

// A child's calls are answered by its parent.
static void notified(void)
{
	int pair[2], fd = -1;
	char byte = 0;

	R(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	pid_t pid = fork();
	if (pid == 0) {
		filter_with(SYS_getppid, 0x7fc00000, 8 /* NEW_LISTENER */, &fd);
		if (dup2(fd, 200) < 0 || write(pair[1], "f", 1) != 1)
			_exit(82);
		work(3);
		_exit(syscall(SYS_getppid));
	}
	R(read(pair[0], &byte, 1));
	int pidfd = syscall(N_pidfd_open, pid, 0);
	fd = syscall(N_pidfd_getfd, pidfd, 200, 0);
	struct seccomp_notif n = {0};
	struct seccomp_notif_resp r = {0};
	R(ioctl(fd, SECCOMP_IOCTL_NOTIF_RECV, &n));
	r.id = n.id, r.val = 61;
	say(" %d", n.data.nr == SYS_getppid);
	R(ioctl(fd, SECCOMP_IOCTL_NOTIF_SEND, &r));
	waited(pid);
	close(fd), close(pidfd), close(pair[0]), close(pair[1]);
}

static void users(void)
{
	IN_CHILD(_exit(setresuid(65534, 65534, 65534) == 0 ? setuid(0) == -1 ? 7 : 8 : errno));
	IN_CHILD(_exit(seteuid(65534) == 0 ? (work(1), seteuid(0)) == 0 ? 9 : 10 : errno));
	IN_CHILD(gid_t g[2] = {5, 6}; _exit(setgroups(2, g) == 0 ? getgroups(0, NULL) : errno));
	IN_CHILD(_exit(syscall(SYS_setfsuid, 65534) >= 0 ? syscall(SYS_setfsuid, -1) % 100 : 99));
	IN_CHILD(uint32_t h[2] = {0x20080522, 0}, d[6] = {0}; _exit(syscall(SYS_capset, h, d) == 0 ? setpriority(PRIO_PROCESS, 0, -5) == -1 ? errno : 3 : errno));
	IN_CHILD(_exit(prctl(PR_CAPBSET_DROP, 5, 0, 0, 0) == 0 ? prctl(PR_CAPBSET_READ, 5, 0, 0, 0) : errno));
}

static void capabilities(void)
{
	uint32_t h[2] = {0x20080522, 0}, d[6] = {0}, bad[2] = {7, 0};

	R(syscall(SYS_capget, h, d));
	R(syscall(SYS_capget, bad, d));
	R(prctl(PR_CAP_AMBIENT, 1, 30, 0, 0));
	R(prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0));
}

static void personalities(void)
{
	IN_CHILD(personality(ADDR_NO_RANDOMIZE | PER_LINUX); _exit(personality(0xffffffff) == ADDR_NO_RANDOMIZE ? work(1) : 99));
	IN_CHILD(personality(READ_IMPLIES_EXEC); char *p = area(4096); _exit(p != MAP_FAILED ? 3 : 4));
}

static void schedules(void)
{
	struct sched_param zero = {0};

	R(sched_getscheduler(0));
	IN_CHILD(struct sched_param p = {3}; _exit(sched_setscheduler(0, SCHED_FIFO, &p) == 0 ? (work(1), sched_getscheduler(0)) : errno));
	IN_CHILD(struct sched_param p = {0}; _exit(sched_setscheduler(0, SCHED_BATCH, &p) == 0 ? sched_getscheduler(0) : errno));
	R(sched_setscheduler(0, 77, &zero));
	R(sched_get_priority_max(SCHED_RR));
	R(sched_yield());
	R(getpriority(PRIO_PROCESS, 0) >= 0);
	R(syscall(SYS_ioprio_get, 1, 0) >= 0);
}

static void affinities(void)
{
	unsigned char set[128] = "";
	unsigned cpu = 9999;

	say(" %d", syscall(SYS_sched_getaffinity, 0, sizeof set, set) > 0);
	R(syscall(SYS_sched_setaffinity, 0, sizeof set, set) >= 0);
	R(syscall(SYS_getcpu, &cpu, NULL, NULL));
	say(" %d", cpu < 9999);
	memset(set, 0, sizeof set);
	R(syscall(SYS_sched_setaffinity, 0, sizeof set, set));
}

static void limits(void)
{
	struct rlimit r = {20, 20}, old;

	IN_CHILD(setrlimit(RLIMIT_NOFILE, &r); int f = -1; for (int i = 0; i < 30; i++) f = dup(1); _exit(f == -1 ? errno : 0));
	IN_CHILD(struct rlimit c = {1, 1}; setrlimit(RLIMIT_CPU, &c); for (volatile long i = 0;; i++) work(i));
	IN_CHILD(struct rlimit c = {100, 100}; setrlimit(RLIMIT_FSIZE, &c); int f = memory_file(""); _exit(ftruncate(f, 1000) == 0));
	IN_CHILD(struct rlimit c = {0, 0}; setrlimit(RLIMIT_DATA, &c); work(1); _exit(sbrk(1 << 20) == (void *)-1 ? errno : 1));
	R(syscall(SYS_prlimit64, 0, RLIMIT_STACK, NULL, &old));
	R(setrlimit(77, &r));
}

static void prctls(void)
{
	char name[16] = "";

	R(prctl(PR_SET_NAME, "renamed"));
	R(prctl(PR_GET_NAME, name));
	say(" %s", name);
	R(prctl(PR_SET_TIMERSLACK, 1));
	R(prctl(PR_GET_TIMERSLACK));
	R(prctl(PR_GET_DUMPABLE));
	R(prctl(PR_GET_SECCOMP) >= 0);
	R(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
	R(prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
	R(prctl(PR_MCE_KILL_GET, 0, 0, 0, 0));
	R(prctl(7777, 1));
	R(prctl(PR_SET_PTRACER, -1) * 0);
	work(1);
}

static void usage(void)
{
	struct rusage r;
	struct tms t;

	R(getrusage(RUSAGE_SELF, &r));
	R(getrusage(RUSAGE_THREAD, &r));
	R(getrusage(99, &r));
	say(" %d", times(&t) != (clock_t)-1);
	struct sysinfo s;
	R(sysinfo(&s));
	R(s.procs > 0);
}

static void names(void)
{
	struct utsname u;
	char host[300];

	R(uname(&u));
	say(" %s", u.sysname);
	R(gethostname(host, sizeof host));
	R(gethostname(host, 0));
	R(uname((void *)nowhere));
	R(getppid() > 0);
	R(syscall(SYS_gettid) == getpid());
}

static void rings_of_keys(void)
{
	say(" %d", syscall(SYS_keyctl, 0, -1, 0) == -1);
	R(syscall(SYS_add_key, "nonsense", "x", "y", 1, -2) == -1);
	R(syscall(SYS_request_key, "user", "calls:nothing", NULL, 0) == -1);
}

static void perfs(void)
{
	struct perf_event_attr a = {.type = PERF_TYPE_SOFTWARE, .size = sizeof a, .config = PERF_COUNT_SW_DUMMY, .exclude_kernel = 1};
	int f = syscall(SYS_perf_event_open, &a, 0, -1, -1, 0);
	uint64_t v = 0;

	say(" %d", f >= 0);
	if (f >= 0) {
		R(read(f, &v, 8));
		close(f);
	}
}

static void bpfs(void)
{
	union bpf_attr a = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 8, .max_entries = 2};
	int f = syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof a);

	say(" %d", f >= 0);
	R(syscall(SYS_bpf, 9999, &a, sizeof a) == -1);
	if (f >= 0)
		close(f);
}

static void undumpable(void)
{
	IN_CHILD(prctl(PR_SET_DUMPABLE, 0); work(1); int f = open("/proc/self/mem", O_RDONLY); _exit(f >= 0 ? 1 : errno));
}
