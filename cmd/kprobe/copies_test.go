package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// copier loads, calls and unloads copies of a library, as its arguments say: 0=PATH loads, 0+PATH
// loads into a namespace of its own, 0- unloads, and 0 calls. The number is the copy's. A call
// prints its argument and the number of that copy's calls.
func copier(t *testing.T) string {
	t.Helper()
	return gcc(t, "copier", `
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv) {
	void *lib[10];
	for (int i = 1; i < argc; i++) {
		int k = argv[i][0] - '0', *calls;
		switch (argv[i][1]) {
		case '=': lib[k] = dlopen(argv[i] + 2, RTLD_NOW | RTLD_LOCAL); break;
		case '+': lib[k] = dlmopen(LM_ID_NEWLM, argv[i] + 2, RTLD_NOW); break;
		case '-': dlclose(lib[k]); continue;
		default:
			calls = dlsym(lib[k], "copy_calls");
			int n = ((int (*)(int))dlsym(lib[k], "copy_call"))(100 * k + i);
			printf("called n=%d copy_calls=%d ret=%d\n", 100 * k + i, *calls - 1, n);
		}
		if (!lib[k]) { puts(dlerror()); exit(1); }
	}
}
`, "-ldl")
}

// copied is the library that copier has copies of. It counts the calls of each.
func copied(t *testing.T) string {
	t.Helper()
	return gcc(t, "libcopy.so", `
int copy_calls;
static inline int copy_inner(int n) { return n * 3; }
__attribute__((noinline, noclone)) int copy_call(int n) { copy_calls++; __asm__ volatile("" : "+r"(n)); return copy_inner(n); }
`, "-shared", "-fPIC")
}

// TestCopies holds that each copy of a library is probed once, also a copy that is mapped later or
// again, with its own variables. Events and tables say which copy it was.
func TestCopies(t *testing.T) {
	lib := copied(t)
	other := filepath.Join(t.TempDir(), "libcopy.so")
	b, err := os.ReadFile(lib)
	if err == nil {
		err = os.WriteFile(other, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	path := copier(t)
	for i, how := range []struct {
		steps []string
		which bool // one copy is there beside another
	}{
		{[]string{"0=" + lib, "0", "1+" + lib, "0", "1", "2+" + lib, "2", "0", "1"}, true},
		{[]string{"0=" + lib, "1=" + other, "0", "1", "1", "0-", "1", "0=" + lib, "0", "1"}, true},
		{[]string{"0=" + lib, "0", "1+" + lib, "1", "0-", "1", "1", "0=" + lib, "0", "1"}, true},
		{[]string{"0=" + lib, "1+" + lib, "0", "1", "0-", "1-", "0=" + lib, "0", "0", "1+" + lib, "1", "0"}, true},
		{[]string{"0=" + lib, "0", "0-", "0=" + lib, "0", "0-", "0=" + lib, "0"}, false},
	} {
		for k, def := range []string{"p:ev libcopy.so:copy_call n copy_calls", "p:ev libcopy.so:copy_c* n copy_calls", "r:ev libcopy.so:copy_call n ret=$retval", "p:ev libcopy.so:copy_call", "p:ev libcopy.so:copy_inner"} {
			if testing.Short() && k != i {
				continue // each definition, and each way that copies come and go
			}
			r := run(t, append(append([]string{"trace"}, def, "--", path), how.steps...)...)
			var calls, events []string
			for _, l := range r.Lines {
				if words, ok := strings.CutPrefix(l, "called "); ok {
					calls = append(calls, words)
				} else if _, ev, ok := strings.Cut(l, ": ev: "); ok {
					events = append(events, ev)
				}
			}
			if !r.OK() || len(calls) == 0 || len(calls) != len(events) {
				t.Errorf("%v: %q: %d calls, and %d events\n%v", how.steps, def, len(calls), len(events), r)
				continue
			}
			for i, call := range calls {
				for _, v := range strings.Fields(call) {
					name, _, _ := strings.Cut(v, "=")
					if strings.Contains(events[i], " "+name+"=") && !strings.Contains(events[i]+" ", " "+v+" ") {
						t.Errorf("%v: %q: %s has the event %s", how.steps, def, call, events[i])
					}
				}
			}
			if last := events[len(events)-1]; how.which != strings.Contains(last, "libcopy.so") {
				t.Errorf("%v: %q: which copy it is: %s", how.steps, def, last)
			}
		}
	}
	steps := []string{"0=" + lib, "0", "1=" + other, "0", "1", "1-", "0-", "0=" + lib, "1=" + other, "1", "0"}
	r := run(t, append([]string{"stat", "p:call libcopy.so:copy_call", "r:back libcopy.so:copy_call", "--", path}, steps...)...)
	for _, row := range []string{"call", "back"} {
		hits := 0
		for line := range strings.Lines(r.Stderr) {
			var name, place string
			var n int
			if k, _ := fmt.Sscan(line, &name, &place, &n); k == 3 && name == row {
				hits += n
			}
		}
		if hits != 5 {
			t.Errorf("stat: %d hits of %s, not 5: %v", hits, row, r)
		}
	}
}

// TestWatchedCopies holds that a further copy of a watched variable is told, and that the copy is
// unmapped.
func TestWatchedCopies(t *testing.T) {
	testprog.Watches.Need(t)
	lib, path := copied(t), copier(t)
	const further, gone = "only the copy that was mapped first is watched", "its data has been unmapped"
	for _, how := range []struct {
		steps           []string
		writes          int
		told, otherwise string
	}{
		{[]string{"0=" + lib, "0", "1+" + lib, "1", "0"}, 2, further, gone},
		{[]string{"0=" + lib, "0", "0-", "0=" + lib, "0"}, 1, gone, further},
	} {
		r := run(t, append([]string{"trace", "w:ev w@libcopy.so:copy_calls:4", "--", path}, how.steps...)...)
		if n := count(r.Lines, ": ev: "); !r.OK() || n != how.writes || !strings.Contains(r.Stderr, how.told) || strings.Contains(r.Stderr, how.otherwise) {
			t.Errorf("%v: %d events, not %d\n%v", how.steps, n, how.writes, r)
		}
	}
}

// TestSymbolOfTwoFiles holds that a name of two files is refused with the way to choose one, and
// that the chosen one is read.
func TestSymbolOfTwoFiles(t *testing.T) {
	const text = "int copy_calls; int copy_call(int n) { copy_calls++; return n; }"
	lib, other := gcc(t, "libcopy.so", text, "-shared", "-fPIC"), gcc(t, "libother.so", text, "-shared", "-fPIC")
	args := []string{"--", copier(t), "0=" + lib, "1=" + other, "0", "0", "1"}
	r := run(t, append([]string{"trace", "p:ev libother.so:copy_call a=@libcopy.so:copy_calls:s32 b=@libother.so:copy_calls:s32"}, args...)...)
	if !r.OK() || count(r.Lines, "a=2 b=0") != 1 {
		t.Errorf("%v", r)
	}
	r = run(t, append([]string{"trace", "p:ev libother.so:copy_call a=@copy_calls:s32"}, args...)...)
	if !strings.Contains(r.Stderr, "@FILE:copy_calls tells which") || !strings.Contains(r.Stderr, "libcopy.so:copy_calls (") {
		t.Errorf("%v", r)
	}
}

// mapper has code in no file, at 0x20000000, and then data at 0x30000000.
func mapper(t *testing.T) *testprog.Proc {
	t.Helper()
	path := gcc(t, "mapper", `
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int main(void) {
	static const unsigned char twice[] = {0x8d, 0x04, 0x3f, 0xc3};
	void *code = mmap((void *)0x20000000, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	memcpy(code, twice, sizeof twice);
	puts("ready");
	fflush(stdout);
	getchar();
	volatile int *data = mmap((void *)0x30000000, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	for (int i = 1; i < 4; i++)
		*data = ((int (*)(int))code)(i);
}
`)
	return testprog.Start(t, path)
}

// TestCodeInNoFile holds that code which a program makes is probed by its address.
func TestCodeInNoFile(t *testing.T) {
	for _, verb := range [][]string{{"trace"}, {"trace", "--stops"}, {"stat"}} {
		p := mapper(t)
		k := started(t, tool(t, append(verb, "-p", fmt.Sprint(p.Pid), "p:twice 0x20000000 %di:s32")...), p.Pid)
		p.Send("go")
		p.Wait()
		r := k.Result()
		if !r.OK() || !rowHas(strings.Join(r.Lines, "\n")+"\n"+r.Stderr, "twice", "3") || verb[0] == "trace" && count(r.Lines, "twice: (0x20000000) arg1=3") != 1 {
			t.Errorf("%v: %v", verb, r)
		}
	}
	p := mapper(t)
	r := run(t, "plan", "-p", fmt.Sprint(p.Pid), "r 0x20000000", "p 0x40000000")
	if count(r.Lines, "0x20000000  8d 04 3f  refuse  (a return probe must be at a function's entry") != 1 || !strings.Contains(strings.Join(r.Lines, "\n")+r.Stderr, "in no executable memory") {
		t.Errorf("%v", r)
	}
}

// TestWatchedBeforeItIsMapped holds that data at an address is watched which is mapped later.
func TestWatchedBeforeItIsMapped(t *testing.T) {
	testprog.Watches.Need(t)
	p := mapper(t)
	k := started(t, tool(t, "trace", "-p", fmt.Sprint(p.Pid), "w:data w@0x30000000:4 +0($addr):s32"), p.Pid)
	p.Send("go")
	p.Wait()
	if r := k.Result(); !r.OK() || count(r.Lines, "data: (main+") != 3 || count(r.Lines, "arg1=6") != 1 || !strings.Contains(r.Stderr, "0x30000000 waits: nothing is mapped there yet") {
		t.Errorf("%v", r)
	}
}
