// Families of calls.c: memory, and what processes have in common.
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

static void mappings(void)
{
	char *p = area(1 << 16);

	p[4096] = 3;
	IS(mmap(p, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
	R((long)mmap(p, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
	R((long)mmap(NULL, 4096, PROT_READ, MAP_SHARED, 900, 0));
	R((long)mmap(NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
	R(munmap(p + 1, 4096));
	R(munmap(p, 1 << 16)); // no part of it before: another thread would get that
	char *s = mmap(NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK | MAP_NORESERVE, -1, 0);
	say(" %d", s[12345]);
	munmap(s, 1 << 20);
}

static void moves(void)
{
	char *p = area(8192), *q;

	p[0] = 'm';
	q = mremap(p, 8192, 1 << 20, MREMAP_MAYMOVE);
	say(" %c", q[0]);
	q[1 << 19] = 'n';
	p = mremap(q, 1 << 20, 8192, 0);
	say(" %d", p == q);
	R((long)mremap(p, 8192, 8192, MREMAP_FIXED));
	q = mremap(p, 4096, 4096, MREMAP_MAYMOVE | 4 /* DONTUNMAP */);
	say(" %d", q != MAP_FAILED);
	munmap(q, 4096);
	munmap(p, 8192);
}

static void protections(void)
{
	char *p = area(3 * 4096);

	for (int i = 0; i < 8; i++)
		R(mprotect(p + 4096, 4096, i));
	R(mprotect(p + 4096, 4096, PROT_READ | PROT_WRITE));
	p[4096] = 1;
	R(mprotect(p, 1, PROT_NONE));
	R(write(2000, p, 1));
	R(mprotect((void *)1, 1, PROT_READ));
	munmap(p, 3 * 4096);
}

static void advice(void)
{
	char *p = area(8 * 4096);

	p[0] = 9, p[4096] = 8;
	R(madvise(p, 4096, MADV_DONTNEED));
	say(" %d %d", p[0], p[4096]);
	R(madvise(p, 4096, MADV_FREE));
	R(madvise(p, 8 * 4096, MADV_WILLNEED));
	R(madvise(p, 4096, MADV_DONTFORK));
	R(madvise(p, 4096, MADV_DOFORK));
	R(madvise(p, 4096, MADV_WIPEONFORK));
	R(madvise(p, 4096, 7777));
	R(syscall(N_madvise_process, -1, NULL, 0, 0, 0));
	munmap(p, 8 * 4096);
}

static void locked(void)
{
	char *p = area(8192);

	IS(mlock(p, 8192) == 0 ? 1 : -1);
	R(munlock(p, 8192));
	IS(mlock2(p, 4096, 1) == 0 ? 1 : -1);
	R(munlock(p, 8192));
	R(mlock((void *)4096, 4096));
	munmap(p, 8192);
}

static void pages(void)
{
	unsigned char v[4] = "";
	char *p = area(4 * 4096);

	p[4096] = 1;
	R(mincore(p, 4 * 4096, v));
	say(" %d%d%d%d", v[0] & 1, v[1] & 1, v[2] & 1, v[3] & 1);
	R(mincore(p + 1, 4096, v));
	R(mincore((void *)4096, 4096, v));
	munmap(p, 4 * 4096);
}

static void keys(void)
{
	char *p = area(4096);
	int key = syscall(SYS_pkey_alloc, 0, 0);

	if (key > 0)
		R(syscall(SYS_pkey_mprotect, p, 4096, PROT_READ | PROT_WRITE, key)), R(syscall(SYS_pkey_free, key));
	p[0] = 1;
	R(syscall(SYS_pkey_free, 99));
	munmap(p, 4096);
}

static void userfaults(void)
{
	int f = syscall(SYS_userfaultfd, 1 | O_CLOEXEC | O_NONBLOCK);
	uint64_t api[3] = {0xaa, 0, 0};

	say(" %d", f >= 0);
	if (f >= 0) {
		R(ioctl(f, 0xc018aa3f, api));
		R(read(f, api, 24) == -1);
		close(f);
	}
}

static void sealed(void)
{
	char *p = area(4096);
	long r = syscall(N_mseal, p, 4096L, 0L);

	say(" %d", r == 0 ? mprotect(p, 4096, PROT_READ) == -1 && errno == EPERM : 1);
}

static void sems(void)
{
	int id = semget(IPC_PRIVATE, 2, 0600 | IPC_CREAT);
	struct sembuf up[2] = {{0, 3, 0}, {1, 1, SEM_UNDO}}, down = {0, -2, 0}, more = {0, -2, IPC_NOWAIT};
	struct timespec soon = {0, 2000000};

	R(semop(id, up, 2));
	R(semop(id, &down, 1));
	R(semctl(id, 0, GETVAL));
	R(semop(id, &more, 1));
	more.sem_flg = 0;
	R(semtimedop(id, &more, 1, &soon));
	R(semctl(id, 0, IPC_RMID));
	R(semop(id, &down, 1) == -1);
}

static void queues(void)
{
	struct { long type; char text[16]; } m = {3, "a message"};
	int id = msgget(IPC_PRIVATE, 0600 | IPC_CREAT);

	R(msgsnd(id, &m, 10, 0));
	m.type = 1;
	R(msgsnd(id, &m, 5, 0));
	R(msgrcv(id, &m, 16, 3, 0));
	R(msgrcv(id, &m, 2, 0, IPC_NOWAIT));
	R(msgrcv(id, &m, 2, 0, MSG_NOERROR));
	R(m.type);
	R(msgrcv(id, &m, 16, 0, IPC_NOWAIT));
	R(msgctl(id, IPC_RMID, NULL));
}

static void segments(void)
{
	int id = shmget(IPC_PRIVATE, 8192, 0600 | IPC_CREAT);
	char *p = shmat(id, NULL, 0), *q = shmat(id, NULL, SHM_RDONLY);

	p[5] = 'k';
	say(" %c", q[5]);
	R(shmctl(id, IPC_RMID, NULL));
	R(shmdt(p));
	R(shmdt(q));
	R(shmdt(&id));
}

static void posix_queues(void)
{
	char name[64], buf[64] = "";
	struct mq_attr a = {.mq_maxmsg = 3, .mq_msgsize = 32};
	unsigned priority = 0;
	struct timespec past = {1, 0};

	snprintf(name, sizeof name, "/calls-%d", getpid());
	mqd_t q = mq_open(name, O_CREAT | O_RDWR, 0600, &a);
	say(" %d", q >= 0);
	if (q < 0)
		return;
	R(mq_send(q, "low", 3, 1));
	R(mq_send(q, "high", 4, 9));
	R(mq_receive(q, buf, 64, &priority));
	say(" %s %u", buf, priority);
	R(mq_receive(q, buf, 3, NULL));
	R(mq_receive(q, buf, 64, NULL));
	R(mq_timedreceive(q, buf, 64, NULL, &past));
	R(mq_unlink(name));
	mq_close(q);
}
