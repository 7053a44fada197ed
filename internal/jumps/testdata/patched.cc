// A program that is told, on its standard input, how to rewrite itself. It runs
// its work, says what came out, and counts what executes.
//
//	map ADDR SIZE        memory for detours
//	write ADDR HEX       bytes, anywhere
//	stray ADDR TO        who traps at ADDR goes on at TO
//	run                  the work
//	trace                the same, step by step: every instruction is counted
//	late ADDR            the next run is stepped to ADDR, and what has been written
//	                     since comes into force there
//	count ADDR           how often ADDR was executed when traced
//	read ADDR            a word

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>
#include <sys/personality.h>
#include <ucontext.h>
#include <unistd.h>
#include <vector>

extern "C" {
extern int sink;
int tables(int x, int *p, int n);
int computed(const unsigned char *code, int acc);
extern char __executable_start, etext;

void may_throw(int x) {
	if (x % 3 == 0)
		throw x;
}
}
int catches(int x);

static unsigned fib(unsigned n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

__attribute__((noinline)) unsigned work_sort(int *a, int n) {
	unsigned moves = 0;
	for (int i = 1; i < n; i++) {
		int x = a[i], j = i;
		for (; j > 0 && a[j - 1] > x; j--, moves++)
			a[j] = a[j - 1];
		a[j] = x;
	}
	return moves;
}

__attribute__((noinline)) unsigned work_text(const char *s) {
	unsigned h = 5381;
	char word[16];
	int n = 0;
	for (; *s; s++) {
		h = h * 33 ^ (unsigned char)*s;
		if (*s == ' ' || n == 15) {
			word[n] = 0;
			h += strlen(word);
			n = 0;
		} else
			word[n++] = *s;
	}
	return h;
}

__attribute__((noinline)) double work_float(double x) {
	double sum = 0;
	for (int i = 1; i < 20; i++)
		sum += (i & 1 ? x : -x) / i;
	return sum;
}

typedef unsigned (*binary)(unsigned, unsigned);
static unsigned add(unsigned a, unsigned b) { return a + b; }
static unsigned mix(unsigned a, unsigned b) { return (a << 7 | a >> 25) ^ b; }
static binary volatile functions[] = {add, mix};

__attribute__((noinline)) unsigned work_calls(unsigned x) {
	for (unsigned i = 0; i < 16; i++)
		x = functions[i & 1](x, i) * 3;
	return x + fib(7);
}

static unsigned work() {
	sink = 0;
	int a[24];
	for (int i = 0; i < 24; i++)
		a[i] = i * 7919 % 101 - 50;
	unsigned sum = work_sort(a, 24);
	for (int i = 0; i < 24; i++)
		sum = sum * 31 + a[i];
	for (int x : {99, 100, 101, 102, 103, 104, 105, 7}) {
		int p[16] = {0, 1, 2, 3, 4, 5, 6, 9, x, 4};
		sum = sum * 31 + tables(x, p, 10);
		for (int v : p)
			sum = sum * 31 + v;
	}
	static const unsigned char code[] = {0, 0, 2, 4, 1, 3, 2, 2, 0, 5};
	sum = sum * 31 + computed(code, 5);
	sum = sum * 31 + work_text("who comes there by a way that nobody knew of is sent on");
	sum = sum * 31 + (unsigned)(work_float(3.25) * 1e6);
	sum = sum * 31 + work_calls(sum);
	for (int i = 1; i < 4; i++) // last: to step through that takes long
		try {
			sum = sum * 31 + catches(i);
		} catch (int e) {
			sum += e;
		}
	return sum * 31 + sink;
}

struct change {
	uintptr_t at;
	std::vector<unsigned char> bytes;
};
static std::vector<change> queued;
static uintptr_t late, trapAt[1 << 16], trapTo[1 << 16];
static int strays, traps;
static uint32_t *counts;
static uintptr_t textStart, textEnd;
static volatile bool stepping;
enum { TF = 0x100 };

static void apply() {
	for (auto &c : queued)
		memcpy((void *)c.at, c.bytes.data(), c.bytes.size());
	queued.clear();
}

static void trapped(int sig, siginfo_t *info, void *context) {
	greg_t *regs = ((ucontext_t *)context)->uc_mcontext.gregs;
	uintptr_t pc = regs[REG_RIP];
	// A step by what was asked for: some hypervisors tell of one with TRAP_BRKPT now and then. int3
	// has a code of its own.
	if (sig == SIGTRAP && info->si_code != SI_KERNEL && stepping) {
		if (pc >= textStart && pc < textEnd)
			counts[pc - textStart]++;
		if (pc == late) {
			late = 0;
			apply();
			regs[REG_EFL] &= ~TF;
		}
		return;
	}
	if (sig == SIGTRAP)
		pc--;
	for (int i = 0; i < traps; i++)
		if (trapAt[i] == pc) {
			regs[REG_RIP] = trapTo[i];
			strays++;
			return;
		}
	char line[200];
	int n = snprintf(line, sizeof line, "signal %d code %d at %#lx, flags %#llx, step to %#lx\n", sig, info->si_code,
		(unsigned long)pc, regs[REG_EFL], (unsigned long)late);
	write(1, line, n);
	_exit(3);
}

static void run(bool step) {
	strays = 0;
	stepping = step;
	if (step)
		__asm__ volatile("pushfq; orl $0x100, (%%rsp); popfq" ::: "memory", "cc");
	unsigned sum = work();
	if (step)
		__asm__ volatile("pushfq; andl $~0x100, (%%rsp); popfq" ::: "memory", "cc");
	stepping = false;
	printf("%u %d\n", sum, strays);
	late = 0;
	traps = 0;
}

int main(int, char **argv) {
	// The same addresses every time, where that is allowed.
	if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE) && personality(ADDR_NO_RANDOMIZE) >= 0)
		execv("/proc/self/exe", argv);
	textStart = (uintptr_t)&__executable_start, textEnd = (uintptr_t)&etext;
	counts = (uint32_t *)calloc(textEnd - textStart, sizeof *counts);
	uintptr_t page = textStart & -4096;
	mprotect((void *)page, textEnd - page, PROT_READ | PROT_WRITE | PROT_EXEC);
	struct sigaction sa = {};
	sa.sa_sigaction = trapped;
	sa.sa_flags = SA_SIGINFO | SA_NODEFER;
	for (int sig : {SIGTRAP, SIGILL, SIGSEGV})
		sigaction(sig, &sa, nullptr);
	printf("%lx\n", (unsigned long)(uintptr_t)&work_sort);
	fflush(stdout);
	static char word[16];
	unsigned long a, b;
	while (scanf("%15s", word) == 1) {
		if (!strcmp(word, "map") && scanf("%lx %lx", &a, &b) == 2) {
			void *p = mmap((void *)a, b, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
			if (p != (void *)a) {
				printf("no memory at %lx\n", a);
				return 2;
			}
		} else if (!strcmp(word, "write") && scanf("%lx ", &a) == 1) {
			change c = {a, {}};
			for (int ch, high = -1; (ch = getchar()) != '\n';) {
				int digit = ch <= '9' ? ch - '0' : ch - 'a' + 10;
				if (high < 0)
					high = digit;
				else
					c.bytes.push_back(high << 4 | digit), high = -1;
			}
			queued.push_back(c);
		} else if (!strcmp(word, "stray") && scanf("%lx %lx", &a, &b) == 2) {
			trapAt[traps] = a;
			trapTo[traps++] = b;
		} else if (!strcmp(word, "late") && scanf("%lx", &a) == 1) {
			late = a;
			run(true);
			apply();
		} else if (!strcmp(word, "run")) {
			apply();
			run(false);
		} else if (!strcmp(word, "trace")) {
			apply();
			memset(counts, 0, (textEnd - textStart) * sizeof *counts);
			run(true);
		} else if (!strcmp(word, "count") && scanf("%lx", &a) == 1) {
			printf("%u\n", counts[a - textStart]);
		} else if (!strcmp(word, "read") && scanf("%lx", &a) == 1) {
			printf("%lu\n", *(volatile unsigned long *)a);
		} else {
			return 4;
		}
		fflush(stdout);
	}
}
