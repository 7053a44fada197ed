package syntax

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func read(text string) (*File, error) { return Parse(&Source{Name: "stdin", Text: text}) }

// good are scripts with every construction of the language.
var good = []string{
	`BEGIN { exit(); }`,
	`begin { @x = 1 } end { clear(@x) }`,
	"#if0\n", "#if\n#else", "#if 0\nnever closed\n\n",
	"#if 0\nbogus\n#elif 1\n#define N 3\n#else\nmore\n#endif\n#ifdef N\nstruct foo { int x; };\n#endif\nbegin { print(N); }",
	"#!/usr/bin/env bpftrace\n#include <linux/fs.h>\n#define N 3\nstruct foo { int x; char name[16]; };\nBEGIN { print(N); }",
	`config = { max_strlen = 100; missing_probes = "warn"; } import "x.bt"; let @a = lruhash(10); BEGIN { }`,
	`uprobe:/lib/libc.so.6:malloc,uretprobe:libc:"foo(int, char)" / pid == 1 && arg0/2 > 3 / { @[comm, pid] = count(); }`,
	`kprobe:vfs_read /pid/ { @ = hist(arg2, 3) } named=kprobe:f{}`,
	`u:./a.out:f* /arg0 == 1/{ printf("%s \"%d\"\x41\101\n", str(arg0), -1) }`,
	`i:s:1 { $a = 1; let $b; let $c : uint8 = 3; let $d : string[10]; $a += $b << 2 | ~$c; }`,
	`i:s:1 { if ($a) { print(1) } else if ($b == 2) { print(2) } else { print(3) } }`,
	`i:s:1 { while ($i < 10) { $i++; if (1) { break; } continue } unroll(5) { --$i; } for ($kv : @m) { print($kv.0) } for $i : 0..10 { return; } }`,
	`i:s:1 { $x = (uint8)1; $y = (struct task_struct *)curtask; $z = ((struct foo*)arg0)->bar[3].baz; print(*$y); print(&$x); }`,
	`i:s:1 { print((1, "x", (2, 3))); print((a = 1, b = 2).a); print((1,)); print(()) }`,
	`i:s:1 { print($1 + $#); print($x ? 1 : 2); print($x ?: 2); @a[1, 2]++; @++; _ = 3; @x = -(-1) - -1 }`,
	`i:s:1 { print(sizeof(struct foo)); print(sizeof(uint64)); print(offsetof(struct foo, x)); print(sizeof($x)) }`,
	`macro m($a, @b, c) { $a + c } fn f($a : uint8) : void { return; } BEGIN { print(m($x, @y, 3)); comptime if (true) { print(1) } }`,
	`i:s:1 { $a = { let $b = 1; $b + 1 }; print(1e6 + 1_000 + 5ms + 0x1F + 017 + 3ULL) }`,
	`i:s:1 { print(1 + 2 * 3 - (4 - 5) / (6 % 7)); print((1 || 2) && 3 ^ 4 & (5 == 6)); }`,
	`tracepoint:syscalls:sys_enter_open { print(args.filename); print(args->flags & (uint64)4); print(a::b) } // the end`,
	"// a comment\n#!/usr/bin/env bpftrace\nbegin { import \"stdlib/base\"; for ($i : (1 + 1)..f($x)) { break } unroll 3 { if !pid { 1 } } while $x { $x = 0 } }",
	`usdt:/bin/sh:"\"a b\"" { print("\X41\x4\0") } uprobe:$1"$1":f {}`,
	`struct P { char *restrict c; const int if; } __attribute__((packed)) i:s:1 { print((int16[3] *)arg0); let $x: struct P[2]**; print(offsetof(struct P, if.while)); m(struct P, enum e); }`,
	`i:s:1 { $x = (typeof($y))3; @x[(int32)1, "a"] = (1, 2); print(@x[1,"a"].1); print((@y)[3]) }`,
}

// strip takes the places out of a tree, for comparing.
func strip(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			strip(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			strip(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[Span]() {
			v.SetZero()
			return
		}
		for i := range v.NumField() {
			strip(v.Field(i))
		}
	}
}

func stripped(f *File) *File { strip(reflect.ValueOf(f)); return f }

// What is printed reads as the same tree, and is printed the same.
func checkFormat(t *testing.T, text string, f *File) {
	t.Helper()
	printed := Format(f)
	again, err := read(printed)
	if err != nil {
		t.Errorf("%s\nis printed as\n%s\nwhich is refused: %v", text, printed, err)
		return
	}
	if second := Format(again); second != printed {
		t.Errorf("%s\nis printed as\n%s\nand then as\n%s", text, printed, second)
	}
	if !reflect.DeepEqual(stripped(f), stripped(again)) {
		t.Errorf("%s\nis printed as\n%s\nwhich is another tree", text, printed)
	}
}

func TestParseAndFormat(t *testing.T) {
	for _, text := range good {
		f, err := read(text)
		if err != nil {
			t.Errorf("%s\n%v", text, err)
			continue
		}
		checkFormat(t, text, f)
	}
}

// What is wrong is told at its place, all of it in one run.
func TestErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"BEGIN { $x = ; }", "stdin:1:14-15: ERROR: syntax error, unexpected ;\nBEGIN { $x = ; }\n             ~"},
		{"BEGIN { print(1) print(2) }", "stdin:1:18-23: ERROR: syntax error, unexpected print, expecting ; or }\nBEGIN { print(1) print(2) }\n                 ~~~~~"},
		{"BEGIN { $x = ; $y = 1; $z = ) }\nEND { + }", strings.Join([]string{
			"stdin:1:14-15: ERROR: syntax error, unexpected ;", "BEGIN { $x = ; $y = 1; $z = ) }", "             ~",
			"stdin:1:29-30: ERROR: syntax error, unexpected )", "BEGIN { $x = ; $y = 1; $z = ) }", "                            ~",
			"stdin:2:7-8: ERROR: syntax error, unexpected +", "END { + }", "      ~"}, "\n")},
		{"BEGIN { print(\"a", "stdin:1:15-17: ERROR: the string has no end\nBEGIN { print(\"a\n              ~~\nstdin:1:17-17: ERROR: syntax error, unexpected end of file, expecting ,\nBEGIN { print(\"a\n                ~"},
		{"\tBEGIN {\t$x = ; }", "stdin:1:15-16: ERROR: syntax error, unexpected ;\n    BEGIN {    $x = ; }\n                    ~"},
		{"BEGIN { 1++ }", "stdin:1:9-10: ERROR: The ++ operator must be applied to a map or variable\nBEGIN { 1++ }\n        ~"},
		{"BEGIN { 99999999999999999999 }", "stdin:1:9-29: ERROR: overflow: the maximum value is 18446744073709551615: 99999999999999999999\nBEGIN { 99999999999999999999 }\n        ~~~~~~~~~~~~~~~~~~~~"},
	}
	for _, tt := range tests {
		_, err := read(tt.text)
		if got := fmt.Sprint(err); got != tt.want {
			t.Errorf("%s\ngives\n%s\nnot\n%s", tt.text, got, tt.want)
		}
	}
}

// What is nested is read once, not twice at each level.
func TestNested(t *testing.T) {
	for _, text := range []string{"typeof(1)+1", "(typeof(1)+1)"} {
		for range 200 {
			text = strings.Replace(text, "1)", "typeof(1)+1)", 1)
		}
		if _, err := read("i:s:1 { print(sizeof(" + text + ")) }"); err == nil || !strings.Contains(err.Error(), "unexpected +, expecting )") {
			t.Errorf("%.40s...: %v", text, err)
		}
	}
}

// What takes several lines is shown whole.
func TestErrorOfLines(t *testing.T) {
	e := &Error{Span: Span{From: 2, To: 9}, Msg: "what", Hint: "this", Source: &Source{Name: "stdin", Text: "a {\n\tb;\n} c\nd"}}
	if got, want := e.Error(), "stdin:1-3: ERROR: what\na {\n    b;\n} c\nHINT: this"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}

// A tree that was read can be printed and read again; nothing makes the parser panic.
func FuzzParse(f *testing.F) {
	for _, text := range good {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		file, err := read(text)
		if err == nil {
			checkFormat(t, text, file)
		}
	})
}
