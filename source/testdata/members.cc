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
std::string Counted::last = "last";

__attribute__((noinline)) void look(Counted *p, Counted by, const std::string &s) {
	asm volatile("" : : "r"(p), "r"(&s) : "memory");
}

int main() {
	Counted c = {3, {'a', 'b', 'c', 'd'}, 4};
	look(&c, c, "hello");
}
