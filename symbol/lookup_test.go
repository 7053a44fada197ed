package symbol

import (
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func names1(syms []Symbol) []string {
	var names []string
	for _, s := range syms {
		names = append(names, s.FullName())
	}
	return names
}

func TestVersions(t *testing.T) {
	f := open(t, libcPath, false)
	all := f.Lookup("memcpy")
	if len(all) != 2 || !all[0].Default || all[0].Version != "GLIBC_2.14" || all[1].Default || all[1].Version != "GLIBC_2.2.5" {
		t.Fatalf("memcpy: %+v", all)
	}
	for name, want := range map[string]*Symbol{
		"memcpy@@GLIBC_2.14": &all[0], "memcpy@GLIBC_2.14": &all[0],
		"memcpy@GLIBC_2.2.5": &all[1], "memcpy@@GLIBC_2.2.5": nil, "memcpy@GLIBC_9": nil, "memcpy@": nil, "@": nil,
	} {
		got := f.Lookup(name)
		if want == nil && got != nil || want != nil && (len(got) != 1 || got[0] != *want) {
			t.Errorf("%s: %+v", name, got)
		}
	}
	if all[0].Kind != IFunc {
		t.Errorf("memcpy is a %v", all[0].Kind)
	}
	for _, s := range all {
		if got := f.Lookup(s.FullName()); !slices.Contains(got, s) {
			t.Errorf("%s does not lead back", s.FullName())
		}
	}
}

// A library with versions may have symbols without one.
func TestUnversioned(t *testing.T) {
	script := write(t, "versions", "V1 { global: f; };\n")
	path := build(t, "gcc", "v.c", "int f(void) { return 1; } int g(void) { return 2; }",
		"-shared", "-fPIC", "-Wl,-soname,libv.so.1", "-Wl,--version-script="+script)
	f := open(t, path, false)
	for name, want := range map[string]string{"f": "V1", "g": ""} {
		s := f.Lookup(name)
		if len(s) != 1 || s[0].Version != want || s[0].Default != (want != "") || s[0].Source != Symtab {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

const cxxProgram = `
#include <string>
#include <vector>
#include <stdexcept>
#define NI __attribute__((noinline))
namespace ns {
struct Shape {
	virtual ~Shape();
	NI int area(int a) const;
	NI int area(double a) const;
	int operator+(int b) const;
};
NI Shape::~Shape() {}
NI int Shape::area(int a) const { if (a > 1000) throw std::runtime_error("big"); return a * 2; }
NI int Shape::area(double a) const { return int(a) * 3; }
NI int Shape::operator+(int b) const { return b; }
template <class T> NI T twice(T x) { return x + x; }
NI std::string join(const std::vector<std::string> &v, std::string sep) { std::string r; for (auto &s : v) r += s + sep; return r; }
}
NI int lonely() { return 1; }
int main(int argc, char **argv) {
	ns::Shape s;
	try { return s.area(argc) + s.area(2.0) + ns::twice<int>(argc) + (s + 1) + lonely() + ns::join({argv, argv + argc}, ",").size(); }
	catch (std::exception &) { return 3; }
}
`

func TestDemangled(t *testing.T) {
	f := open(t, build(t, "g++", "p.cc", cxxProgram, "-O2"), false)
	for name, want := range map[string][]string{
		"ns::Shape::area(int) const":    {"_ZNK2ns5Shape4areaEi"},
		"ns::Shape::area(double)const":  {"_ZNK2ns5Shape4areaEd"},
		"ns::Shape::area":               {"_ZNK2ns5Shape4areaEd", "_ZNK2ns5Shape4areaEi"},
		"lonely()":                      {"_Z6lonelyv"},
		"lonely":                        {"_Z6lonelyv"},
		"ns::Shape::operator+(int)":     nil, // the const is part of the parameter list
		"ns::Shape::operator+":          {"_ZNK2ns5ShapeplEi"},
		"int ns::twice<int>(int)":       {"_ZN2ns5twiceIiEET_S1_"},
		"ns::twice<int>(int)":           {"_ZN2ns5twiceIiEET_S1_"},
		"ns::twice<int>":                {"_ZN2ns5twiceIiEET_S1_"},
		"_ZN2ns5twiceIiEET_S1_":         {"_ZN2ns5twiceIiEET_S1_"},
		"ns::Shape":                     nil,
		"area":                          nil,
		"ns::nothing(int)":              nil,
		"vtable for ns::Shape":          {"_ZTVN2ns5ShapeE"},
		"typeinfo name for ns::Shape":   {"_ZTSN2ns5ShapeE"},
		"ns::Shape::area(unsigned int)": nil,
	} {
		got := names1(f.Lookup(name))
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := f.Lookup("ns::Shape::~Shape"); len(got) < 2 {
		t.Errorf("destructors: %q", names1(got))
	}
	if got := f.LookupBase("main"); len(got) != 1 || got[0].Name != "main.cold" {
		t.Errorf("clones of main: %q", names1(got))
	}
	if got := f.Match("ns::Shape::ar?a"); len(got) != 2 {
		t.Errorf("glob of C++ names: %q", names1(got))
	}
	if got := f.Match("ns::Shape::area*clone*"); len(got) != 1 {
		t.Errorf("glob of C++ clones: %q", names1(got))
	}
	// binutils' demangler must agree on every function.
	demangled := lines(run(t, "nm", "-C", f.Path()))
	mangled := lines(run(t, "nm", f.Path()))
	checked := 0
	for i, line := range mangled {
		fields := strings.Fields(line)
		if len(fields) != 3 || !strings.ContainsAny(fields[1], "tTW") || !isMangled(fields[2]) {
			continue
		}
		name := demangled[i][len("0000000000001000 T "):]
		if strings.Contains(name, "[clone") || strings.Contains(name, "[abi:") {
			continue
		}
		checked++
		if !slices.Contains(names1(f.Lookup(name)), fields[2]) {
			t.Errorf("%s does not find %s", name, fields[2])
		}
	}
	if checked < 10 {
		t.Errorf("only %d names compared", checked)
	}
}

func TestRust(t *testing.T) {
	src := `
pub struct Tree { n: u64 }
impl Tree { #[inline(never)] pub fn grow(&mut self, by: u64) -> u64 { self.n += by; self.n } }
#[inline(never)] fn plain(x: u64) -> u64 { if x > 5000 { panic!("big") } x + 1 }
fn main() { let mut t = Tree { n: std::env::args().count() as u64 }; println!("{} {}", t.grow(2), plain(3)); }
`
	for _, mangling := range []string{"legacy", "v0"} {
		flags := []string{"-Csymbol-mangling-version=" + mangling}
		if mangling == "legacy" {
			flags = append(flags, "-Zunstable-options")
		}
		t.Run(mangling, func(t *testing.T) {
			t.Setenv("RUSTC_BOOTSTRAP", "1") // legacy is an unstable option by now
			f := open(t, build(t, "rustc", "forest.rs", src, flags...), false)
			for _, name := range []string{"forest::plain", "<forest::Tree>::grow", "forest::Tree::grow"} {
				got := f.Lookup(name)
				inherent := name[0] == '<' // how v0 writes methods
				if inherent != (mangling == "v0") && name != "forest::plain" {
					continue
				}
				if len(got) != 1 || got[0].Kind != Func {
					t.Errorf("%s: %+v", name, got)
				}
			}
			if mangling == "legacy" {
				s := f.Lookup("forest::plain")[0]
				hash := regexp.MustCompile(`17(h[0-9a-f]{16})E`).FindStringSubmatch(s.Name)[1]
				if got := f.Lookup("forest::plain::" + hash); len(got) != 1 {
					t.Errorf("with its hash: %+v", got)
				}
				if got := f.Lookup("forest::plain::h0123456789abcdef"); got != nil {
					t.Errorf("with another's hash: %+v", got)
				}
			}
			if may, why := f.Unwinds(); !may {
				t.Error(why)
			}
		})
	}
}

func TestClones(t *testing.T) {
	for suffix, want := range map[string]bool{
		".isra.0": true, ".constprop.12": true, ".part.0": true, ".cold": true, ".isra.0.cold": true,
		".part.0.constprop.1": true, ".llvm.123456": true, ".lto_priv.0.lto_priv.1": true,
		"": false, ".": false, "x": false, ".issue": false, ".isras": false, "_cold": false, ".cold2": false, ".0": false,
	} {
		if got := isClone(suffix); got != want {
			t.Errorf("isClone(%q) = %v", suffix, got)
		}
	}
	src := `__attribute__((noinline)) static int slow(int *p, int k) { int s = 0; for (int i = 0; i < k; i++) s += p[i] * k; return s; }
int a[64]; int main(int c, char **v) { return slow(a, 40) + slow(a + c, 40); }`
	f := open(t, build(t, "gcc", "c.c", src, "-O2"), false)
	if got := f.LookupBase("slow"); len(got) != 1 || !strings.HasPrefix(got[0].Name, "slow.") {
		t.Errorf("clones of slow: %q", names1(got))
	}
	if got := f.Lookup("slow"); got != nil {
		t.Errorf("slow is not there by its own name: %q", names1(got))
	}
	if got := f.Nearest("slow", 3); len(got) == 0 || !strings.HasPrefix(got[0], "slow.") {
		t.Errorf("nearest to slow: %q", got)
	}
}

func TestNearest(t *testing.T) {
	f := open(t, libcPath, false)
	for name, want := range map[string]string{
		"mallco": "malloc", "prinft": "printf", "getadrinfo": "getaddrinfo", "fopne": "fopen", "_malloc": "malloc", "OPENDIR": "opendir",
		"pthread_mutex_loc": "pthread_mutex_lock",
	} {
		got := f.Nearest(name, 3)
		if len(got) == 0 || got[0] != want {
			t.Errorf("nearest to %s: %q, want %s", name, got, want)
		}
		if len(got) > 3 {
			t.Errorf("%d names, three were asked for", len(got))
		}
	}
	if got := f.Nearest("zzzzzzzzzzzzz", 3); got != nil {
		t.Errorf("nearest to nothing: %q", got)
	}
}

func TestMatch(t *testing.T) {
	f := open(t, libcPath, false)
	count := 0
	for _, s := range f.Funcs() {
		if strings.HasPrefix(s.Name, "str") && s.Source != Plt {
			count++
		}
	}
	if got := f.Match("str*"); len(got) != count || count == 0 {
		t.Errorf("str*: %d, want %d", len(got), count)
	}
	named := 0
	for _, s := range f.Match("*") {
		if s.Name == "" || s.Source == Plt {
			t.Fatalf("* matches %+v", s)
		}
		named++
	}
	if got := f.Match("*@plt"); len(got) == 0 || got[0].Source != Plt {
		t.Errorf("*@plt: %q", names1(got))
	}
	if got := f.Match("sub_*"); len(got) == 0 || got[0].Source != EhFrame {
		t.Errorf("sub_*: %q", names1(got))
	}
	t.Logf("%d named functions", named)
}

// Glob must agree with path.Match where the two mean the same: names
// without slashes, "!" written "^".
func TestGlobAsPathMatch(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"a", "b", "-", "*", "?", "[ab]", "[!a]", "[a-c]", `\*`, `\a`, "**", "[!a-b]"}
	hits := 0
	for range 100000 {
		var glob, s string
		for range rnd.IntN(6) {
			glob += pieces[rnd.IntN(len(pieces))]
		}
		for range rnd.IntN(6) {
			s += string("abc-*"[rnd.IntN(5)])
		}
		want, err := path.Match(strings.ReplaceAll(glob, "[!", "[^"), s)
		if err != nil {
			t.Fatal(glob, err)
		}
		if want {
			hits++
		}
		if got := Glob(glob, s); got != want {
			t.Fatalf("Glob(%q, %q) = %v", glob, s, got)
		}
	}
	if hits < 1000 {
		t.Errorf("only %d matches: the test says little", hits)
	}
	for _, c := range []struct {
		glob, s string
		want    bool
	}{{"net/http.*", "net/http.(*Client).Do", true}, {"a[b", "a[b", true}, {"[]]", "]", true}, {"[a-]", "-", true}, {`a\`, `a\`, true}, {"[", "[", true}} {
		if got := Glob(c.glob, c.s); got != c.want {
			t.Errorf("Glob(%q, %q) = %v", c.glob, c.s, got)
		}
	}
}

// editDistance must agree with the definition.
func TestEditDistance(t *testing.T) {
	var slow func(a, b string) int
	slow = func(a, b string) int {
		if a == "" || b == "" {
			return len(a) + len(b)
		}
		cost := 1
		if a[0] == b[0] {
			cost = 0
		}
		d := min(slow(a[1:], b)+1, slow(a, b[1:])+1, slow(a[1:], b[1:])+cost)
		if len(a) > 1 && len(b) > 1 && a[0] == b[1] && a[1] == b[0] {
			d = min(d, slow(a[2:], b[2:])+1)
		}
		return d
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	word := func() string {
		b := make([]byte, rnd.IntN(7))
		for i := range b {
			b[i] = "abc"[rnd.IntN(3)]
		}
		return string(b)
	}
	for range 3000 {
		a, b, limit := word(), word(), rnd.IntN(5)
		want, got := slow(a, b), editDistance(a, b, limit)
		if want <= limit && got != want || want > limit && got <= limit {
			t.Fatalf("editDistance(%q, %q, %d) = %d, want %d", a, b, limit, got, want)
		}
	}
}

// Names of C++ are proposed as the source has them, with the scopes that were left out; a clone's by its symbol.
func TestNearestMangled(t *testing.T) {
	src := `namespace app {
struct Server { int handle(int *p); template <class T> T twice(T x); };
__attribute__((noinline)) int Server::handle(int *p) { return *p * 3; }
template <class T> __attribute__((noinline, noclone)) T Server::twice(T x) { asm volatile("" : "+r"(x)); return x + x; }
template <class T> struct Box { T v; T held() const; };
template <class T> __attribute__((noinline, noclone)) T Box<T>::held() const { T x = v; asm volatile("" : "+r"(x)); return x; }
}
static __attribute__((noinline)) int slow(int *p, int k) { int s = 0; for (int i = 0; i < k; i++) s += p[i] * k; return s; }
int a[64];
int main(int c, char **v) { app::Server s; app::Box<int> box = {c}; return s.handle(a) + s.twice(c) + box.held() + slow(a, 40) + slow(a + c, 40); }`
	f := open(t, build(t, "g++", "near.cc", src, "-O2"), false)
	for name, want := range map[string]string{
		"app::Server::handel": "app::Server::handle", "Server::handel": "app::Server::handle", "hanlde": "app::Server::handle",
		"app::Server::handle(char)": "app::Server::handle", "app::Server::twice": "app::Server::twice<int>", "slow": "_ZL4slowPii.constprop.0",
		"app::Box::held": "app::Box<int>::held", "Box::held": "app::Box<int>::held", "held": "app::Box<int>::held", "Box::hedl": "app::Box<int>::held",
	} {
		if got := f.Nearest(name, 3); len(got) == 0 || got[0] != want {
			t.Errorf("nearest to %s: %q, want %s", name, got, want)
		}
	}
	if got := f.Nearest("app::Client::handle", 3); len(got) > 0 {
		t.Errorf("another class's: %q", got)
	}
}

func TestGeneric(t *testing.T) {
	for name, want := range map[string]string{
		"shop::Box<int>::get() const": "shop::Box::get", "most<shop::Box<long>, 3>(int)": "most", "plain": "plain", "f(int (*)(char))": "f",
		"Box<int>::operator<(Box<int> const&)": "Box::operator<", "Box<int>::operator<=>(int)": "Box::operator<=>", "P<T>::operator->()": "P::operator->",
		"F<int>::operator()(int) const": "F::operator()", "(anonymous namespace)::f<int>(int)": "(anonymous namespace)::f", "a::(anonymous namespace)::g()": "a::(anonymous namespace)::g",
		"main.(*Box[go.shape.int]).Get": "main.(*Box).Get", "main.Most[go.shape.struct { main.a int }]": "main.Most", "main.f.func1": "main.f.func1",
		"<alloc::vec::Vec<T> as core::ops::Drop>::drop": "<alloc::vec::Vec<T> as core::ops::Drop>::drop", "core::Option<T>::map": "core::Option::map",
	} {
		if got := generic(name); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
	var near nearest
	for _, name := range []string{"main.(*Box[go.shape.int]).Get", "main.Most[go.shape.int]", "main.other"} {
		for _, want := range []string{"main.Box.Get", "main.(*Box).Get", "Box.Get", "Most", "main.Most"} {
			near.add(want, name)
		}
	}
	if got := near.best(9); len(near.found) != 5 || len(got) != 2 {
		t.Errorf("%q of %v", got, near.found)
	}
}

// Many a name is looked up only to see whether it is there: names like it are looked for when they are asked for.
// To compare a name with another takes memory, so memory tells.
func TestMissingNameIsCheap(t *testing.T) {
	modules := []*Module{{Path: libcPath, Name: "libc.so.6", File: open(t, libcPath, false)}}
	look := func() error { return notFound(modules, Query{Symbol: "mallco"}) }
	if err := look(); err == nil || !strings.Contains(err.Error(), "did you mean malloc") {
		t.Fatalf("mallco: %v", err)
	}
	for range searches {
		_ = look() // now the symbols are read
	}
	if n := testing.AllocsPerRun(10, func() { _ = look() }); n > 30 {
		t.Errorf("a name that is not there takes %v allocations", n)
	}
}

// A name that no string table has leaves the symbols unread, as long as few are asked for.
func TestMentions(t *testing.T) {
	for _, debug := range []bool{false, true} {
		f := open(t, libcPath, debug)
		for name, want := range map[string]bool{
			"malloc": true, "memcpy": true, "memcpy@@GLIBC_2.14": true, "sub_1000": true, "nowhere_at_all": false, "mallo": false,
		} {
			if got := f.mentions(name); got != want {
				t.Errorf("%s: %v", name, got)
			}
		}
		for range searches {
			f.mentions("nowhere_at_all")
		}
		if !f.mentions("nowhere_at_all") {
			t.Error("names are searched for without end")
		}
	}
}
