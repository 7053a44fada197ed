package script_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/script"
	"kprobe/symbol"
)

// Parameters come by their names, of the types that debug data tells, in code that is optimized and in code that is not.
func TestArgs(t *testing.T) {
	tests := []argsTest{
		{`uprobe:%:args_ints { print(args); print((args.a, args.b, args->c, args.d, args.e, args.f)); }`,
			"{ .a = -1, .b = 4000000000, .c = -123456789012, .d = 200, .e = -300, .f = 9223372036854775807 }\n(-1, 4000000000, -123456789012, 200, -300, 9223372036854775807)"},
		{`uprobe:%:args_string { printf("%s|%s|%d\n", str(args.s, args.n), str(args.s, args.n + 1), args.n); }`, "hello, worl|hello, world|12\n||0"},
		// A length counts the NUL, and nothing says that it has cut; max_strlen counts it, too, and what it cuts has dots behind it.
		{`config = { max_strlen = 8 } uprobe:%:args_string /args.n/ { print((str(args.s), str(args.s, 7), str(args.s, 1), str(args.s, 0), str(args.s, 8), str(args.s, args.n))); $x = str(args.s); @[str(args.s, 3)] = $x }`,
			"(hello, .., hello,, , , hello, , hello, ..)\n\n\n@[he]: hello, .."},
		{`uprobe:%:args_pointer { print((args.n->value, args.n.next->value, args.n->next->name, str(args.n->name))); print(*args.n->next); print(**args.pp);
			$n = args.n; while ($n) { @[$n->value] = $n->name; $n = $n->next; } }`,
			"(1, 4711, second, first)\n{ .next = 0x0, .value = 4711, .name = second }\n-42\n\n\n@[1]: first\n@[4711]: second"},
		// Structures by value: in one register, in memory behind the return address.
		{`uprobe:%:args_struct { print((args.p, args.p.b, args.l.v[5])); @ = args.p; $l = args.l; print($l); }`,
			"({ .a = 11, .b = 22 }, 22, 66)\n{ .v = [1,2,3,4,5,66] }\n\n\n@: { .a = 11, .b = 22 }"},
		{`uretprobe:%:args_struct { print((args.p, args.l.v[4])); }`, "({ .a = 11, .b = 22 }, 5)"},
		// An index that is beyond an array's elements gives 0, in the process and in the script's own, and not what lies behind.
		{`uprobe:%:args_struct { $i = 5; print((args.l.v[$i], args.l.v[$i + 1], args.l.v[$i - 6])); $l = args.l; print(($l.v[$i], $l.v[$i + 1])); }`, "(66, 0, 0)\n(66, 0)"},
		{`uprobe:%:args_string /args.n/ { $p = (uint8[5] *)args.s; $i = 4; print(((*$p)[$i], (*$p)[$i + 1], $p[1][$i], $p[1][$i + 2])); }`, "(111, 0, 114, 0)"},
		{`struct big { uint8 c[65536]; } uprobe:%:args_string /args.n/ { $p = (struct big *)(arg0 - 40000 * 65536); print(($p[40000].c[0], $p[40000].c[1])); }`, "(104, 101)"},
		// Pointers to arrays, and to what a member lies in.
		{`uprobe:%:args_string /args.n/ { $p = (uint8[5] *)args.s; print(((*$p)[1], $p[1][0], *$p)); $p++; print((*$p)[4]); }`, "(101, 44, [104,101,108,108,111])\n114"},
		{`macro in(p, t, m) { container_of(p, t, m) } uprobe:%:args_pointer { $at = (uint64)args.n->next + offsetof(struct node, value);
			print((container_of($at, struct node, value)->value, in((int64 *)$at, typeof(struct node), value) == args.n->next)); }`, "(4711, true)"},
		// What the script declares comes before what debug data tells.
		{`uprobe:%:args_pointer { print(((struct node *)arg0)->next->value); print(sizeof(struct node)); }`, "4711\n24"},
		{`struct node { uint64 n; } uprobe:%:args_pointer { print(sizeof(struct node)); }`, "8"},
		{`uprobe:%:args_kept { print(args.a * 10 + args.b); }`, "56"},
		{`struct bits { unsigned char low:3; unsigned char high:5; char c[12]; } uprobe:%:args_string /args.n/ { print(*(struct bits *)args.s); }`,
			"{ .low = 0, .high = 13, .c = ello, world }"},
		{`uprobe:%:args_k* { print((args.a, probe)); }`, "(5, uprobe:%:args_kept)"},
		// Of several functions each has its own.
		{`uprobe:%:args_k*,uprobe:%:args_ints { @[func] = (int64)args.a; }`, "\n\n@[args_ints]: -1\n@[args_kept]: 5"},
		{`uprobe:%:args_string,uprobe:%:args_pointer { @[func] = sum(args.n > 100); }`, "\n\n@[args_string]: 0\n@[args_pointer]: 1"},
		{`uprobe:%:args_float { print(args.c); } uprobe:%:args_many { print((args.a, args.f, args.g, args.h)); }`, "(1, 6, 7, 800000000)\n3"},
		// At the return they are what they were at the entry, whatever the registers hold then, and of each call under way its own.
		{`uretprobe:%:args_kept { print((retval, args.a, args.b, arg1, arg0)); }`, "(56, 5, 6, 6, 5)"},
		{`uretprobe:%:args_ints { print(args); print((func, args.a, args.d, (int64)arg2)); }`,
			"{ .a = -1, .b = 4000000000, .c = -123456789012, .d = 200, .e = -300, .f = 9223372036854775807 }\n(args_ints, -1, 200, -123456789012)"},
		{`uretprobe:%:args_string /arg1 == 12/ { print((str(arg0), str(args.s, 6))); }`, "(hello, world, hello)"},
		{`uretprobe:%:args_many { print((args.g, args.h, sarg1)); }`, "(7, 800000000, 800000000)"},
		{`uretprobe:%:args_pointer { print((args.n->next->value, **args.pp)); } uretprobe:%:args_pointer { @ = count(); }`, "(4711, -42)\n\n\n@: 1"},
		{`uprobe:%:args_kept { @x[tid] = arg0; } uretprobe:%:args_kept { print((@x[tid], arg0)); delete(@x, tid); }`, "(5, 5)"},
		{`uretprobe:%:args_k*,uretprobe:%:args_ints { @[func] = (int64)args.a; }`, "\n\n@[args_ints]: -1\n@[args_kept]: 5"},
		{`uprobe:%:args_many /args.h > args.g/ { @[args.h] = sum(args.g); }`, "\n\n@[800000000]: 7"},
	}
	for _, flags := range []string{"-O0", "-O2"} {
		checkArgs(t, testprog.Build(t, "args", flags), tests)
	}
}

type argsTest struct{ script, want string }

// checkArgs runs scripts on a program: %: in them, and in what they print, is its path.
func checkArgs(t *testing.T, path string, tests []argsTest) {
	t.Helper()
	p := testprog.Start(t, path)
	s := attach(t, p.Pid)
	for _, tt := range tests {
		text, want := strings.ReplaceAll(tt.script, "%:", path+":"), strings.ReplaceAll(tt.want, "%:", path+":")
		out, told, _, err := run(text, script.Options{PID: p.Pid, Quiet: true}, s, func() { p.Round("1") })
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := strings.TrimRight(out, "\n"); got != want {
			t.Errorf("%s\nprints\n%s%s\nnot\n%s", text, out, told, want)
		}
	}
}

// All types that a script has come from debug data.
func TestArgsTypes(t *testing.T) {
	tests := []argsTest{
		{`uprobe:%:params_kinds { print((args.c, (int32)args.c, args.yes, args.s)); print(*args.p); print(args.p.raw[1]); }`,
			"(GREEN, 5, true, -3)\n{ .z = 40, .text = lf, .raw = [1,2,3] }\n2"},
		{`uprobe:%:params_flags { print((args.f.low, args.f.high, args.f.sign, str(args.f.name), args.f.x, args.n)); $f = *args.f; print(($f.high, $f.sign)); }`,
			"(5, 100, -3, a name, 7, 9223372036854775808)\n(100, -3)"},
		{`uprobe:%:params_tree { $t = args.t; print(($t.kids[1]->key, $t.kids[1]->own.z, $t.kids[1].deep.in, $t.own.text, args.anything == (void *)args.t, args.fn));
			let $kids: struct tree *[2] = $t.kids; print($kids[1]->key); print((uint64)$kids[0]); }`,
			"(4, 40, 8, rt, true, 0x0)\n4\n0"},
		{`uprobe:%:params_large { print(args.a); } uretprobe:%:params_large { print(((struct large *)retval)->v[0]); print(((struct large *)retval)->v); }`,
			"17\n17\n[17,2,3,4,5,6]"},
		// Constants of enumerations by their names, of one that has none too; floating-point members are there, and no numbers.
		{`uprobe:%:params_kinds { print((args.c == GREEN, BLUE, args.s + GREEN)); @[RED] = 1; }`, "(true, BLUE, 2)\n\n\n@[RED]: 1"},
		{`uprobe:%:params_flags { print(sizeof(struct flags)); $f = *args.f; print($f.x); } uprobe:%:params_tree { print(args.t->kids[1]->own); print(args.l.v[5]); }`,
			"24\n7\n{ .z = 40, .text = lf, .raw = [1,2,3] }\n66"},
		{`uprobe:%:params_tree { $k = *args.t->kids[1]; $w = sizeof($k); print($k.deep); printf("%d\n", offsetof(struct tree, weight) == $w - 16); print(strlen("{")); }`,
			"{ .in = 8 }\n1\n1"},
	}
	for _, flags := range []string{"-O0", "-O2", "-gdwarf-3"} {
		checkArgs(t, testprog.Build(t, "params", flags), tests)
	}
}

// A variable's address and a source line's code are those of the file that the probes are at; ctx is the registers.
func TestPlacesOfFiles(t *testing.T) {
	path := testprog.Build(t, "params", "-O0")
	checkArgs(t, path, []argsTest{
		{`uprobe:%:params_large { $f = uaddr("failures"); printf("%d %d\n", *$f, $f == uaddr("failures")); } uretprobe:%:params_large { print(*uaddr("failures")); }`, "0 1\n0"},
		{`struct bits { uint64 a:40; uint64 b:50; uint64 c:40; } __attribute__((packed)); uprobe:%:params_large { $r = (struct bits *)ctx;
			print(($r.a == (ctx.r15 & 0xffffffffff), $r.b == ((ctx.r15 >> 40) | ((ctx.r14 << 24) & 0x3ffffff000000)), $r.c == ((ctx.r14 >> 26) | ((ctx.bp << 38) & 0xc000000000)))); }`, "(true, true, true)"},
		{`uprobe:%:params_large { print((ctx.si == arg1, ((struct pt_regs *)ctx)->ip == reg("ip"), ctx == ctx)); $c = *ctx; print($c.si == arg1); }`, "(true, true, true)\ntrue"},
	})
	line := 0
	for i, text := range strings.Split(string(must(os.ReadFile("../internal/testprog/testdata/params.c"))), "\n") {
		if strings.Contains(text, "params_kinds(GREEN") {
			line = i + 1
		}
	}
	at := fmt.Sprintf("uprobe:%s@params.c:%d", path, line)
	checkArgs(t, path, []argsTest{{at + ` { print(probe); }`, at}})
	for _, tt := range []struct{ script, want string }{
		{fmt.Sprintf("uprobe:%s@params.c:9999 { }", path), "no code of line 9999 of params.c is known"},
		{fmt.Sprintf("uprobe:%s@other.c:1 { }", path), "no code of line 1 of other.c is known"},
		{fmt.Sprintf("uretprobe:%s@params.c:%d { }", path, line), "a line has no return"},
		{fmt.Sprintf(`uprobe:%s:params_large { uaddr("no_such") }`, path), "Could not resolve symbol"},
		{fmt.Sprintf(`uprobe:%s:params_flags { print(args.f->f) }`, path), "'f' is a floating-point number"},
	} {
		if _, err := script.Compile(tt.script, script.Options{}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\nis not refused with %q: %v", tt.script, tt.want, err)
		}
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// A call within a call keeps its own parameters.
func TestArgsAtReturnsNested(t *testing.T) {
	checkArgs(t, testprog.Build(t, "rets", "-O1"), []argsTest{{`uretprobe:%:ret_fib { $n = args.n; if ($n < 2) { @ok[$n] = sum(retval == arg0) }
		if ($n == 7) { @ok[$n] = sum(retval == 13) } if ($n == 12) { @ok[$n] = sum(retval == 144) } @all[$n] = count(); }
		end { for ($kv : @ok) { if ($kv.1 != @all[$kv.0]) { print($kv) } } print((len(@ok), len(@all), @all[12])); clear(@ok); clear(@all) }`, "(4, 13, 1)"}})
}

// Go's functions have their parameters in registers of their own.
func TestArgsGo(t *testing.T) {
	testprog.ReadsFSBase.Need(t)
	path := testprog.Build(t, "goprog")
	checkArgs(t, path, []argsTest{
		{`uprobe:%:main.goMany { @[args.a, *args.p] = (uint64)1; }`, "\n\n@[2, 1]: 1"},
		{`uprobe:%:main.goMany { @[str(args.s.str, args.s.len + 1), args.rest.len] = (uint64)1; }`, "\n\n@[abc, 0]: 1\n@[abc, 1]: 1"},
	})
	// By number, too.
	checkArgs(t, path, []argsTest{
		{`uprobe:%:main.goMany { @[arg0, str(arg1, arg2 + 1), arg2] = (uint64)1; }`, "\n\n@[2, abc, 3]: 1"},
		{`uretprobe:%:main.goLeaf { @[retval - 3 * arg0 - arg1] = (uint64)1; }`, "\n\n@[0]: 1"},
		{`uprobe:%:main.goMan* { @[arg0, arg2] = (uint64)1; }`, "\n\n@[2, 3]: 1"},
	})
	list, err := script.List("u:"+path+":main.goMany", true, 0)
	ok(t, err)
	if want := "\n    int a\n    struct string s\n    float64 f\n    int* p\n    struct []int rest"; !strings.HasSuffix(strings.Join(list, "\n"), want) {
		t.Errorf("%q", list)
	}
}

// A Go function in assembler has its arguments on the stack.
func TestArgsGoInAssembler(t *testing.T) {
	_, err := script.Compile("uprobe:"+testprog.Build(t, "goprog")+":runtime.asmcgocall.abi0 { print(arg0); }", script.Options{})
	if err == nil || !strings.Contains(err.Error(), "arg0 is not known here: the function has its arguments on the stack") {
		t.Error(err)
	}
}

// What is not known is refused in a sentence that says why, and a name that is not there by itself.
func TestArgsRefused(t *testing.T) {
	path, bare := testprog.Build(t, "args", "-O0"), testprog.Build(t, "args", "-O0", "-g0")
	for _, tt := range []struct{ script, want string }{
		{`uprobe:%:args_ints { print(args.nope); }`, "Can't find function parameter nope"},
		{`uprobe:%:args_float { print(args.a); }`, "args.a cannot be read at uprobe:" + path + ":args_float: a is passed in a register for floating-point numbers, which is not read"},
		{`uprobe:%:args_struct { print(args.m); }`, "args.m cannot be read"},
		{`uprobe:%:args_struct { print(args); }`, "args as a whole cannot be read"},
		{`uprobe:%:args_none { print(args); }`, "args: args_none has no parameters"},
		{`uretprobe:%:args_ints { print(args.nope); }`, "Can't find function parameter nope"},
		{`uprobe:%:args_ints+4 { print(args.a); }`, "args: parameters are known where a function is entered"},
		{`uprobe:%:args_* { print(args.a); }`, "Can't find function parameter a"},
		{`uprobe:%:nothing { print(args.a); }`, "no such function is there"},
		{`uprobe:` + bare + `:args_ints { print(args.a); }`, "args: the parameters of args_ints are not known: " + bare + ": it has no debug data"},
		{`uprobe:no-such-program:f { print(args.a); }`, "no program or library"},
	} {
		text := strings.ReplaceAll(tt.script, "%:", path+":")
		_, err := script.Compile(text, script.Options{})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s\nis not refused with %q: %v", text, tt.want, err)
		}
	}
}

// A place is a Go function's by whatever an attach point names it: its arguments are in Go's registers.
func TestArgsGoWhateverNamesThem(t *testing.T) {
	path := testprog.Build(t, "goprog")
	f, err := os.Open(path)
	ok(t, err)
	defer f.Close()
	syms, err := symbol.Open(f, &symbol.Options{Path: path})
	ok(t, err)
	fn := syms.Lookup("main.goMany")[0]
	off, _ := syms.OffOf(fn.Addr)
	code := func(path, at string) string {
		s, err := script.Compile("uprobe:"+path+":"+at+" { @[arg0, arg2] = (uint64)1; }", script.Options{})
		ok(t, err)
		_, code, _ := strings.Cut(s.Code(), "\n")
		return code
	}
	want := code(path, "main.goMany")
	for _, at := range []string{fmt.Sprintf("%#x", fn.Addr), fmt.Sprintf("%#x", off), "main.goMany+4", "main.goMan*", "main.goM*,uprobe:" + path + ":main.goLeaf"} {
		if got := code(path, at); got != want {
			t.Errorf("%s\n%swhere its name gives\n%s", at, got, want)
		}
	}
	if code(testprog.Build(t, "args"), "args_ints") == want {
		t.Error("a function of C has its arguments where Go has them")
	}
}
