// Families of calls.c: descriptors of all sorts.
#include <linux/if_alg.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/timerfd.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <termios.h>

static int memory_file(const char *text)
{
	int fd = syscall(SYS_memfd_create, "calls", 2 /* MFD_ALLOW_SEALING */);

	if (write(fd, text, strlen(text)) < 0)
		say(" no file");
	return fd;
}

static void pipes(void)
{
	char buf[64] = "";
	int p[2], q;

	R(pipe2(p, O_NONBLOCK | O_CLOEXEC) * 0);
	R(read(p[0], buf, 9));
	R(write(p[1], "some text", 9));
	R(ioctl(p[0], FIONREAD, &q));
	R(q);
	IS(fcntl(p[1], F_SETPIPE_SZ, 8192));
	R(read(p[0], buf, 64));
	say(" %s", buf);
	close(p[1]);
	R(read(p[0], buf, 64));
	IS(q = dup3(p[0], p[0] + 50, O_CLOEXEC));
	R(fcntl(q, F_GETFD));
	close(q);
	close(p[0]);
	R(read(-1, buf, 1)); // no number that another thread may have now
}

static void splices(void)
{
	char buf[64] = "";
	struct iovec v = {"vector text", 11};
	int p[2], q[2], f = memory_file("text of a file");

	R(pipe(p) | pipe(q));
	R(vmsplice(p[1], &v, 1, 0));
	R(tee(p[0], q[1], 6, 0));
	R(read(q[0], buf, 64));
	loff_t at = 5;
	R(splice(f, &at, q[1], NULL, 4, 0));
	R(read(q[0], buf + 6, 58));
	off_t from = 8;
	R(sendfile(p[1], f, &from, 6));
	R(read(p[0], buf + 10, 54));
	say(" %s", buf);
	loff_t a = 0, b = 20;
	R(copy_file_range(f, &a, f, &b, 4, 0));
	for (int i = 0; i < 2; i++)
		close(p[i]), close(q[i]);
	close(f);
}

static void vectors(void)
{
	char a[8] = "", b[8] = "";
	struct iovec out[2] = {{"abc", 3}, {"defgh", 5}}, in[2] = {{a, 4}, {b, 4}};
	int f = memory_file("");

	R(writev(f, out, 2));
	R(pwritev(f, out, 2, 8));
	R(preadv(f, in, 2, 2));
	say(" %s %s", a, b);
	R(preadv2(f, in, 2, 6, 0));
	say(" %s %s", a, b);
	R(pwrite(f, "X", 1, 1000));
	R(lseek(f, 0, SEEK_DATA));
	R(lseek(f, -1, SEEK_SET));
	R(readv(f, (struct iovec *)nowhere, 2));
	R(pread(f, nowhere, 1, 0));
	R(syscall(SYS_preadv, f, in, 5000, 0, 0));
	close(f);
}

static void files(void)
{
	char name[] = "/tmp/callsXXXXXX", other[64], link[64] = "";
	int f = mkstemp(name);
	struct stat st;

	snprintf(other, sizeof other, "%s.b", name);
	R(ftruncate(f, 12345));
	R(fallocate(f, 0, 20000, 100));
	R(fstat(f, &st));
	say(" %ld", (long)st.st_size);
	R(fsync(f));
	R(posix_fadvise(f, 0, 0, POSIX_FADV_DONTNEED));
	R(rename(name, other));
	R(symlink("nowhere", name));
	R(readlink(name, link, 63));
	R(open(name, O_RDONLY));
	R(open(name, O_RDONLY | O_NOFOLLOW));
	R(unlink(name));
	R(linkat(AT_FDCWD, other, AT_FDCWD, name, 0));
	R(fstat(f, &st));
	R(st.st_nlink);
	R(unlink(name) | unlink(other));
	R(fchmod(f, 0600));
	R(futimens(f, (struct timespec[2]){{1, 2}, {3, 4}}));
	R(fstat(f, &st));
	R(st.st_mtim.tv_sec);
	close(f);
	R(open("/nowhere/at/all", O_RDWR));
	R(open("/", O_WRONLY));
	R(mkdir("/proc/x", 0700));
}

static void memory_files(void)
{
	int f = memory_file("shared memory of a file");
	char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0), buf[32] = "";

	p[0] = 'S';
	R(pread(f, buf, 6, 0));
	say(" %s", buf);
	R(msync(p, 4096, MS_SYNC));
	R(munmap(p, 4096));
	R(syscall(SYS_memfd_create, "x", 0x7777));
	close(f);
}

static void secrets(void)
{
	int f = syscall(N_memfd_secret, 0);

	if (f >= 0) {
		R(ftruncate(f, 4096));
		char *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
		if (p != MAP_FAILED)
			p[1] = 3, munmap(p, 4096);
		close(f);
	}
	say(" %d", f >= 0);
}

static void seals(void)
{
	int f = memory_file("sealed");

	R(fcntl(f, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK));
	R(write(f, "x", 1));
	R(ftruncate(f, 1));
	R(ftruncate(f, 100));
	R(fcntl(f, F_GET_SEALS));
	R(fcntl(f, F_ADD_SEALS, F_SEAL_SEAL));
	R(fcntl(f, F_ADD_SEALS, F_SEAL_GROW));
	close(f);
}

static void event_counters(void)
{
	uint64_t v = 5;
	int f = eventfd(3, EFD_NONBLOCK | EFD_SEMAPHORE);

	R(write(f, &v, 8));
	for (int i = 0; i < 9; i++)
		R(read(f, &v, 8));
	v = UINT64_MAX;
	R(write(f, &v, 8));
	close(f);
}

static void epolls(void)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLET, .data.u32 = 77}, got[4];
	int ep = epoll_create1(0), p[2];
	sigset_t none;

	sigemptyset(&none);
	R(pipe(p));
	R(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e));
	R(epoll_ctl(ep, EPOLL_CTL_ADD, p[0], &e));
	R(epoll_wait(ep, got, 4, 0));
	R(write(p[1], "x", 1));
	R(epoll_wait(ep, got, 4, -1));
	say(" %u %u", got[0].events, got[0].data.u32);
	R(epoll_pwait(ep, got, 4, 0, NULL));
	R(epoll_wait(ep, got, 4, 3));
	close(p[1]);
	R(epoll_wait(ep, got, 4, 1000));
	say(" %u", got[0].events);
	R(epoll_ctl(ep, EPOLL_CTL_DEL, p[0], NULL));
	close(p[0]), close(ep);
}

static void polls(void)
{
	int p[2];
	fd_set set;
	struct timeval t = {0, 2000};
	struct timespec s = {0, 2000000};

	R(pipe(p));
	struct pollfd f[3] = {{p[0], POLLIN, 0}, {p[1], POLLOUT, 0}, {900, POLLIN, 0}};
	R(poll(f, 3, 10));
	say(" %d %d %d", f[0].revents, f[1].revents, f[2].revents);
	R(ppoll(f, 1, &s, NULL));
	FD_ZERO(&set);
	FD_SET(p[0], &set);
	R(select(p[0] + 1, &set, NULL, NULL, &t));
	R(write(p[1], "x", 1));
	FD_SET(p[0], &set);
	R(pselect(p[0] + 1, &set, NULL, NULL, NULL, NULL));
	R(poll(f, 1, -1));
	close(p[0]), close(p[1]);
}

static void timer_files(void)
{
	struct itimerspec t = {{0, 0}, {0, 2000000}}, left;
	int f = timerfd_create(CLOCK_MONOTONIC, 0);
	uint64_t n = 0;

	R(timerfd_settime(f, 0, &t, NULL));
	R(read(f, &n, 8));
	R(n);
	R(timerfd_gettime(f, &left));
	R(left.it_value.tv_nsec);
	R(timerfd_settime(f, 0, &(struct itimerspec){{0, 0}, {-1, 0}}, NULL));
	close(f);
}

static void inotifies(void)
{
	char dir[] = "/tmp/callsXXXXXX", name[64], buf[4096];
	int in = inotify_init1(IN_NONBLOCK);

	IS(mkdtemp(dir) ? 1 : -1);
	R(inotify_add_watch(in, dir, IN_CREATE | IN_DELETE | IN_CLOSE_WRITE));
	snprintf(name, sizeof name, "%s/f", dir);
	close(open(name, O_CREAT | O_WRONLY, 0600));
	unlink(name);
	long n = R(read(in, buf, sizeof buf));
	for (char *p = buf; p < buf + n; p += sizeof(struct inotify_event) + ((struct inotify_event *)p)->len)
		say(" %x:%s", ((struct inotify_event *)p)->mask, ((struct inotify_event *)p)->name);
	R(inotify_rm_watch(in, 1));
	R(inotify_rm_watch(in, 1));
	rmdir(dir);
	close(in);
}

static void unix_sockets(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX}, b;
	socklen_t n = sizeof(sa_family_t), m = sizeof b;
	char buf[32] = "";
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), c, d;

	R(bind(s, (void *)&a, n)); // the kernel finds a name
	R(getsockname(s, (void *)&b, &m));
	R(m);
	R(listen(s, 3));
	IS(c = socket(AF_UNIX, SOCK_STREAM, 0));
	R(connect(c, (void *)&b, m));
	IS(d = accept4(s, NULL, NULL, SOCK_NONBLOCK));
	R(send(c, "hello", 5, MSG_NOSIGNAL));
	R(recv(d, buf, 31, MSG_PEEK));
	R(recv(d, buf, 31, 0));
	R(recv(d, buf, 31, 0));
	struct ucred u;
	m = sizeof u;
	R(getsockopt(d, SOL_SOCKET, SO_PEERCRED, &u, &m));
	say(" %d", u.pid == getpid());
	R(shutdown(c, SHUT_WR));
	R(recv(d, buf, 31, 0));
	close(d);
	R(send(c, "x", 1, MSG_NOSIGNAL));
	close(c), close(s);
}

static void descriptors_sent(void)
{
	int pair[2], p[2], got = -1;
	char control[CMSG_SPACE(sizeof(int))] = "", byte = 'b', buf[8] = "";
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	R(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair));
	R(pipe(p));
	c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &p[0], sizeof(int));
	R(sendmsg(pair[0], &m, 0));
	R(recvmsg(pair[1], &m, MSG_CMSG_CLOEXEC));
	if ((c = CMSG_FIRSTHDR(&m)))
		memcpy(&got, CMSG_DATA(c), sizeof got);
	R(write(p[1], "through", 7));
	R(read(got, buf, 7));
	say(" %s", buf);
	close(got), close(pair[0]), close(pair[1]), close(p[0]), close(p[1]);
}

static void datagrams(void)
{
	int pair[2];
	char a[4], b[8];
	struct iovec out[2] = {{"onetwo", 6}, {"three", 5}}, in[2] = {{a, 4}, {b, 8}};
	struct mmsghdr m[2] = {{.msg_hdr = {.msg_iov = out, .msg_iovlen = 1}}, {.msg_hdr = {.msg_iov = out + 1, .msg_iovlen = 1}}};

	R(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
	R(sendmmsg(pair[0], m, 2, 0));
	m[0].msg_hdr.msg_iov = in, m[1].msg_hdr.msg_iov = in + 1;
	R(recvmmsg(pair[1], m, 2, 0, NULL));
	say(" %u %u %d", m[0].msg_len, m[1].msg_len, m[0].msg_hdr.msg_flags);
	R(recvmmsg(pair[1], m, 2, MSG_DONTWAIT, NULL));
	close(pair[0]), close(pair[1]);
}

static void loopback(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof a;
	int s = socket(AF_INET, SOCK_STREAM, 0), c, d, one = 1;
	char buf[8] = "";

	R(setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one));
	R(bind(s, (void *)&a, n));
	R(getsockname(s, (void *)&a, &n));
	R(listen(s, 1));
	IS(c = socket(AF_INET, SOCK_STREAM, 0));
	R(connect(c, (void *)&a, n));
	IS(d = accept(s, NULL, NULL));
	R(setsockopt(c, IPPROTO_TCP, 1, &one, sizeof one));
	R(send(c, "abc", 3, 0));
	R(recv(d, buf, 8, MSG_WAITALL | MSG_DONTWAIT) >= 0);
	R(getsockopt(d, SOL_SOCKET, SO_ERROR, &one, &n));
	close(c), close(d), close(s);
}

static void netlink(void)
{
	struct { struct nlmsghdr h; struct rtgenmsg g; } ask = {{sizeof ask, RTM_GETLINK, NLM_F_REQUEST | NLM_F_DUMP, 1, 0}, {AF_UNSPEC}};
	char buf[16384];
	int s = socket(AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);

	R(send(s, &ask, sizeof ask, 0));
	say(" %d", recv(s, buf, sizeof buf, 0) > 0);
	close(s);
}

static void algorithms(void)
{
	struct sockaddr_alg a = {.salg_family = AF_ALG, .salg_type = "hash", .salg_name = "sha1"};
	unsigned char sum[20] = "";
	int s = socket(AF_ALG, SOCK_SEQPACKET, 0), o;

	say(" %d", bind(s, (void *)&a, sizeof a));
	if ((o = accept(s, NULL, NULL)) >= 0) {
		R(write(o, "abc", 3));
		R(read(o, sum, 20));
		say(" %x", folded(sum, 20));
		close(o);
	}
	close(s);
}

static void urings(void)
{
	uint32_t p[30] = {0}, *ring;
	int f = syscall(N_uring_setup, 4, p);

	say(" %d", f >= 0 ? 0 : errno);
	if (f < 0)
		return;
	// Offsets: of submissions from the tenth word on, of completions from the twentieth.
	ring = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0);
	uint8_t *entries = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, f, 0x10000000);
	if (ring == MAP_FAILED || entries == (void *)-1) {
		say(" not mapped");
		close(f);
		return;
	}
	for (int i = 0; i < 3; i++) {
		entries[i * 64] = i == 2 ? 200 : 0; // nothing, and what is not there
		((uint64_t *)(entries + i * 64))[4] = 100 + i;
		ring[p[16] / 4 + i] = i;
	}
	__atomic_store_n(&ring[p[11] / 4], 3, __ATOMIC_RELEASE);
	R(syscall(N_uring_enter, f, 3, 3, 1, NULL, 0));
	for (unsigned i = 0; i < ring[p[21] / 4] && i < 3; i++) {
		uint8_t *c = (uint8_t *)ring + p[25] + i * 16;
		say(" %d:%d", (int)*(uint64_t *)c, *(int32_t *)(c + 8));
	}
	munmap(ring, 8192), munmap(entries, 4096);
	close(f);
}

static void locks_of_files(void)
{
	char name[] = "/tmp/callsXXXXXX";
	int f = mkstemp(name), g = open(name, O_RDWR);
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 10};

	R(fcntl(f, F_OFD_SETLK, &l));
	l.l_pid = 0;
	R(fcntl(g, F_OFD_SETLK, &l));
	l.l_type = F_RDLCK;
	R(fcntl(g, F_OFD_GETLK, &l));
	R(l.l_type);
	pid_t pid = fork();
	if (pid == 0) {
		l = (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 5};
		_exit(fcntl(g, F_SETLK, &l) == -1 ? errno : 0);
	}
	waited(pid);
	R(syscall(SYS_flock, f, 2 | 4));
	R(syscall(SYS_flock, g, 2 | 4));
	unlink(name);
	close(f), close(g);
}

static volatile sig_atomic_t told;
static void tells(int sig) { told = sig; work(sig); }

static void leases(void)
{
	char name[] = "/tmp/callsXXXXXX";
	int f = mkstemp(name);

	close(f);
	signal(SIGIO, tells);
	told = 0;
	f = open(name, O_RDONLY);
	R(fcntl(f, F_SETLEASE, F_RDLCK));
	R(fcntl(f, F_GETLEASE));
	R(open(name, O_WRONLY | O_NONBLOCK));
	say(" %d", told);
	R(fcntl(f, F_SETLEASE, F_UNLCK));
	unlink(name);
	close(f);
	signal(SIGIO, SIG_DFL);
}

static void attributes(void)
{
	char name[] = "/tmp/callsXXXXXX", buf[32] = "";
	int f = mkstemp(name);

	IS(fsetxattr(f, "user.calls", "value", 5, 0));
	IS(fgetxattr(f, "user.calls", buf, 32));
	R(fgetxattr(f, "user.nothing", buf, 32) == -1);
	R(fremovexattr(f, "bad") == -1);
	unlink(name);
	close(f);
}

static void stats(void)
{
	char buf[256];
	struct stat st;

	R(syscall(SYS_statx, AT_FDCWD, "/", 0, 0x7ff, buf));
	R(syscall(SYS_statx, AT_FDCWD, "/nothing", 0, 0x7ff, buf));
	R(stat("/proc/self/exe", &st));
	say(" %d", S_ISREG(st.st_mode));
	R(fstatat(1, "", &st, AT_EMPTY_PATH));
	R(faccessat(AT_FDCWD, "/", X_OK, 0));
	R(syscall(N_faccessat2, AT_FDCWD, "/nothing", R_OK, AT_EACCESS));
	R(lstat("/proc/self", &st));
	say(" %d", S_ISLNK(st.st_mode));
}

static void opens(void)
{
	uint64_t how[3] = {O_PATH | O_CLOEXEC, 0, 0x08}; // RESOLVE_BENEATH
	int d = open("/", O_PATH | O_DIRECTORY), f;

	R(syscall(N_openat2, d, "/etc", how, sizeof how));
	f = IS(syscall(N_openat2, d, "etc", how, sizeof how));
	R(syscall(N_openat2, d, "../etc", how, 8));
	(void)f;
	R(syscall(N_close_range, 700, 900, 0));
	R(syscall(N_close_range, 9, 8, 0));
	close(d);
}

static void folders(void)
{
	char buf[4096], was[256];
	int d = open("/proc/self/fdinfo", O_RDONLY | O_DIRECTORY);

	say(" %d", syscall(SYS_getdents64, d, buf, sizeof buf) > 0);
	R(syscall(SYS_getdents64, d, buf, 3));
	close(d);
	IS(getcwd(was, sizeof was) ? 1 : -1);
	R(chdir("/proc"));
	R(readlink("self", buf, 100) > 0);
	R(chdir("/nowhere"));
	R(chdir(was));
	mode_t m = umask(077);
	R(umask(m));
}

static void asynchronous(void)
{
	int pair[2];

	told = 0;
	signal(SIGIO, tells);
	R(socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
	R(fcntl(pair[0], F_SETOWN, getpid()));
	R(fcntl(pair[0], F_SETFL, O_ASYNC | O_NONBLOCK));
	R(write(pair[1], "x", 1));
	while (!told)
		sched_yield();
	say(" %d", told);
	close(pair[0]), close(pair[1]);
	signal(SIGIO, SIG_DFL);
}

static void terminals(void)
{
	char buf[64] = "", name[64];
	int m = posix_openpt(O_RDWR | O_NOCTTY), s;
	struct termios t;
	struct winsize w = {11, 22, 0, 0};

	R(grantpt(m) | unlockpt(m));
	R(ptsname_r(m, name, sizeof name));
	IS(s = open(name, O_RDWR | O_NOCTTY));
	R(ioctl(m, TIOCSWINSZ, &w));
	R(ioctl(s, TIOCGWINSZ, &w));
	say(" %d %d", w.ws_row, w.ws_col);
	R(tcgetattr(s, &t));
	R(write(m, "a line\n", 7));
	R(read(s, buf, 64));
	say(" %.6s", buf);
	t.c_lflag &= ~(ICANON | ECHO);
	R(tcsetattr(s, TCSANOW, &t));
	R(write(m, "xy", 2));
	R(read(s, buf, 64));
	R(tcgetpgrp(s));
	close(s), close(m);
}

static void cached(void)
{
	int f = memory_file("in the cache");
	uint64_t range[2] = {0, 4096}, out[8] = {0};
	long r = syscall(N_cachestat, f, range, out, 0);

	say(" %d", r == 0 || errno == ENOSYS);
	close(f);
}

static void handles(void)
{
	struct { unsigned bytes; int type; unsigned char h[128]; } h = {.bytes = 0};
	int mount;

	R(syscall(SYS_name_to_handle_at, AT_FDCWD, "/nothing", &h, &mount, 0));
	say(" %d", syscall(SYS_name_to_handle_at, AT_FDCWD, "/", &h, &mount, 0) == -1);
}
