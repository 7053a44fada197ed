// Loops that the compiler turns into AVX-512, and intrinsics it would not
// choose by itself.
#include <immintrin.h>

#define LOOP(name, T, U, expr)                                        \
	void name(T *restrict a, const U *restrict b, const U *restrict c, int n) \
	{                                                             \
		for (int i = 0; i < n; i++)                           \
			a[i] = (T)(expr);                             \
	}

LOOP(f32, float, float, b[i] * c[i] + a[i])
LOOP(f64, double, double, b[i] / c[i] - a[i])
LOOP(f16, _Float16, _Float16, b[i] * c[i] + a[i])
LOOP(f16to32, float, _Float16, b[i] + c[i])
LOOP(f64to16, _Float16, double, b[i] * c[i])
LOOP(i8, signed char, signed char, b[i] > c[i] ? b[i] - c[i] : a[i])
LOOP(i16, short, short, b[i] * c[i] >> 3)
LOOP(u16to64, unsigned long, unsigned short, b[i] + (unsigned long)c[i])
LOOP(i32, int, int, b[i] < 5 ? c[i] * b[i] : a[i] ^ 3)
LOOP(i64, long, long, b[i] * c[i] + (b[i] >> (c[i] & 63)))
LOOP(cvt, int, double, b[i] < c[i] ? b[i] : c[i])
LOOP(ucvt, float, unsigned long, b[i] | c[i])
LOOP(pop, int, int, __builtin_popcount(b[i]) + __builtin_clz(c[i] | 1))

void gather(float *a, const float *b, const int *at, int n)
{
	for (int i = 0; i < n; i++)
		a[at[i]] = b[at[i]] + 1;
}

__m512i table[64];

__m512i mixed(__m512i a, __m512i b, __mmask64 k, __m512 f, int *p)
{
	a = _mm512_mask_add_epi8(a, k, a, b);
	a = _mm512_maskz_permutexvar_epi16(k, a, b);
	a = _mm512_ternarylogic_epi64(a, b, table[3], 0x5c);
	a = _mm512_dpbusd_epi32(a, b, _mm512_set1_epi32(*p));
	a = _mm512_multishift_epi64_epi8(a, b);
	a = _mm512_shldv_epi32(a, b, a);
	a = _mm512_conflict_epi32(_mm512_rol_epi32(a, 7));
	a = _mm512_gf2p8affine_epi64_epi8(a, b, 3);
	a = _mm512_aesenc_epi128(a, b);
	f = _mm512_add_round_ps(f, f, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
	f = _mm512_getexp_round_ps(f, _MM_FROUND_NO_EXC);
	f = _mm512_fixupimm_ps(f, f, a, 5);
	f = _mm512_range_ps(f, f, 3);
	a = _mm512_add_epi32(a, _mm512_castps_si512(f));
	_mm512_mask_compressstoreu_epi32(p, (__mmask16)k, a);
	_mm512_mask_i32scatter_epi32(p, (__mmask16)k, a, b, 4);
	return _mm512_mask_expand_epi8(a, _kxor_mask64(k, _kshiftri_mask64(k, 3)), b);
}

void tiles(const void *p, void *q)
{
	_tile_loadconfig(p);
	_tile_loadd(1, p, 64);
	_tile_stream_loadd(2, p, 64);
	_tile_dpbssd(0, 1, 2);
	_tile_dpbf16ps(0, 1, 2);
	_tile_zero(3);
	_tile_stored(0, q, 64);
	_tile_release();
}

int main(void) { return 0; }
