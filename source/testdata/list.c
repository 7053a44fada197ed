#include <stdio.h>
#include <string.h>
#include <stdlib.h>
struct inner { int x, y; };
struct node { struct node *next; char name[8]; unsigned bits:3, more:5; struct inner in[2]; const char *text; };
enum colour { RED, GREEN = 5, BLUE };
int counter = 7;
static __thread int tls = 3;
static inline int twice(int v) { counter += v; return v * 2; }
__attribute__((noinline)) int work(struct node *n, int depth, enum colour c) {
  int sum = depth;
  for (struct node *p = n; p; p = p->next) {
    sum += twice(p->in[1].y);
    sum += twice(depth);
  }
  tls += c;
  return sum + tls;
}
int main(int argc, char **argv) {
  struct node b = { 0, "bee", 1, 2, {{1,2},{3,4}}, "hello" };
  struct node a = { &b, "aye", 3, 9, {{5,6},{7,8}}, "world" };
  int total = 0;
  for (int i = 0; i < 3; i++)
    total += work(&a, i + argc, GREEN);
  printf("%d %d\n", total, counter);
  return 0;
}
