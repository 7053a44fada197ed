// Every class of x86-64 instruction that user programs have. A round with count
// N calls each function N times and prints "NAME CHECKSUM", or "NAME none" where
// the processor lacks the instructions. With arguments, only those functions run.
#include "prog.h"
#include <cpuid.h>
#include <stdint.h>

typedef uint64_t fn(uint64_t a, uint64_t b, void *buf);

uint64_t guarded(fn *f, uint64_t a, uint64_t b, void *buf, uint64_t *spoilt);

// A jump table, where the compiler makes one of it.
PROBED uint64_t c_switch(uint64_t a, uint64_t b, void *buf)
{
	(void)buf;
	switch (a % 12) {
	case 0: return b + 1;
	case 1: return b * 3;
	case 2: return b ^ 0x55;
	case 3: return b - a;
	case 4: return b << 3;
	case 5: return b / 7;
	case 6: return ~b;
	case 7: return b | a;
	case 8: return b & a;
	case 9: return b % 1000;
	case 10: return b >> 5;
	default: return 0;
	}
}

PROBED uint64_t fib(uint64_t n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }

PROBED uint64_t c_fib(uint64_t a, uint64_t b, void *buf)
{
	(void)buf;
	return fib(a % 10) * 100 + fib(b % 8);
}

PROBED uint64_t tail_b(uint64_t a, uint64_t b, void *buf) { (void)buf; return a * 31 + b; }
PROBED uint64_t c_tail(uint64_t a, uint64_t b, void *buf) { return tail_b(b ^ 1, a, buf); }

PROBED uint64_t cet_leaf(uint64_t a) { return a ^ (a >> 3); }

PROBED uint64_t c_cet(uint64_t a, uint64_t b, void *buf)
{
	uint64_t (*volatile leaf)(uint64_t) = cet_leaf;

	(void)buf;
	return leaf(a) + leaf(b);
}

struct big { uint64_t v[9]; };

PROBED struct big make_big(uint64_t a, uint64_t b)
{
	struct big x;

	for (int i = 0; i < 9; i++)
		x.v[i] = a * (uint64_t)i + b;
	return x;
}

PROBED uint64_t c_struct(uint64_t a, uint64_t b, void *buf)
{
	struct big x = make_big(a, b), y = x;

	memcpy(buf, &y, sizeof y);
	return x.v[3] ^ y.v[8];
}

PROBED uint64_t c_libc(uint64_t a, uint64_t b, void *buf)
{
	char *s = buf;

	memset(s, 0, 1024);
	snprintf(s, 100, "%llu and %.6f", (unsigned long long)a, (double)b / 3);
	memmove(s + 200, s + 1, strlen(s));
	return strlen(s) + (unsigned char)s[203] + (uint64_t)strcmp(s, s + 200) % 7;
}

enum need { BASE, SSE4, AVX, AVX2, BMI, FMA, AVX512 };

static int have(enum need n)
{
	switch (n) {
	case BASE: return 1;
	case SSE4: return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
	case AVX: return __builtin_cpu_supports("avx");
	case AVX2: return __builtin_cpu_supports("avx2");
	case FMA: return __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2");
	case AVX512: return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
	case BMI: {
		unsigned a, b = 0, c, d;

		// adcx/adox have no name in the compiler's list.
		__get_cpuid_count(7, 0, &a, &b, &c, &d);
		return __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("bmi") && (b & bit_ADX);
	}
	}
	return 0;
}

#define ASM_FUNCS(X)                                                            \
	X(i_arith, BASE) X(i_shift, BASE) X(i_riprel, BASE) X(i_stack, BASE)    \
	X(i_flags, BASE) X(i_jcc, BASE) X(i_loops, BASE) X(i_calls, BASE)       \
	X(i_jumps, BASE) X(i_string, BASE) X(i_atomic, BASE) X(i_bits, BASE)    \
	X(i_muldiv, BASE) X(i_redzone, BASE) X(i_syscall, BASE) X(i_misc, BASE) \
	X(i_endbr, BASE) X(i_x87, BASE) X(i_sse, BASE) X(i_sse4, SSE4)          \
	X(i_avx, AVX) X(i_avx2, AVX2) X(i_bmi, BMI) X(i_fma, FMA) X(i_avx512, AVX512)
#define C_FUNCS(X) \
	X(c_switch, BASE) X(c_fib, BASE) X(c_tail, BASE) X(c_cet, BASE) X(c_struct, BASE) X(c_libc, BASE)

#define DECLARE(f, n) fn f;
ASM_FUNCS(DECLARE)

#define ROW(f, n) {#f, f, n},
static const struct {
	const char *name;
	fn *f;
	enum need need;
} table[] = {ASM_FUNCS(ROW) C_FUNCS(ROW)};

static _Alignas(64) unsigned char buf[1024];

static int wanted(const char *name, int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		if (!strcmp(argv[i], name))
			return 1;
	return argc == 1;
}

int main(int argc, char **argv)
{
	long n = 100;

	__builtin_cpu_init();
	while (next_round(&n)) {
		for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
			uint64_t sum = 0, spoilt, a = 0x243f6a8885a308d3, b = 0x13198a2e03707344;

			if (!wanted(table[i].name, argc, argv))
				continue;
			if (!have(table[i].need)) {
				printf("%s none\n", table[i].name);
				continue;
			}
			memset(buf, 0, sizeof buf);
			for (long k = 0; k < n; k++) {
				sum = fold(sum, guarded(table[i].f, a, b, buf, &spoilt));
				CHECK(spoilt == 0);
				a = fold(b, sum);
				b = k % 5 ? a >> (k % 64) : a; // equal, small and large ones
			}
			for (unsigned j = 0; j < sizeof buf; j++)
				sum = fold(sum, buf[j]);
			printf("%s %016llx\n", table[i].name, (unsigned long long)sum);
		}
	}
	return failures != 0;
}
