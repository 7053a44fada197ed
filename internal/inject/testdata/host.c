/*
 * The program that the tests put detours into. It does what standard input says,
 * one line after another, and answers each with a line.
 *
 *   map FD ADDRESS SIZE     a shared mapping
 *   code ADDRESS SIZE       memory for code
 *   put ADDRESS HEX         bytes, into code too
 *   key THREAD              the thread pointer of a thread (0: main) that "start" has made
 *   tid THREAD              its id
 *   start N                 threads that wait for work
 *   stop                    they end
 *   call F THREADS N A B    F(A, B), F(A+1, B), ... N times, on that many of them (0: on main): the
 *                           sum of the results, and nanoseconds of CPU time for one call
 *   own ADDRESS             a thread that owns the robust futex there, until "disown"
 *   storm F N US            the same on main, while a timer signal calls F every US microseconds
 */
#define _GNU_SOURCE
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

typedef uint64_t u64;
typedef u64 probed(u64, u64);

probed f_lea, f_push, f_nest, f_jump, f_keep, f_exit, f_call;

/* Hand-made detours of f_lea: see host_floor.S. */
extern char f_exit_end[], floor_count[], floor_registers[], floor_record[], floor_return[];

static sigjmp_buf out;

/* Calls from assembly: f_jump goes A deep and is then left by longjmp. */
void leave(void) { siglongjmp(out, 1); }
static u64 jump(u64 a, u64 b) { return sigsetjmp(out, 0) ? a + b : f_jump(a % 10, b); }

/* What f_call does while it is in progress: f_lea is called on another stack, and that is
 * a part of this one. */
u64 (*meanwhile)(u64, u64); /* see host_coroutines.c */
extern probed run_coroutines;

u64 between(u64 a, u64 b)
{
	if (meanwhile) return meanwhile(a, b);
	raise(SIGUSR1);
	return a + b;
}

static void on_usr1(int s) { (void)s; f_lea(1, 2); }

static u64 on_own_stack(u64 a, u64 b)
{
	static __thread char *part;
	char room[1 << 16];
	part = room;
	signal(SIGUSR1, on_usr1);
	sigaltstack(&(stack_t){ .ss_sp = part, .ss_size = sizeof room }, NULL);
	sigaction(SIGUSR1, &(struct sigaction){ .sa_handler = on_usr1, .sa_flags = SA_ONSTACK }, NULL);
	u64 sum = f_call(a, b);
	sigaltstack(&(stack_t){ .ss_flags = SS_DISABLE }, NULL);
	return sum;
}

static struct { const char *name; probed *f; } functions[] = {
	{ "f_lea", f_lea }, { "f_push", f_push }, { "f_nest", f_nest }, { "f_keep", f_keep }, { "f_exit", f_exit },
	{ "f_call", f_call }, { "on_own_stack", on_own_stack }, { "f_jump", f_jump }, { "jump", jump },
	{ "run_coroutines", run_coroutines },
};

static struct worker {
	pthread_t thread;
	u64 key, tid, sum, ns, n, a, b;
	probed *f;
	int quit;
	pthread_barrier_t *go, *done;
} workers[64];
static int nworkers;

#ifdef __i386__
#define THREAD "gs"
#else
#define THREAD "fs"
#endif
static u64 key(void) { uintptr_t k; __asm__("mov %%" THREAD ":0, %0" : "=r"(k)); return k; }

static u64 cpu(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void work(struct worker *w)
{
	u64 start = cpu(), sum = 0;
	for (u64 i = 0; i < w->n; i++) sum += w->f(w->a + i, w->b);
	w->sum = sum, w->ns = cpu() - start;
}

static void *run(void *p)
{
	struct worker *w = p;
	w->key = key();
	w->tid = syscall(SYS_gettid);
	for (;;) {
		pthread_barrier_wait(w->go);
		if (w->quit) return NULL;
		if (w->f) work(w);
		pthread_barrier_wait(w->done);
	}
}

static pthread_barrier_t go, done;

static void start(int n)
{
	nworkers = n;
	pthread_barrier_init(&go, NULL, n + 1);
	pthread_barrier_init(&done, NULL, n + 1);
	for (int i = 0; i < n; i++) {
		workers[i] = (struct worker){ .go = &go, .done = &done };
		pthread_create(&workers[i].thread, NULL, run, &workers[i]);
	}
	pthread_barrier_wait(&go);
	pthread_barrier_wait(&done);
}

static void stop(void)
{
	for (int i = 0; i < nworkers; i++) workers[i].quit = 1;
	pthread_barrier_wait(&go);
	for (int i = 0; i < nworkers; i++) pthread_join(workers[i].thread, NULL);
	nworkers = 0;
}

static void put(char *at, const char *hex)
{
	char *page = (char *)((uintptr_t)at & ~4095ul);
	mprotect(page, at - page + strlen(hex) / 2, PROT_READ | PROT_WRITE | PROT_EXEC);
	for (unsigned v; sscanf(hex, "%2x", &v) == 1; hex += 2) *at++ = (char)v;
}

static probed *stormed;
static volatile u64 storms;
static void on_alarm(int s) { (void)s; stormed(1, 2); storms++; }

static struct { struct robust_list_head head; pthread_t thread; pthread_barrier_t owned, end; } owner;

static void *owning(void *word)
{
	*(volatile uint32_t *)word = syscall(SYS_gettid);
	owner.head.list.next = &owner.head.list;
	owner.head.futex_offset = 0;
	owner.head.list_op_pending = word; /* one futex needs no list */
	if (syscall(SYS_set_robust_list, &owner.head, sizeof owner.head)) perror("set_robust_list");
	pthread_barrier_wait(&owner.owned);
	pthread_barrier_wait(&owner.end);
	return NULL;
}

static probed *find(const char *name)
{
	for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++)
		if (!strcmp(functions[i].name, name)) return functions[i].f;
	fprintf(stderr, "no function %s\n", name);
	exit(1);
}

int main(void)
{
	static char line[1 << 20], hex[1 << 20], name[64];
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned i = 0; i < sizeof functions / sizeof *functions; i++)
		printf("%s %lx\n", functions[i].name, (unsigned long)functions[i].f);
#ifndef __i386__
	printf("floor_count %lx\nfloor_registers %lx\nfloor_record %lx\nfloor_return %lx\n", (unsigned long)floor_count,
	       (unsigned long)floor_registers, (unsigned long)floor_record, (unsigned long)floor_return);
#endif
	printf("f_exit_end %lx\n", (unsigned long)f_exit_end);
	printf("leave %lx\nready 0\n", (unsigned long)leave);
	while (fgets(line, sizeof line, stdin)) {
		unsigned long at, size, n, a, b, us;
		int fd, threads;
		if (sscanf(line, "map %d %lx %lx", &fd, &at, &size) == 3) {
			if (mmap((void *)at, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, fd, 0) != (void *)at) perror("map");
			puts("ok");
		} else if (sscanf(line, "code %lx %lx", &at, &size) == 2) {
			if (mmap((void *)at, size, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) != (void *)at) perror("code");
			memset((void *)at, 0xcc, size);
			puts("ok");
		} else if (sscanf(line, "put %lx %s", &at, hex) == 2) {
			put((char *)at, hex);
			puts("ok");
		} else if (sscanf(line, "start %d", &threads) == 1) {
			start(threads);
			puts("ok");
		} else if (sscanf(line, "own %lx", &at) == 1) {
			pthread_barrier_init(&owner.owned, NULL, 2);
			pthread_barrier_init(&owner.end, NULL, 2);
			pthread_create(&owner.thread, NULL, owning, (void *)at);
			pthread_barrier_wait(&owner.owned);
			puts("ok");
		} else if (!strncmp(line, "disown", 6)) {
			pthread_barrier_wait(&owner.end);
			pthread_join(owner.thread, NULL);
			puts("ok");
		} else if (sscanf(line, "key %d", &threads) == 1) {
			printf("%lx\n", (unsigned long)(threads ? workers[threads - 1].key : key()));
		} else if (sscanf(line, "tid %d", &threads) == 1) {
			printf("%" PRIu64 "\n", workers[threads - 1].tid);
		} else if (!strncmp(line, "stop", 4)) {
			stop();
			puts("ok");
		} else if (sscanf(line, "call %63s %d %lu %lu %lu", name, &threads, &n, &a, &b) == 5) {
			struct worker self = { .f = find(name), .n = n, .a = a, .b = b };
			u64 sum = 0, ns = 0;
			if (threads == 0) {
				work(&self);
				sum = self.sum, ns = self.ns;
			} else {
				for (int i = 0; i < nworkers; i++) {
					workers[i].f = i < threads ? self.f : NULL;
					workers[i].n = n, workers[i].a = a, workers[i].b = b;
				}
				pthread_barrier_wait(&go);
				pthread_barrier_wait(&done);
				for (int i = 0; i < threads; i++) {
					sum += workers[i].sum;
					ns = ns > workers[i].ns ? ns : workers[i].ns;
				}
			}
			printf("%" PRIu64 " %f\n", sum, n ? (double)ns / n : 0);
		} else if (sscanf(line, "storm %63s %lu %lu", name, &n, &us) == 3) {
			struct itimerval it = { { 0, us }, { 0, us } };
			struct worker self = { .f = find(name), .n = n, .a = 0, .b = 2 };
			stormed = self.f, storms = 0;
			signal(SIGALRM, on_alarm);
			setitimer(ITIMER_REAL, &it, NULL);
			work(&self);
			memset(&it, 0, sizeof it);
			setitimer(ITIMER_REAL, &it, NULL);
			printf("%" PRIu64 " %" PRIu64 "\n", self.sum, storms);
		} else {
			fprintf(stderr, "what is %s", line);
			return 1;
		}
	}
	return 0;
}
