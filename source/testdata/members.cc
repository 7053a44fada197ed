#include <string>

// Members of a class that its objects do not have.
struct Counted {
	static int count;
	int a;
	static const long limit = 5;
	char name[4];
	static std::string last;
	int b;
};
int Counted::count = 7;

struct Tagged {
	char tag[4];
	unsigned f : 3, g : 5;
};

struct Numbers {
	int v[3];
	static int count;
	int none[0], n;
};
int Numbers::count = 1;
std::string Counted::last = "last";

__attribute__((noinline)) void look(Counted *p, Counted by, const std::string &s) {
	asm volatile("" : : "r"(p), "r"(&s) : "memory");
}

__attribute__((noinline)) void hear(Tagged *t, Numbers *n) { asm volatile("" : : "r"(t), "r"(n) : "memory"); }

int main() {
	Tagged t = {{'R', 'I', 'F', 'F'}, 2, 3};
	Numbers n = {{1, 2, 3}, {}, 4};
	hear(&t, &n);
	Counted c = {3, {'a', 'b', 'c', 'd'}, 4};
	look(&c, c, "hello");
}
