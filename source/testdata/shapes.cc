#include <cstdio>
namespace shop {
struct Cart {
  long total = 0;
  __attribute__((noinline)) void add(int count, int price);
};
void Cart::add(int count, int price) { total += count * price; }
}
int main() {
  shop::Cart c;
  c.add(2, 10);
  c.add(3, 5);
  printf("%ld\n", c.total);
}
