/* a second unit, beside list.c: its code is not at the beginning, and some of it is far away */
#include <stdlib.h>
struct pair { long first; struct pair *next; char tag[4]; };
static inline long weigh(struct pair *p) { long w = 0; for (struct pair *q = p; q; q = q->next) { int unit = q->tag[0]; w += unit * q->first; } return w; }
__attribute__((noinline)) long chain(struct pair *p, int limit)
{
  long total = 0;
  for (int i = 0; i < limit; i++) {
    long each = weigh(p) + i;
    if (each < 0)
      abort();
    total += each;
  }
  return total;
}
__attribute__((noinline, section(".text.far"))) int far_away(int x)
{
  struct pair p = { x, 0, "abc" };
  return chain(&p, x);
}
