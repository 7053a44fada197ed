#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

enum class Color : unsigned char { red, green };

// text and list are values as kprobe prints them: of a long one the beginning.
std::string text(std::string_view s) {
  return "\"" + std::string(s.substr(0, 4095)) + (s.size() > 4095 ? "\"..." : "\"");
}
template <class T> std::string list(const std::vector<T> &v) {
  std::string out;
  for (size_t i = 0; i < v.size() && i < 64; i++)
    out += (i ? "," : "") + std::to_string(v[i]);
  return "{" + out + (v.size() > 64 ? ",...}" : "}");
}

// What has a library's name, and not its members, is a struct like any other.
namespace own {
template <class T> struct vector {
  T *begin, *end;
};
}

struct Order {
  std::string name;
  std::vector<long> sizes;
};

__attribute__((noinline)) void see(const std::string &s, std::vector<int> &v, std::string_view w, std::string by) {
  printf("see s=%s v=%s w=%s by=%s\n", text(s).c_str(), list(v).c_str(), text(w).c_str(), text(by).c_str());
}
__attribute__((noinline)) void take(Order *o, own::vector<int> *mine) {
  printf("take name=%s sizes=%s\n", text(o->name).c_str(), list(o->sizes).c_str());
}

int main() {
  std::vector<int> v{1, 2, -3}, none, many(1000, 5);
  see("hello", v, "view", "by");
  see("", none, "", std::string(5000, 'x'));
  see(std::string(40, 'h'), many, "w", "");
  Order o{"first", {1l << 40, -1}};
  own::vector<int> mine{nullptr, nullptr};
  take(&o, &mine);
}
