// Built with -fcf-protection=full: endbr64 at every entry, notrack jumps
// through tables, shadow stack instructions in setjmp's builtin.
#include <x86intrin.h>
#include <setjmp.h>

int pick(int n, int x)
{
	switch (n) {
	case 0: return x + 1;
	case 1: return x * 3;
	case 2: return x / 7;
	case 3: return x % 11;
	case 4: return x << (x & 3);
	case 5: return x ^ 0x1234;
	case 6: return -x;
	case 7: return x >> 5;
	}
	return n;
}

int (*volatile indirect)(int, int) = pick;

static void *buffer[5];

int jumps(int n)
{
	if (__builtin_setjmp(buffer))
		return indirect(n, 1);
	if (n > 3)
		__builtin_longjmp(buffer, 1);
	return n;
}

#ifdef __x86_64__
__attribute__((target("shstk"))) unsigned long long shadow(void) { return _get_ssp(); }

__attribute__((target("adx,rdpid,movdir64b,movdiri,clflushopt,clwb,cldemote,waitpkg,pku,rdrnd,rdseed,rtm,serialize,uintr,hreset,enqcmd,shstk,ptwrite,fsgsbase")))
unsigned long long modern(unsigned long long *p, unsigned a)
{
	unsigned long long r = 0;
	unsigned char c = _addcarryx_u64(0, p[0], p[1], &r);
	c = _addcarryx_u64(c, p[2], p[3], &r);
	r += _rdpid_u32() + c;
	_movdir64b(p, p + 8);
	_directstoreu_u64(p, r);
	_mm_clflushopt(p);
	_mm_clwb(p);
	_cldemote(p);
	_umonitor(p);
	r += _umwait(1, 2) + _tpause(1, 2);
	_wrpkru(_rdpkru_u32());
	_rdrand64_step(p);
	_rdseed64_step(p);
	if (_xbegin() == _XBEGIN_STARTED) {
		_xabort(3);
		_xend();
	}
	_serialize();
	_clui();
	_stui();
	r += _testui();
	_hreset(a);
	r += _enqcmd(p, p + 8);
	_ptwrite64(r);
	_writefsbase_u64(_readgsbase_u64());
	return r;
}
#else
static int shadow(void) { return 0; }
#endif

int main(int argc, char **argv) { return jumps(argc) + (int)shadow() + pick(argc, argc); }
