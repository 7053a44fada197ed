#include <stdio.h>
struct pair { int first, second; };
struct big { long values[6]; };
struct entry { int key; const char *name; };
static struct entry table[] = {{1, "one"}, {2, "two"}};
__attribute__((noinline)) struct pair pair(int n) { struct pair p = {n + 1, -n}; __asm__ volatile("" ::: "memory"); return p; }
__attribute__((noinline)) struct entry *find(int key) {
  for (unsigned i = 0; i < 2; i++)
    if (table[i].key == key)
      return &table[i];
  return 0;
}
__attribute__((noinline)) struct big big(int n) {
  struct big b;
  for (int i = 0; i < 6; i++)
    b.values[i] = n + i;
  return b;
}
int main(void) {
  struct pair a = pair(4), b = pair(9);
  struct entry *x = find(1), *y = find(2);
  struct big c = big(4);
  printf("%d %d %s %s %ld\n", a.first + b.first, a.second, x->name, y->name, c.values[3]);
  return 0;
}
