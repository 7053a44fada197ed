// Values that have parts: structs, bases, unions, containers of what has parts, smart pointers.
#include <memory>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline))

struct Base {
	virtual ~Base() {}
	int base = 5;
};
struct Derived : Base {
	double d = 1.25;
	float f = -0.5f;
	bool b = true;
	unsigned bits : 3;
	union { int i; char c[4]; } u = {0x41424344};
	std::string s = "deep";
};
struct One { int e; };
struct Two { int x; std::string name; };
struct Nest {
	Nest *self;
	struct { struct { struct { int way; } down; } in; } x;
	One arr[7];
	std::vector<One> many;
	std::vector<std::vector<int>> rows;
	int grid[2][3];
	std::vector<std::string> words;
};
struct Wide { int m[1], a, b, c, d, e, f, g, h, i, j, k, l, n, o, p, q, r; };

NOINLINE void see(Derived &d, const Nest &n, Wide *w) { asm volatile("" ::"r"(&d), "r"(&n), "r"(w) : "memory"); }
NOINLINE void point(std::unique_ptr<int> *i, std::shared_ptr<std::string> &s, std::unique_ptr<Two> &t) { asm volatile("" ::"r"(i), "r"(&s), "r"(&t) : "memory"); }

// Containers whose pointers are no pointers.
NOINLINE void wild(std::vector<std::string> &v, std::unique_ptr<Two> &t) { asm volatile("" ::"r"(&v), "r"(&t) : "memory"); }

int main()
{
	Derived d;
	Nest n{};
	Wide w{};
	d.bits = 5;
	n.self = nullptr;
	n.x.in.down.way = 9;
	for (int i = 0; i < 7; i++) n.arr[i].e = i;
	for (int i = 0; i < 12; i++) n.many.push_back({i});
	n.rows = {{1, 2}, {}, {3}};
	n.grid[1][2] = 6;
	n.words = {"a", "", "long enough that it is not kept inside"};
	see(d, n, &w);

	std::unique_ptr<int> i = std::make_unique<int>(42), none;
	std::shared_ptr<std::string> s = std::make_shared<std::string>("shared"), nobody;
	std::unique_ptr<Two> t(new Two{8, "eight"}), nothing;
	point(&i, s, t);
	point(&none, nobody, nothing);

	unsigned long at[3] = {0x10, 0x7fffffffffffff00, 0}, p = 0x10;
	wild(*(std::vector<std::string> *)at, *(std::unique_ptr<Two> *)&p);
	return 0;
}
