package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"kprobe/internal/testprog"
)

// plugin is a library that the test program dl loads and unloads.
func plugin(t *testing.T) string {
	t.Helper()
	return gcc(t, "libplug.so", `
__attribute__((noinline, noclone)) int plug_inner(int a) { __asm__ volatile("" : "+r"(a)); return a * 2 + 100; }
__attribute__((noinline, noclone)) int plug_outer(int a) { int b = plug_inner(a); __asm__ volatile("" : "+r"(b)); return b; }
__attribute__((constructor)) static void plug_begin(void) { plug_inner(1); }
int dlib_call(int a) { int b = plug_outer(a); __asm__ volatile("" : "+r"(b)); return b + 1; }
`, "-shared", "-fPIC")
}

func gcc(t *testing.T, name, text string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	testprog.CompileText(t, out, []string{"gcc", "-g", "-O1"}, "source.c", text, flags...)
	return out
}

// cycled runs a verb on a program that loads and unloads the library three times, and calls it each time.
func cycled(t *testing.T, lib string, args ...string) testprog.Result {
	t.Helper()
	k := testprog.StartCmd(t, tool(t, append(args, "--", testprog.Build(t, "dl", "-O2"), lib)...))
	k.Send("cycle 3")
	k.CloseStdin()
	r := k.Result()
	if !r.OK() || count(r.Lines, "cycled 3 ") != 1 || count(strings.Split(r.Stderr, "\n"), " waits: libplug.so is not mapped yet") == 0 || strings.Contains(r.Stderr, "unmapped") {
		t.Errorf("%q: %v", args, r)
	}
	return r
}

// TestPatternWaits holds that what can be told of a library only when it is mapped waits for that, in each verb, and again when the
// library has been unmapped: patterns, offsets in the file, and functions whose variables are asked for.
func TestPatternWaits(t *testing.T) {
	lib := plugin(t)
	for _, how := range [][]string{nil, {"--stops"}, {"-f"}} {
		args := append([]string{"trace"}, how...)
		r := cycled(t, lib, append(args, "p libplug.so:plug_*")...)
		if count(r.Lines, ": (plug_inner+0x0/") != 6 || count(r.Lines, ": (plug_outer+0x0/") != 3 || count(r.Lines, ": (plug_begin+0x0/") != 3 {
			t.Errorf("%q: %v", how, r)
		}
		if testing.Short() && how != nil {
			continue // each way once with a pattern
		}
		if r = cycled(t, lib, append(args, "r:out libplug.so:plug_i* $retval:u32 if $retval > 102")...); count(r.Lines, ": out: (") != 1 {
			t.Errorf("%q: %v", how, r)
		}
		if r = cycled(t, lib, append(args, "p:in libplug.so:plug_inner a")...); count(r.Lines, ": in: (plug_inner+0x0/") != 6 || count(r.Lines, " a=1") != 4 {
			t.Errorf("%q: %v", how, r)
		}
	}
	offset := offsetOf(t, lib, "plug_inner")
	r := cycled(t, lib, "stat", "p:in libplug.so:"+offset, "r:back libplug.so:plug_i*", "r:outer libplug.so:plug_o*")
	for row, hits := range map[string]string{"in": "6", "back": "6", "outer": "3"} {
		if !rowHas(r.Stderr, row, hits) {
			t.Errorf("%s: %v", row, r)
		}
	}
	r = cycled(t, lib, "graph", "libplug.so:plug_*")
	if count(r.Lines, "plug_outer(") != 3 || count(r.Lines, "plug_inner(") != 6 {
		t.Errorf("%v", r)
	}
	file := filepath.Join(t.TempDir(), "events")
	cycled(t, lib, "record", "-o", file, "p libplug.so:plug_*")
	if r = run(t, "report", file); count(r.Lines, ": (plug_inner+0x0/") != 6 {
		t.Errorf("%v", r)
	}
	if r = run(t, "plan", "p libplug.so:plug_*", "p libplug.so:plug_inner", "--", "true"); !r.OK() || count(r.Lines, "pending  (its file is not mapped yet)") != 2 {
		t.Errorf("%v", r)
	}
}

// rowHas tells whether a table has a row of a probe with so many hits.
func rowHas(table, name, hits string) bool {
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 3 && f[0] == name && f[2] == hits {
			return true
		}
	}
	return false
}

// TestPatternWaitsInRunning holds it of processes that run, of which one never loads the library, and that it is told what never came.
func TestPatternWaitsInRunning(t *testing.T) {
	lib := plugin(t)
	path := testprog.Build(t, "dl", "-O2")
	a, b := testprog.Start(t, path, lib), testprog.Start(t, path, lib)
	pids := fmt.Sprintf("%d,%d", a.Pid, b.Pid)
	for _, verb := range []string{"stat", "top", "trace"} {
		k := started(t, tool(t, verb, "-p", pids, "p:call dl:dl_call", "p libplug.so:plug_i*", "p libnever.so:*"), a.Pid, b.Pid)
		a.Round("open")
		a.Round("call 20")
		a.Round("close")
		a.Round("cycle 1")
		k.Signal(syscall.SIGINT)
		r := k.Result()
		said := strings.Split(r.Stderr, "\n")
		if !r.OK() || count(said, "libplug.so:plug_i* waits: ") != 1 || count(said, "libnever.so:* waits: ") != 1 ||
			count(said, "had no place: ") != 1 || count(said, "libnever.so:* had no place: libnever.so was never mapped") != 1 {
			t.Errorf("%s: %v", verb, r)
		}
		if all := strings.Join(append(said, r.Lines...), "\n"); verb != "top" && !rowHas(all, "p_libplug_so_plug_inner_0", "4") {
			t.Errorf("%s: %v", verb, r)
		}
		checkUntouched(t, a.Pid)
		checkUntouched(t, b.Pid)
	}
}

// TestIndirectFunctionWaits holds that an indirect function waits until it is chosen what it stands for: in a static program, too, which
// is relocated after its first instruction. If that never comes, it is said.
func TestIndirectFunctionWaits(t *testing.T) {
	path := gcc(t, "chosen", `
#include <stdlib.h>
static int here(int a) { __asm__ volatile("" : "+r"(a)); return a * 2; }
static int other(int a) { return a; }
static int (*choose(void))(int) { return CHOICE ? here : other; }
int chosen(int a) __attribute__((ifunc("choose")));
int main(void) { return chosen(1) + chosen(2) - 6; }
`, "-static", "-DCHOICE=1")
	for _, def := range []string{"p:it chosen:chosen", "r:it chosen:chosen"} {
		r := run(t, "stat", def, "--", path)
		said := strings.Split(r.Stderr, "\n")
		if !r.OK() || !rowHas(r.Stderr, "it", "2") || count(said, "waits: it is an indirect function, and nothing in the process is bound to it yet") != 1 || count(said, "had no place") != 0 {
			t.Errorf("%s: %v", def, r)
		}
	}
	r := run(t, "plan", "p chosen:chosen", "--", path)
	if !r.OK() || count(r.Lines, "pending") != 1 || count(r.Lines, "indirect function") != 1 {
		t.Errorf("%v", r)
	}
	dl := testprog.Start(t, testprog.Build(t, "dl", "-O2"), gcc(t, "libchosen.so", `
static int here(int a) { __asm__ volatile("" : "+r"(a)); return a * 2 + 101; }
static int (*choose(void))(int) { return here; }
int dlib_call(int a) __attribute__((ifunc("choose")));
static int (*refuse(void))(int) { return here; }
int unused(int a) __attribute__((ifunc("refuse")));
`, "-shared", "-fPIC"))
	dl.Round("open")
	k := started(t, tool(t, "stat", "-p", fmt.Sprint(dl.Pid), "p:call dl:dl_call", "p:it libchosen.so:dlib_call"), dl.Pid)
	dl.Round("call 20")
	dl.Round("call 30")
	k.Signal(syscall.SIGINT)
	if r := k.Result(); !r.OK() || !rowHas(strings.Join(r.Lines, "\n"), "it", "2") {
		t.Errorf("%v", r)
	}
	k = started(t, tool(t, "stat", "-p", fmt.Sprint(dl.Pid), "p:call dl:dl_call", "p libchosen.so:unused"), dl.Pid)
	dl.Round("call 20")
	k.Signal(syscall.SIGINT)
	if r := k.Result(); !r.OK() || !strings.Contains(r.Stderr, "libchosen.so:unused had no place: it is an indirect function, and nothing in the process was bound to it meanwhile") {
		t.Errorf("%v", r)
	}
}
