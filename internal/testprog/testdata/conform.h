// conform.c as a module of Linux 5.4 or later on x86-64: what is written to
// /sys/module/conform/parameters/round is played, and what was said is read
// there. No header of the kernel's is needed: the few things of its that are used
// are declared here, and module.go adds the rest from a module that was built for it.
#ifndef CONFORM_H
#define CONFORM_H

#define PROBED __attribute__((noinline, noclone, used))
#define BARRIER() __asm__ volatile("" ::: "memory")

typedef __builtin_va_list va_list;
struct task_struct;

extern struct module __this_module;
int vscnprintf(char *buf, unsigned long size, const char *fmt, va_list args);
struct task_struct *kthread_create_on_node(int (*fn)(void *), void *data, int node, const char *fmt, ...);
int wake_up_process(struct task_struct *);
int kthread_stop(struct task_struct *);
_Bool kthread_should_stop(void);
void msleep(unsigned);

static char said[2048];
static unsigned long said_len;

static __attribute__((format(printf, 1, 2))) int say(const char *fmt, ...)
{
	va_list args;
	int n;

	__builtin_va_start(args, fmt);
	n = vscnprintf(said + said_len, sizeof said - said_len, fmt, args);
	__builtin_va_end(args);
	said_len += n;
	return n;
}

struct thread {
	struct task_struct *task;
	long (*run)(long);
	long arg, result;
	volatile int over;
};

static void nap(void) { msleep(1); }

// A thread may not be gone before it is waited for.
static int enter_thread(void *p)
{
	struct thread *t = p;

	t->result = t->run(t->arg);
	t->over = 1;
	while (!kthread_should_stop())
		nap();
	return 0;
}

static void spawn(struct thread *t)
{
	t->over = 0;
	t->task = kthread_create_on_node(enter_thread, t, -1, "conform");
	wake_up_process(t->task);
}

// What is stopped before it ran at all never runs.
static void join(struct thread *t)
{
	while (!t->over)
		nap();
	kthread_stop(t->task);
}

static void play(const char *what, long n);

struct kernel_param;

static int set_round(const char *value, const struct kernel_param *p)
{
	long n = 0;

	(void)p;
	said_len = 0;
	for (const char *c = value; *c; c++)
		if (*c >= '0' && *c <= '9')
			n = n * 10 + (*c - '0');
	play(value, n);
	return 0;
}

static int get_round(char *buffer, const struct kernel_param *p)
{
	(void)p;
	for (unsigned long i = 0; i < said_len; i++)
		buffer[i] = said[i];
	return said_len;
}

static const struct kernel_param_ops {
	unsigned flags;
	int (*set)(const char *, const struct kernel_param *);
	int (*get)(char *, const struct kernel_param *);
	void (*free)(void *);
} round_ops = {.set = set_round, .get = get_round};

static const struct kernel_param {
	const char *name;
	struct module *mod;
	const struct kernel_param_ops *ops;
	unsigned short perm;
	signed char level;
	unsigned char flags;
	void *arg;
} round_param __attribute__((used, section("__param"), aligned(8))) = {
	.name = "round", .mod = &__this_module, .ops = &round_ops, .perm = 0600, .level = -1,
};

int init_module(void) { return 0; }
void cleanup_module(void) {}

#endif
