package main

import (
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// tailText is a program of C++ whose functions end with a jump to another. Exceptions may unwind
// through them, so that return addresses stay.
const tailText = `#include <stdio.h>
#include <stdexcept>
struct big { long a, b, c; };
__attribute__((noinline)) int seven(int n) { if (n > 1000) throw std::runtime_error("n"); asm volatile(""); return n * 7; }
__attribute__((noinline)) int always(int n) { asm volatile(""); return seven(n + 1); }
__attribute__((noinline)) int even(int n) { asm volatile(""); if (n % 2 == 0) return -n; return seven(n); }
__attribute__((noinline)) void filled(struct big *b, int n) { asm volatile(""); *b = big{n, n, n}; }
__attribute__((noinline)) void fill(struct big *b, int n) { asm volatile(""); filled(b, n + 1); }
__attribute__((noinline)) int five(int n) { asm volatile(""); return n * 5; }
int (*volatile pointer)(int) = five;
__attribute__((noinline)) int through(int n) { asm volatile(""); return pointer(n + 1); }
int main() {
	for (int n = 0; n < 4; n++) {
		struct big b;
		fill(&b, n);
		int first = always(n), second = even(n) + through(n);
		printf("always %d even %d fill %ld\n", first, second, b.a);
	}
}
`

// TestTailCalls holds that what a function returns is told only where it has returned: at a jump to
// another function, which ends it, too, nothing says yet what that will be.
func TestTailCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tails")
	testprog.CompileText(t, path, []string{"g++", "-O2", "-g"}, "tails.cc", tailText)
	hold(t, path, []cValues{
		{"r:ev always ret=$retval", []string{"ret=(tail call)", "ret=(tail call)", "ret=(tail call)", "ret=(tail call)"}},
		{"r:ev always ret=$retval:s32 n=$arg1:s32", []string{"ret=(tail call) n=0", "ret=(tail call) n=1", "ret=(tail call) n=2", "ret=(tail call) n=3"}},
		{"r:ev always n if $retval > -100", nil},
		{"r:ev even n ret=$retval", []string{"n=0 ret=0", "n=1 ret=(tail call)", "n=2 ret=-2", "n=3 ret=(tail call)"}},
		{"r:ev through n ret=$retval", []string{"n=0 ret=(tail call)", "n=1 ret=(tail call)", "n=2 ret=(tail call)", "n=3 ret=(tail call)"}},
		{"r:ev five ret=$retval", []string{"ret=5", "ret=10", "ret=15", "ret=20"}},
		{"r:ev seven ret=$retval", []string{"ret=7", "ret=14", "ret=7", "ret=21", "ret=28", "ret=21"}},
	}, engines(0))
	res := run(t, "trace", "--json", "r:ev always ret=$retval", "--", path)
	if !strings.Contains(res.String(), `"ret":null`) {
		t.Errorf("in JSON: %v", res)
	}
	refused(t, run(t, "script", "-e", "uretprobe:"+path+":_Z6alwaysi { print(retval); }", "-c", path), "it may end with a jump to another function")
	res = run(t, "script", "-e", "uretprobe:"+path+":_Z6alwaysi { @ = count(); }", "-c", path)
	if !strings.Contains(res.String(), "@: 4") {
		t.Errorf("a script that does not ask for the result: %v", res)
	}
}
