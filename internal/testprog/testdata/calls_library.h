// Families of calls.c: what a C library does by itself, with callbacks, threads and tables.
#include <aio.h>
#include <arpa/inet.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <fnmatch.h>
#include <fts.h>
#include <ftw.h>
#include <glob.h>
#include <iconv.h>
#include <langinfo.h>
#include <locale.h>
#include <math.h>
#include <netdb.h>
#include <pwd.h>
#include <regex.h>
#include <search.h>
#include <wchar.h>
#include <wordexp.h>

static int less(const void *a, const void *b) { return work(*(const int *)a) - work(*(const int *)b); }

static void sorts(void)
{
	int v[50];

	for (int i = 0; i < 50; i++)
		v[i] = i * 37 % 50;
	qsort(v, 50, sizeof v[0], less);
	say(" %x", folded(v, sizeof v));
	int key = 17, *found = bsearch(&key, v, 50, sizeof v[0], less);
	say(" %d", found ? (int)(found - v) : -1);
	void *root = NULL;
	for (int i = 0; i < 9; i++)
		tsearch(&v[i], &root, less);
	say(" %d", tfind(&v[20], &root, less) == NULL);
}

static void printed(void)
{
	char buf[400];

	say(" %d", snprintf(buf, sizeof buf, "%2$s %1$*3$d %4$.17g %4$a %5$ls %6$lld|%7$n", 5, "word", 8, 0.1, L"wide", 1LL << 40, (int[1]){0}));
	say(" %s", buf);
	int a = 0, b = 0;
	char w[20];
	R(sscanf("12 0x1f words", "%d %i %19s", &a, &b, w));
	say(" %d %d %s %ld %g", a, b, w, strtol("-077", NULL, 0), strtod("0x1.8p3", NULL));
}

static ssize_t cookie_writes(void *cookie, const char *buf, size_t n) { *(unsigned *)cookie += folded(buf, n); return n; }

static void streams(void)
{
	char *text = NULL, line[32] = "";
	size_t n = 0;
	unsigned sum = 0;
	FILE *f = open_memstream(&text, &n);

	fprintf(f, "%d lines\nof %s", 2, "text");
	fclose(f);
	say(" %zu", n);
	f = fmemopen(text, n, "r");
	R(fgets(line, sizeof line, f) != NULL);
	R(fseek(f, -4, SEEK_END));
	R(fread(line, 1, 9, f));
	fclose(f);
	free(text);
	f = fopencookie(&sum, "w", (cookie_io_functions_t){.write = cookie_writes});
	fprintf(f, "%5.2f|%-8s|", 3.14159, "x");
	fclose(f);
	say(" %x", sum);
	f = tmpfile();
	R(fputs("temporary", f) >= 0);
	rewind(f);
	R(fgetc(f));
	R(ungetc('q', f));
	fclose(f);
}

static void patterns(void)
{
	regex_t r;
	regmatch_t m[3];
	glob_t g;
	wordexp_t w;

	R(regcomp(&r, "([a-z]+)-([0-9]+)", REG_EXTENDED));
	R(regexec(&r, "see abc-123 there", 3, m, 0));
	say(" %d %d", (int)m[1].rm_so, (int)m[2].rm_eo);
	regfree(&r);
	R(regcomp(&r, "(", REG_EXTENDED));
	R(fnmatch("*.[ch]", "calls.c", 0));
	R(glob("/pro[c]", 0, NULL, &g));
	say(" %s", g.gl_pathv[0]);
	globfree(&g);
	R(wordexp("a 'b c' $((2 + 3))", &w, WRDE_NOCMD));
	R(w.we_wordc);
	wordfree(&w);
}

static __thread int walked;
static int walk(const char *path, const struct stat *st, int kind) { (void)st; walked += kind == FTW_D; return work(strlen(path)) < 0; }

static void walks(void)
{
	walked = 0;
	R(ftw("/proc/self/attr", walk, 5));
	say(" %d", walked > 0);
	FTS *f = fts_open((char *[]){"/proc/self/attr", NULL}, FTS_PHYSICAL, NULL);
	R(f != NULL && fts_read(f) != NULL);
	if (f)
		fts_close(f);
	R(ftw("/nowhere", walk, 3));
}

static void zones(void)
{
	char buf[64];
	struct tm t;
	time_t when = 1700000000;

	setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3", 1);
	tzset();
	strftime(buf, sizeof buf, "%c %Z %V", localtime_r(&when, &t));
	say(" %s", buf);
	t.tm_mon = 17;
	say(" %ld", (long)mktime(&t));
	R(strptime("2024-02-29 12:34", "%Y-%m-%d %H:%M", &t) != NULL);
	say(" %d", t.tm_mday);
}

static void locales(void)
{
	wchar_t w[16];
	char buf[32] = "", *in = "caf\xe9", *out = buf;
	size_t n = 4, m = 31;

	R(setlocale(LC_ALL, "C.UTF-8") != NULL);
	R(mbstowcs(w, "\xc3\xa4\xc3\xb6x", 16));
	say(" %s", nl_langinfo(CODESET));
	R(wcscoll(L"a", L"b") < 0);
	iconv_t c = iconv_open("UTF-8", "LATIN1");
	R(c != (iconv_t)-1 ? (long)iconv(c, &in, &n, &out, &m) : -9);
	say(" %zu", strlen(buf));
	if (c != (iconv_t)-1)
		iconv_close(c);
	setlocale(LC_ALL, "C");
}

static void libraries(void)
{
#ifndef STATIC
	void *h = dlopen("libm.so.6", RTLD_NOW);
	double (*f)(double) = h ? (double (*)(double))dlsym(h, "cbrt") : NULL;

	say(" %g", f ? f(27) : 0);
	R(dlopen("/nowhere.so", RTLD_LAZY) == NULL);
	R(dlerror() != NULL);
	for (int i = 0; i < 5; i++) {
		void *again = dlopen("libresolv.so.2", RTLD_LAZY | RTLD_LOCAL);
		R(again != NULL && dlclose(again) == 0);
	}
	R(h ? dlclose(h) : -1);
	h = dlmopen(LM_ID_NEWLM, "libm.so.6", RTLD_NOW);
	say(" %d", h != NULL);
#endif
}

static void passwords(void)
{
#ifndef STATIC
	struct passwd *p = getpwuid(0);

	say(" %s", p ? p->pw_name : "nobody");
	R(getpwnam("nobody at all") == NULL);
	struct servent *s = getservbyname("http", "tcp");
	say(" %d", s ? ntohs(s->s_port) : 0);
#endif
}

static void addresses(void)
{
	char buf[64];
	struct in6_addr a;
#ifndef STATIC
	struct addrinfo *found, hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};

	R(getaddrinfo("127.0.0.1", "80", &hints, &found));
	R(found->ai_family);
	freeaddrinfo(found);
	R(getaddrinfo("not a number", "80", &hints, &found));
#endif
	R(inet_pton(AF_INET6, "fe80::1", &a));
	say(" %s", inet_ntop(AF_INET6, &a, buf, sizeof buf));
}

static void *adds(void *arg) { return (void *)work((long)arg); }

static void threads(void)
{
	pthread_t t[6];
	pthread_attr_t a;
	void *r;
	long sum = 0;

	pthread_attr_init(&a);
	R(pthread_attr_setstacksize(&a, 1 << 16));
	for (int round = 0; round < 3; round++) {
		for (long i = 0; i < 6; i++)
			pthread_create(&t[i], round ? &a : NULL, adds, (void *)i);
		for (int i = 0; i < 6; i++) {
			pthread_join(t[i], &r);
			sum += (long)r;
		}
	}
	say(" %ld", sum);
	pthread_attr_destroy(&a);
}

static void cleans(void *arg) { ++*(int *)arg; }
static void *cancelled(void *arg)
{
	pthread_cleanup_push(cleans, arg);
	for (;;)
		pause();
	pthread_cleanup_pop(0);
	return NULL;
}

__attribute__((noreturn)) static void *spins(void *arg)
{
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	for (;;)
		++*(volatile long *)arg;
}

static void cancels(void)
{
	pthread_t t, u;
	void *r;
	int cleaned = 0;
	long spun = 0;

	pthread_create(&t, NULL, cancelled, &cleaned);
	pthread_create(&u, NULL, spins, &spun);
	R(pthread_cancel(t));
	R(pthread_cancel(u));
	pthread_join(t, &r);
	say(" %d", r == PTHREAD_CANCELED);
	pthread_join(u, &r);
	say(" %d", r == PTHREAD_CANCELED);
}

struct meeting { pthread_mutex_t m; pthread_cond_t c; pthread_rwlock_t l; int turn; long sum; };

static void *takes_turns(void *arg)
{
	struct meeting *m = arg;

	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&m->m);
		while (m->turn != 1)
			pthread_cond_wait(&m->c, &m->m);
		m->turn = 0;
		m->sum += work(i);
		pthread_cond_broadcast(&m->c);
		pthread_mutex_unlock(&m->m);
	}
	return NULL;
}

static void conditions(void)
{
	struct meeting m = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER, 0, 0};
	struct timespec past = {1, 0};
	pthread_t t;

	pthread_create(&t, NULL, takes_turns, &m);
	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&m.m);
		while (m.turn != 0)
			pthread_cond_wait(&m.c, &m.m);
		m.turn = 1;
		pthread_cond_broadcast(&m.c);
		pthread_mutex_unlock(&m.m);
	}
	pthread_join(t, NULL);
	say(" %ld", m.sum);
	pthread_mutex_lock(&m.m);
	R(pthread_cond_timedwait(&m.c, &m.m, &past));
	R(pthread_mutex_trylock(&m.m));
	pthread_mutex_unlock(&m.m);
	R(pthread_rwlock_rdlock(&m.l));
	R(pthread_rwlock_trywrlock(&m.l));
	R(pthread_rwlock_unlock(&m.l));
}

static void aio(void)
{
	char buf[16] = "";
	int f = memory_file("asynchronous");
	struct aiocb a = {.aio_fildes = f, .aio_buf = buf, .aio_nbytes = 12};
	const struct aiocb *list[1] = {&a};

	R(aio_read(&a));
	while (aio_error(&a) == EINPROGRESS)
		aio_suspend(list, 1, NULL);
	R(aio_return(&a));
	say(" %s", buf);
	R(syscall(SYS_io_setup, 0, NULL));
	close(f);
}

__attribute__((noinline)) static int deep(int n)
{
	void *frames[64];
	int r = n ? deep(n - 1) : backtrace(frames, 64);

	__asm__ volatile("" : "+r"(r));
	return r;
}

static void traced_back(void) { say(" %d", deep(12) >= deep(2)); }

static void allocates(void)
{
	void *p[40];
	unsigned sum = 0;

	for (int i = 0; i < 40; i++)
		p[i] = calloc(i * i * 100 + 1, 1);
	for (int i = 0; i < 40; i += 2)
		p[i] = realloc(p[i], i * 1000 + 5);
	for (int i = 0; i < 40; i++) {
		memset(p[i], i, i + 1);
		sum += folded(p[i], i + 1);
		free(p[i]);
	}
	void *q = NULL;
	R(posix_memalign(&q, 4096, 5000));
	say(" %x %d", sum, (int)((uintptr_t)q & 4095));
	free(q);
	R(malloc(((size_t)-1) / 2 - 100) == NULL);
}

static int prepared;
static void prepares(void) { prepared++; }

static void at_forks(void)
{
	prepared = 0;
	R(pthread_atfork(prepares, prepares, prepares));
	IN_CHILD(_exit(prepared));
	say(" %d", prepared);
}

static void ends(void) { prepared += 100; }
static void ends_last(void) { _exit(57); }

static void exits(void)
{
	IN_CHILD(prepared = 0; atexit(ends_last); atexit(ends); exit(3));
	IN_CHILD(quick_exit(4));
	IN_CHILD(pthread_exit(NULL));
	IN_CHILD(_Exit(300));
	IN_CHILD(syscall(SYS_exit, 6));
}

static void numbers(void)
{
	volatile double x = 1.25;
	struct drand48_data d;
	double r;

	say(" %.10g %.10g %.10g %.10g", sin(x), exp(x), pow(x, 3.7), lgamma(x));
	srand48_r(5, &d);
	drand48_r(&d, &r);
	say(" %.10g %x", r, (unsigned)strtoul("zz", NULL, 36));
	say(" %d", (int)lrint(nearbyint(2.5 * x)));
}
