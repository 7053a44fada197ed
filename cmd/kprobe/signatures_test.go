package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// passable is a type that values are passed and returned in: how a program makes one of a number, and prints it as kprobe does.
type passable struct {
	name string
	make string // of n
	show string // a format, and what it shows of v
	plus bool   // of C++ only
}

var passables = []passable{
	{"char", "n", `"%d", v`, false},
	{"unsigned char", "n", `"%d", v`, false},
	{"short", "-n", `"%d", v`, false},
	{"int", "-n", `"%d", v`, false},
	{"unsigned", "4000000000u + n", `"%u", v`, false},
	{"long", "-n * 1000000007l", `"%ld", v`, false},
	{"unsigned long", "n * 1000000007ul", `"%lu", v`, false},
	{"truth", "n & 1", `"%d", v`, false},
	{"enum tint", "(enum tint)(n % 2 * 5)", `"%s", v ? "BLUE" : "RED"`, false},
	{"float", "n + 0.5f", `"%g", v`, false},
	{"double", "n + 0.25", `"%g", v`, false},
	{"long double", "n + 0.25L", `"%Lg", v`, false},
	{"wide", "(wide)-n << 64 | 7", `"%s", decimal(v)`, false},
	{"uwide", "(uwide)-n << 60", `"%s", decimal(v)`, false},
	{"_Complex double", "n - 2.5i", `"{re=%g,im=%g}", __real__ v, __imag__ v`, false},
	{"_Complex float", "n - 2.5i", `"{re=%g,im=%g}", __real__ v, __imag__ v`, false},
	{"_Complex long double", "n - 2.5i", `"{re=%Lg,im=%Lg}", __real__ v, __imag__ v`, false},
	{"v4i", "{n, n + 1, n + 2, n + 3}", `"{%d,%d,%d,%d}", v[0], v[1], v[2], v[3]`, false},
	{"v4f", "{n + 0.5f, 1, 2, 3}", `"{%g,%g,%g,%g}", v[0], v[1], v[2], v[3]`, false},
	{"v2i", "{n, n + 1}", `"{%d,%d}", v[0], v[1]`, false},
	{"struct ii", "{n, -n}", `"{a=%d,b=%d}", v.a, v.b`, false},
	{"struct ll", "{n, -n}", `"{a=%ld,b=%ld}", v.a, v.b`, false},
	{"struct lll", "{n, -n, 3}", `"{a=%ld,b=%ld,c=%ld}", v.a, v.b, v.c`, false},
	{"struct s3", "{{(short)n, 2, 3}}", `"{v={%d,%d,%d}}", v.v[0], v.v[1], v.v[2]`, false},
	{"struct cl", "{(char)n, -n}", `"{a=%d,b=%ld}", v.a, v.b`, false},
	{"struct dd", "{n + 0.5, 2}", `"{a=%g,b=%g}", v.a, v.b`, false},
	{"struct fff", "{n + 0.5f, 2, 3}", `"{a=%g,b=%g,c=%g}", v.a, v.b, v.c`, false},
	{"struct dl", "{n + 0.5, -n}", `"{a=%g,b=%ld}", v.a, v.b`, false},
	{"struct id", "{n, n + 0.5}", `"{a=%d,b=%g}", v.a, v.b`, false},
	{"struct fi", "{n + 0.5f, -n}", `"{a=%g,b=%d}", v.a, v.b`, false},
	{"struct packed", "{(char)n, -n}", `"{a=%d,b=%ld}", v.a, (long)v.b`, false},
	{"struct tight", "{n, (char)n}", `"{a=%d,b=%d}", v.a, v.b`, false},
	{"union il", "{.b = -n}", `"{a=%d,b=%ld}", v.a, v.b`, false},
	{"union lf", "{-n}", `"{a=%ld,b={a=%d,b=%d}}", v.a, v.b.a, v.b.b`, false},
	{"struct bits", "{n, -n, n * 1000000007l}", `"{a=%d,b=%d,c=%ld}", v.a, v.b, (long)v.c`, false},
	{"struct big", "{n + 0.5L}", `"{a=%Lg}", v.a`, false},
	{"struct wides", "{-n}", `"{a=%s}", decimal(v.a)`, false},
	{"struct far", "{n, -n}", `"{a=%ld,b=%ld}", v.a, v.b`, false},
	{"struct empty", "{}", `"%s", "{}"`, false},
	{"struct nest", "{{n, -n}, (enum tint)5}", `"{a={a=%d,b=%d},b=%s}", v.a.a, v.a.b, v.b ? "BLUE" : "RED"`, false},
	{"Copied", "Copied(n)", `"{a=%d,b=%ld}", v.a, v.b`, true},
	{"Ended", "{n}", `"{a=%d}", v.a`, true},
	{"Holder", "{{n}, -n}", `"{a={a=%d},b=%d}", v.a.a, v.b`, true},
	{"Derived", "Derived(n)", `"{b=%d,c=%d,a=%d}", v.b, v.c, v.a`, true},
	{"Plain", "Plain(n)", `"{a=%d,b=%ld}", v.a, v.b`, true},
}

const passablesHead = `#include <stdio.h>
#ifdef __cplusplus
#define EXTERN extern "C"
#else
#define EXTERN
#endif
typedef _Bool_ truth;
typedef __int128 wide;
typedef unsigned __int128 uwide;
#define decimal(v) (sizeof (v) == 16 && (__typeof__(v))-1 > 0 ? digits(v, "") : (v) < 0 ? digits(-(uwide)(v), "-") : digits(v, ""))
static const char *digits(uwide n, const char *sign) {
	static char text[48];
	char *at = text + 47;
	do *--at = '0' + (int)(n % 10); while (n /= 10);
	if (*sign) *--at = *sign;
	return at;
}
typedef int v4i __attribute__((vector_size(16)));
typedef float v4f __attribute__((vector_size(16)));
typedef int v2i __attribute__((vector_size(8)));
enum tint { RED, BLUE = 5 };
struct ii { int a, b; };
struct ll { long a, b; };
struct lll { long a, b, c; };
struct s3 { short v[3]; };
struct cl { char a; long b; };
struct dd { double a, b; };
struct fff { float a, b, c; };
struct dl { double a; long b; };
struct id { int a; double b; };
struct fi { float a; int b; };
struct __attribute__((packed)) packed { char a; long b; };
struct __attribute__((packed)) tight { int a; char b; };
union il { int a; long b; };
union lf { long a; struct ii b; };
struct bits { int a : 7, b : 9; long c : 40; };
struct big { long double a; };
struct wides { wide a; };
struct __attribute__((aligned(16))) far { long a, b; };
struct empty {};
struct nest { struct ii a; enum tint b; };
#ifdef __cplusplus
struct Copied { int a; long b; Copied(int n) : a(n), b(-n) {} Copied(const Copied &o) : a(o.a), b(o.b) {} };
struct Ended { int a; ~Ended() {} };
struct Holder { Ended a; int b; };
struct Base { int a; };
struct Derived : Base { int b, c; Derived(int n) { a = n; b = -n; c = 3; } };
class Plain { public: int a; long b; explicit Plain(int n) : a(n), b(-n) {} static int count; };
#endif
`

// signatures writes a program of n functions of random parameters and results, which prints what they were given and have returned.
func signatures(n int, plus bool) string {
	r := rand.New(rand.NewPCG(uint64(n), 24))
	types := slices.DeleteFunc(slices.Clone(passables), func(p passable) bool { return p.plus && !plus })
	var b, calls strings.Builder
	truth := map[bool]string{true: "bool", false: "_Bool"}[plus]
	b.WriteString(strings.Replace(passablesHead, "_Bool_", truth, 1))
	for i, p := range types {
		fmt.Fprintf(&b, "static %s make%d(int n) { %s v = %s; return v; }\nstatic void show%d(const char *name, %s v) { printf(\" %%s=\", name); printf(%s); }\n",
			p.name, i, p.name, p.make, i, ref(p.name, plus), p.show)
	}
	for f := range n {
		result := r.IntN(len(types))
		var params, args, shows, uses []string
		for k := range r.IntN(10) {
			i := r.IntN(len(types))
			params = append(params, fmt.Sprintf("%s p%d", types[i].name, k))
			args = append(args, fmt.Sprintf("make%d(%d)", i, 1+r.IntN(60)))
			shows = append(shows, fmt.Sprintf("show%d(\"p%d\", p%d);", i, k, k))
			uses = append(uses, fmt.Sprintf("\"r\"(&p%d)", k))
		}
		value := 1 + r.IntN(60)
		list := strings.Join(params, ", ")
		if list == "" {
			list = "void"
		}
		fmt.Fprintf(&b, "EXTERN __attribute__((noinline, noclone)) %s f%d(%s) {\n\t__asm__ volatile(\"\" : : %s : \"memory\");\n\tprintf(\"f%d\"); %s puts(\"\");\n\t%s v = make%d(%d); return v;\n}\n",
			types[result].name, f, list, strings.Join(uses, ", "), f, strings.Join(shows, " "), types[result].name, result, value)
		fmt.Fprintf(&calls, "\t{ %s v = f%d(%s); printf(\"r%d\"); show%d(\"ret\", v); puts(\"\"); }\n", types[result].name, f, strings.Join(args, ", "), f, result)
	}
	fmt.Fprintf(&b, "int main(void) {\n%s}\n", calls.String())
	return b.String()
}

func ref(name string, plus bool) string {
	if plus {
		return "const " + name + " &"
	}
	return name
}

var reason = regexp.MustCompile(`<.*?>`)

var namedArg = regexp.MustCompile(` (p\d+|ret)=`)

// namedArgs takes a line of values apart.
func namedArgs(line string) map[string]string {
	out := map[string]string{}
	at := namedArg.FindAllStringSubmatchIndex(line, -1)
	for i, m := range at {
		end := len(line)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		out[line[m[2]:m[3]]] = line[m[1]:end]
	}
	return out
}

// compareSignatures compares what kprobe says of the calls of such a program with what the program prints.
func compareSignatures(t *testing.T, n int, cc []string) {
	plus := strings.Contains(cc[0], "++")
	dir := t.TempDir()
	path := filepath.Join(dir, "calls")
	testprog.CompileText(t, path, append(slices.Clone(cc), "-g", "-w"), "calls"+map[bool]string{true: ".cc", false: ".c"}[plus], signatures(n, plus))
	for _, how := range []struct {
		name string
		defs []string
	}{
		{"at the first instruction", []string{"p:ev calls:f* $arg*"}},
		{"behind the prologue", nil},
		{"at the return", []string{"r:ev calls:f* ret=$retval"}},
	} {
		defs := how.defs
		if defs == nil {
			for f := range n {
				defs = append(defs, fmt.Sprintf("p:ev%d f%d $arg*", f, f))
			}
		}
		// In a file of their own: events come between the parts in which the program writes its lines.
		written := filepath.Join(dir, "events")
		res := run(t, append(append([]string{"trace", "--no-summary", "-o", written}, defs...), "--", path)...)
		events, err := os.ReadFile(written)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]map[string]string{}
		known, refusals := 0, map[string]int{}
		event := regexp.MustCompile(` ev\d*: \((?:\S+ <- )?(?:\S*\s)*?(f\d+)[^)]*\)(?:\+0x\w+\))?(.*)`)
		printed := regexp.MustCompile(`^[fr]\d+( |$)`)
		for _, l := range res.Lines {
			if printed.MatchString(l) {
				name, _, _ := strings.Cut(l, " ")
				want[name] = namedArgs(l)
			}
		}
		if len(want) < 2*n {
			t.Fatalf("%v: the program printed %d lines of %d\n%.2000v", cc, len(want), 2*n, res)
		}
		for l := range strings.Lines(string(events)) {
			m := event.FindStringSubmatch(strings.TrimSuffix(l, "\n"))
			if m == nil {
				continue
			}
			fn := m[1]
			if how.name == "at the return" {
				fn = "r" + fn[1:]
			}
			for name, got := range namedArgs(m[2]) {
				right, ok := want[fn][name]
				switch {
				case !ok:
					t.Errorf("%v, %s: %s has no %s", cc, how.name, fn, name)
				case got == right:
					known++
				case strings.Contains(got, `"<`) && !strings.Contains(got, "floating-point") && !strings.Contains(got, "vector register"):
					refusals[reason.FindString(got)]++
				default:
					t.Errorf("%v, %s: %s: %s is %s, and kprobe says %s", cc, how.name, fn, name, right, got)
				}
			}
		}
		refused := 0
		for _, k := range refusals {
			refused += k
		}
		t.Logf("%v, %s: %d right, %d refused: %v", cc, how.name, known, refused, refusals)
		if known < n/4 {
			t.Errorf("%v, %s: only %d are known: %v", cc, how.name, known, refusals)
		}
	}
}

// TestSignatures holds that arguments and results are what a program itself prints, or are refused: of random signatures, as each compiler
// passes them at each level.
func TestSignatures(t *testing.T) {
	compilers := [][]string{{"clang", "-O0"}, {"gcc", "-O0"}, {"g++", "-O0"}, {"clang++", "-O2"}}
	if testing.Short() {
		compilers = compilers[1:] // each language, and each compiler
	}
	for _, cc := range compilers {
		compareSignatures(t, 24, cc)
	}
}

// TestManySignatures does so with all levels, and 200 signatures.
func TestManySignatures(t *testing.T) {
	testprog.Long(t, "it compiles 16 programs of 200 functions")
	for _, compiler := range []string{"gcc", "clang", "g++", "clang++"} {
		for _, level := range []string{"-O0", "-O1", "-O2", "-O3"} {
			compareSignatures(t, 200, []string{compiler, level})
		}
	}
}
