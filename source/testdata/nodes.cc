// Containers whose elements are in nodes, and what may be empty.
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#define NOINLINE __attribute__((noinline))
struct V { int a; std::string s; };
enum Flags { READ = 1, WRITE = 2, EXEC = 4 };

NOINLINE int trees(std::map<int, V> &m, std::set<std::string> &s, std::multimap<int, int> &mm, std::vector<std::set<int>> &vs)
{
	asm volatile("" ::"r"(&m), "r"(&s), "r"(&mm), "r"(&vs) : "memory");
	return 1;
}
NOINLINE int chains(std::list<V> &l, std::list<std::unique_ptr<int>> &p, std::unordered_map<std::string, std::vector<int>> &u, std::unordered_set<int> &us)
{
	asm volatile("" ::"r"(&l), "r"(&p), "r"(&u), "r"(&us) : "memory");
	return 2;
}
NOINLINE int maybes(std::optional<V> &o, std::optional<std::string> &os, std::optional<int> &oi, std::tuple<int, V, std::string> &t, Flags f)
{
	asm volatile("" ::"r"(&o), "r"(&os), "r"(&oi), "r"(&t), "r"(f) : "memory");
	return 3;
}
// Nodes that are none.
NOINLINE int wild(std::map<int, V> &m, std::list<std::string> &l, std::unordered_map<int, V> &u)
{
	asm volatile("" ::"r"(&m), "r"(&l), "r"(&u) : "memory");
	return 4;
}

int main()
{
	std::map<int, V> m;
	std::set<std::string> s;
	std::multimap<int, int> mm;
	std::vector<std::set<int>> vs;
	std::list<V> l;
	std::list<std::unique_ptr<int>> p;
	std::unordered_map<std::string, std::vector<int>> u;
	std::unordered_set<int> us;
	std::optional<V> o;
	std::optional<std::string> os;
	std::optional<int> oi;
	std::tuple<int, V, std::string> t{1, {2, "t"}, "tt"};
	int sum = trees(m, s, mm, vs) + chains(l, p, u, us) + maybes(o, os, oi, t, EXEC);
	for (int i = 5; i-- > 0;) {
		m[i] = {i * 10, "v" + std::to_string(i)};
		l.push_back({i, "l"});
	}
	for (int i = 0; i < 9; i++) us.insert(7);
	s = {"b", "a", "c"};
	mm = {{1, 2}, {1, 1}};
	vs = {{3, 1, 2}, {}, {5}};
	p.push_back(std::make_unique<int>(4));
	p.push_back(nullptr);
	u["k"] = {1, 2};
	o = V{8, "o"}, os = "opt", oi = 6;
	sum += trees(m, s, mm, vs) + chains(l, p, u, us) + maybes(o, os, oi, t, Flags(READ | EXEC));
	for (int i = 5; i < 40; i++) m[i] = {i, ""};
	std::list<std::string> whole{"here, so that compilers tell what it is"};
	std::unordered_map<int, V> too{{1, {}}};
	sum += whole.size() - too.size();
	unsigned long bad[3][7];
	for (auto &b : bad) for (auto &word : b) word = 0x7fffffffffffff00;
	sum += wild(*(std::map<int, V> *)bad[0], *(std::list<std::string> *)bad[1], *(std::unordered_map<int, V> *)bad[2]);
	return sum != 16;
}
