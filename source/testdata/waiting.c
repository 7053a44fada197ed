#include <stdio.h>
#include <unistd.h>
struct node { struct node *next; int y; };
int counter;
static inline int twice(int v) { counter += v; return v * 2; }
__attribute__((noinline)) int work(struct node *n, int depth) {
  int sum = depth;
  for (struct node *p = n; p; p = p->next)
    sum += twice(p->y) + twice(depth);
  return sum;
}
int main(void) {
  struct node b = {0, 3}, a = {&b, 4};
  setvbuf(stdout, 0, _IOLBF, 0);
  printf("ready\n");
  for (int i = 0; getchar() != EOF; i++)
    printf("%d\n", work(&a, i));
  return 0;
}
