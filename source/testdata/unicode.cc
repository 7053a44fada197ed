// Characters of Unicode, alone, in structs and in strings.
#include <string>
#include <string_view>
struct Token { char32_t c; char16_t d; std::u16string s; std::u32string_view v; int n; };
__attribute__((noinline)) int look(Token &t, char32_t c) { asm volatile("" ::"r"(&t), "r"(c) : "memory"); return t.n; }
__attribute__((noinline)) int hear(const char *word, int n) { asm volatile("" ::"r"(word), "r"(n) : "memory"); return 0; }
int main()
{
	Token t{U'x', u'y', u"abc", U"de", 5};
	return hear("straw", 1) + hear("hay", 2) + look(t, U'q') != 5;
}
