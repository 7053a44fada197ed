// Types for the test of arguments by name. Compiled to BTF, for machines of both
// byte orders.
enum kind { NONE, SOME };
enum flags { A = 1u, B = 0x80000000u };
struct inner {
	char name[16];
	int nums[5];
	unsigned int lo : 3, mid : 7;
	signed int hi : 4;
	unsigned long long wide : 40;
};
struct outer {
	char *text;
	struct inner in;
	struct inner *ptr;
	union {
		int anon_a;
		long anon_b;
	};
	enum kind kind;
	enum flags flags;
	_Bool flag;
	const volatile short sh;
	void *opaque;
	char table[2][4];
};
typedef struct outer outer_t;
struct three {
	long a, b, c;
};
struct outer *probed(outer_t *o, int count, const char *s, unsigned char c, struct outer **pp)
{
	return o ? o + count + *s + c : *pp;
}
int by_value(int before, struct three t, int after) { return before + t.b + after; }
void nothing(void) {}
