// A program without a library that runs machine code from any state, and tells the state
// in which it ended: at the first signal. It is told what to do on its standard input.

typedef unsigned long u64;
typedef unsigned int u32;

static long sys(long n, long a, long b, long c, long d, long e, long f)
{
	register long x8 asm("x8") = n, x0 asm("x0") = a, x1 asm("x1") = b, x2 asm("x2") = c;
	register long x3 asm("x3") = d, x4 asm("x4") = e, x5 asm("x5") = f;
	asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
}

enum { READ = 63, WRITE = 64, EXIT = 93, ALTSTACK = 132, SIGACTION = 134, MMAP = 222 };

static char in[1 << 16], out[1 << 16];
static u64 have, used, filled;

static void flush(void)
{
	for (u64 done = 0; done < filled;) {
		long n = sys(WRITE, 1, (long)(out + done), filled - done, 0, 0, 0);
		if (n <= 0)
			sys(EXIT, 2, 0, 0, 0, 0, 0);
		done += n;
	}
	filled = 0;
}

static void get(void *to, u64 n)
{
	for (char *p = to; n > 0; n--) {
		if (used == have) {
			flush();
			long got = sys(READ, 0, (long)in, sizeof in, 0, 0, 0);
			if (got <= 0)
				sys(EXIT, 0, 0, 0, 0, 0, 0);
			have = got;
			used = 0;
		}
		*p++ = in[used++];
	}
}

static void put(const void *from, u64 n)
{
	for (const char *p = from; n > 0; n--) {
		if (filled == sizeof out)
			flush();
		out[filled++] = *p++;
	}
}

static u64 number(void)
{
	u64 v;
	get(&v, sizeof v);
	return v;
}

// State as it goes over the pipe; the kernel's frame has the same parts.
struct state {
	u64 x[31], sp, pc, pstate, v[64];
};

static void clean(char *from, char *to)
{
	for (char *p = from; p < to; p += 16)
		asm volatile("dc cvau, %0; dsb ish; ic ivau, %0" : : "r"(p) : "memory");
	asm volatile("dsb ish; isb" : : : "memory");
}

static void handler(int sig, void *info, char *uc)
{
	u64 *regs = (u64 *)(uc + 184), *vectors = (u64 *)(uc + 480);
	static int started;
	static struct state st;

	if (started) {
		u64 report[2] = { sig, ((u64 *)info)[2] };
		for (int i = 0; i < 34; i++)
			((u64 *)&st)[i] = regs[i];
		for (int i = 0; i < 64; i++)
			st.v[i] = vectors[i];
		put(report, sizeof report);
		put(&st, sizeof st);
	}
	started = 1;
	for (;;) {
		u64 op = number();
		u64 addr = op == 'r' ? 0 : number(), len = op == 'r' ? 0 : number();
		switch (op) {
		case 'm':
		case 'b':
			if (sys(MMAP, addr, len, op == 'b' ? 7 | 0x10 : 7, 0x100032, -1, 0) != (long)addr)
				sys(EXIT, 3, 0, 0, 0, 0, 0);
			break;
		case 'w':
			get((void *)addr, len);
			clean((char *)addr, (char *)addr + len);
			break;
		case 'g':
			put((void *)addr, len);
			break;
		case 'r':
			get(&st, sizeof st);
			for (int i = 0; i < 34; i++)
				regs[i] = ((u64 *)&st)[i];
			for (int i = 0; i < 64; i++)
				vectors[i] = st.v[i];
			return;
		default:
			sys(EXIT, 4, 0, 0, 0, 0, 0);
		}
	}
}

static char stack[1 << 16] __attribute__((aligned(16)));

void _start(void)
{
	u64 alt[3] = { (u64)stack, 0, sizeof stack };
	u64 action[4] = { (u64)handler, 0x08000004, 0, ~0ul }; // on its own stack, with the state
	sys(ALTSTACK, (long)alt, 0, 0, 0, 0, 0);
	for (int sig = 4; sig <= 11; sig++)
		if (sig == 4 || sig == 5 || sig == 7 || sig == 8 || sig == 11)
			sys(SIGACTION, sig, (long)action, 0, 8, 0, 0);
	asm volatile("brk 0");
}
