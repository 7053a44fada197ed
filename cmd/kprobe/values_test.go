package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// cValues are definitions for programs of package source's tests, and what events say.
type cValues struct {
	def  string
	want []string
}

// engines are both ways to read values, for the i-th build of a program: handlers and programs in the target. In the gate the
// first build has both, and each other one of them by turns.
func engines(i int) [][]string {
	both := [][]string{{"--stops"}, nil}
	if testing.Short() && i > 0 {
		return both[i%2:][:1]
	}
	return both
}

// hold holds that events have the values of the definitions' events called ev, of handlers and of programs in the target.
func hold(t *testing.T, path string, cases []cValues, hows [][]string) {
	t.Helper()
	for _, how := range hows {
		args := append([]string{"trace", "--no-summary"}, how...)
		event := func(i int) string { return fmt.Sprint("ev", i) }
		for i, c := range cases {
			args = append(args, strings.Replace(c.def, ":ev ", ":"+event(i)+" ", 1))
		}
		r := run(t, append(args, "--", path)...)
		for i, c := range cases {
			got := values(r.Lines, event(i))
			for i := range got {
				if strings.HasPrefix(got[i], "x=") {
					continue
				}
				got[i] = strings.ReplaceAll(pointer.ReplaceAllString(strings.ReplaceAll(got[i], "Some{0x", "Some=0x"), "=P"), "=P}", "=P")
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v %s: %q, want %q\n%v", how, c.def, got, c.want, r)
			}
		}
	}
}

// TestEnumerations holds that an enumeration is a number with or without sign as its compiler has it, also in a part of a word, and is told
// by its names.
func TestEnumerations(t *testing.T) {
	for i, cc := range [][]string{{"gcc", "-O2", "-g"}, {"clang", "-O2", "-g"}, {"gcc", "-O1", "-gdwarf-2", "-gstrict-dwarf"}, {"g++", "-O0", "-gdwarf-4"}} {
		name := "signs.c"
		t.Run(strings.Join(cc, " "), func(t *testing.T) {
			if cc[0] == "g++" {
				cc = append(slices.Clone(cc), "-fpermissive", "-w")
			}
			path := compiledSource(t, append(slices.Clone(cc), name)...)
			hold(t, path, []cValues{
				{"p:ev look *p v w", []string{"p={f=RUN,l=LESS,h=TOP,pad=1} v=TOP w=LESS", "p={f=READ|RUN,l=MORE,h=2415919105,pad=2} v=2415919105 w=MORE"}},
				{"p:ev look p->pad if p->f == 4", []string{"pad=1"}},
				{"p:ev look p->pad if p->f < 0 || p->f > 7", nil},
				{"p:ev look p->pad if p->l < 0", []string{"pad=1"}},
				{"p:ev look p->pad if p->f == RUN && p->l == LESS", []string{"pad=1"}},
				{"p:ev look p->pad if v > 5 && p->h == v", []string{"pad=1", "pad=2"}},
				{"p:ev look p->pad if p->h == 0x80000000", []string{"pad=1"}},
				{"p:ev look p->pad if w < 0", []string{"pad=1"}},
				// Each of a pattern's functions returns something else.
				{"r:ev signs:*ret_* $retval", []string{"arg1=4294967280", "arg1=-16", "arg1=-16"}},
				{"r:ev signs:*ret_[fs]* x=$retval:x32 if $retval < 0", []string{"x=0xfffffff0"}},
				{"r:ev last $retval if $retval > 5", []string{"arg1=TOP"}},
			}, engines(i))
		})
	}
}

// TestArraysOfCharacters holds that text in an array ends with the array: when it is printed, when it is compared, and where memory
// ends with it. Arrays of small numbers are such.
func TestArraysOfCharacters(t *testing.T) {
	for i, cc := range [][]string{{"gcc", "-O2", "-g"}, {"clang", "-O1", "-gdwarf-4"}} {
		path := compiledSource(t, append(slices.Clone(cc), "chars.c")...)
		hold(t, path, []cValues{
			{"p:ev look p->tag p->kind p->n p->mac p->small p->name p->one", []string{
				`tag="RIFF" kind="WAVE" n=1094861636 mac={0,1,2,3,4,255} small={-1,0,1} name={"ab","cde"} one="x"`,
				`tag="RIF" kind="" n=0 mac={0,0,0,0,0,0} small={0,0,0} name={"",""} one=""`}},
			{"p:ev look p->long_one", []string{`long_one="` + strings.Repeat("x", 300) + `"`, `long_one=""`}},
			{"p:ev look e=*at_end t=p->tag:string u=p->kind:ustring", []string{`e="LAST" t="RIFF" u="WAVE"`, `e="L" t="RIF" u=""`}},
			{`p:ev look p->n if p->tag == "RIFF"`, []string{"n=1094861636"}},
			{`p:ev look p->n if p->tag == "RIF"`, []string{"n=0"}},
			{`p:ev look p->n if p->tag != "RIFF" || *at_end ~ "LA*"`, []string{"n=1094861636", "n=0"}},
			{`p:ev look p->n if p->one == "x" && p->name[1] == "cde"`, []string{"n=1094861636"}},
			{`p:ev look p->n if s == "RIFF" && *at_end == "LAST"`, []string{"n=1094861636"}},
		}, engines(i))
	}
}

// TestStaticMembers holds that what a class has once, and not in each object, is no part of an object.
func TestStaticMembers(t *testing.T) {
	for i, cc := range [][]string{{"g++", "-O1", "-gdwarf-4"}, {"g++", "-O0", "-gdwarf-5"}, {"clang++", "-O0", "-gdwarf-4", "-fstandalone-debug"}, {"clang++", "-O2", "-gdwarf-5", "-fstandalone-debug"}} {
		path := compiledSource(t, append(slices.Clone(cc), "members.cc")...)
		hold(t, path, []cValues{
			{"p:ev look *p s", []string{`p={a=3,name="abcd",b=4} s="hello"`}},
			{"p:ev look p->b if p->name == \"abcd\"", []string{"b=4"}},
			// An array that a bit-field or a static member follows has its elements.
			{"p:ev hear *t n->v n->n", []string{`t={tag="RIFF",f=2,g=3} v={1,2,3} n=4`}},
		}, engines(i))
		if testing.Short() && i%3 != 0 {
			continue // each compiler, and each version
		}
		refused(t, run(t, "trace", "p look p->count", "--", path), "has no member \"count\": it has a, name, b")
	}
}

// TestFloatingConditions holds that floating-point numbers are compared as such, and that no comparison with a division by 0 holds.
func TestFloatingConditions(t *testing.T) {
	path := compiledSource(t, "gcc", "-O2", "-g", "floats.c")
	hold(t, path, []cValues{
		{"p:ev look p->d p->f if p->d < 0", []string{"d=-2.5 f=0.1"}},
		{"p:ev look p->n if p->d > 6", []string{"n=2"}},
		{"p:ev look p->n if p->d != p->d || p->f == 0", []string{"n=1", "n=3"}},
		{"p:ev look p->n if p->f == 0.1f || p->d == 6.5", []string{"n=0", "n=2"}},
		{"p:ev look p->n if p->f == 0.1", nil},
		{"p:ev look p->n if !(p->d <= 6)", []string{"n=2", "n=3"}},
		{"p:ev look p->n if p->d * 2 == 13 || p->d < n - p->f", []string{"n=0", "n=1", "n=2"}},
		{"p:ev look n k if n % k == 0 || n / k >= 0", []string{"n=1 k=1", "n=3 k=1"}},
		{"p:ev look n if !(n % k == 0)", []string{"n=0", "n=2"}},
	}, engines(0))
	refused(t, run(t, "trace", "p look p->n if p->d & 1", "--", path), "p->d is a floating-point number, for which there is no &")
}

// TestVariants holds that a value of Rust's that is one of several things is told as that, in registers as well as in memory.
func TestVariants(t *testing.T) {
	for i, cc := range [][]string{{"rustc", "-g"}, {"rustc", "-g", "-C", "opt-level=1"}, {"rustc", "-g", "-C", "opt-level=3"}} {
		path := compiledSource(t, append(slices.Clone(cc), "variants.rs")...)
		pair, small := "Pair{1,500}", "Byte{4}"
		if len(cc) > 2 { // LLVM keeps the tag alone
			const out = `"<this part of it is optimized out>"`
			pair, small = "Pair{"+out+","+out+"}", "Byte{"+out+"}"
		}
		hold(t, path, []cValues{
			{"p:ev number $arg*", []string{"n=0 a=Some{-5} b=None", "n=1 a=None b=Some{6}"}},
			{"p:ev text $arg*", []string{`n=0 a=Some{"hey"} b=None`, "n=1 a=None b=Some=P"}},
			{"p:ev letter $arg*", []string{"n=0 a=Some{233} b=None c=Some{0}", "n=1 a=None b=Some{{{9}}} c=None"}},
			{"p:ev shape $arg*", []string{"n=0 a=Square{3} b=" + pair + " c=Less", "n=0 a=Nothing b=Empty c=Greater", "n=1 a=Circle{-4} b=" + small + " c=Less", "n=1 a=Nothing b=Empty c=Greater"}},
		}, engines(i))
	}
}

// TestComputed holds that variables which are left as computations have the values that gdb prints.
func TestComputed(t *testing.T) {
	first := map[string]string{"mul": "84", "sum": "107", "less": "-93", "neg": "-7", "not": "-8", "and": "0", "or": "103", "xor": "99", "shl": "56", "shra": "1", "shr": "12", "deep": "65453"}
	second := map[string]string{"mul": "-84", "sum": "-10", "less": "-4", "neg": "7", "not": "6", "and": "4080", "or": "-3", "xor": "4", "shl": "-56", "shra": "-2", "shr": "2305843009213693951", "deep": "10"}
	names := []string{"mul", "sum", "less", "neg", "not", "and", "or", "xor", "shl", "shra", "shr", "deep"}
	for i, cc := range [][]string{{"gcc", "-O2", "-g"}, {"clang", "-O2", "-g"}, {"gcc", "-O1", "-gdwarf-4"}} {
		path := compiledSource(t, append(slices.Clone(cc), "computed.c")...)
		var want []string
		for _, v := range []map[string]string{first, second} {
			line := ""
			for _, name := range names {
				line += " " + name + "=" + v[name]
			}
			want = append(want, line[1:])
		}
		hold(t, path, []cValues{
			{"p:ev parts p", []string{"p={a=-5,b=-6}", "p={a=5,b=6}"}},
			{"p:ev computed.c:16 " + strings.Join(names, " "), want},
			{"p:ev computed.c:16 mul if deep == 10 && sum < 0", []string{"mul=-84"}},
		}, engines(i))
	}
	hold(t, compiledSource(t, "gcc", "-O2", "-g", "computed.c"), []cValues{{"p:ev computed.c:16 narrow truth", []string{"narrow=131170 truth=0", "narrow=131067 truth=1"}}}, engines(1))
}
