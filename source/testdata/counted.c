/* Ten functions that are inlined wherever they are called, each with a counter of its calls. */
#include <stdio.h>
#include <stdlib.h>

static volatile long calls[10];
static volatile int sink;

#define INLINE static inline __attribute__((always_inline))

INLINE int f0(int a) { calls[0]++; return a + 1; }
INLINE int f1(int a) { calls[1]++; return a * 3; }
INLINE int f2(int a) { calls[2]++; if (a & 1) sink = a; return a - 7; }
INLINE int f3(int a) { calls[3]++; for (int i = 0; i < (a & 3); i++) sink += i; return a; }
INLINE int f4(int a) { calls[4]++; return f0(a) + f1(a); }
INLINE int f5(int a) { calls[5]++; return a > 3 ? f2(a) : f3(a); }
INLINE int f6(const char *s) { calls[6]++; return s[0]; }
INLINE int f7(int a) { calls[7]++; switch (a & 3) { case 0: return f0(a); case 1: return 5; default: return f6("x"); } }
INLINE int f8(int a) { calls[8]++; sink = a; return sink; }
INLINE int f9(int a) { calls[9]++; return f8(a) ^ f8(a + 1); }

__attribute__((noinline)) int one(int n) {
  int sum = 0;
  for (int i = 0; i < n; i++)
    sum += f4(i) + f5(i) + f7(i);
  return sum;
}

__attribute__((noinline)) int two(int n) {
  int sum = 0;
  while (n-- > 0)
    if (n % 3 == 0)
      sum += f9(n);
    else
      sum -= f5(n) + f6("yes");
  return sum;
}

int main(int argc, char **argv) {
  int n = argc > 1 ? atoi(argv[1]) : 100;
  sink = one(n) + two(n) + f9(n) + f3(n);
  for (int i = 0; i < 10; i++)
    printf("f%d %ld\n", i, calls[i]);
  return 0;
}
