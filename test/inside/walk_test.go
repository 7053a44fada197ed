package inside

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// walker prints its own stack from five functions deep, by backtrace(3).
const walker = `
#include <dlfcn.h>
#include <execinfo.h>

PROBED long walk5(long n)
{
	void *at[64];
	int count = backtrace(at, 64);

	for (int i = 0; i < count; i++) {
		Dl_info d;

		if (dladdr(at[i], &d) && d.dli_sname)
			printf("%s+%#lx\n", d.dli_sname, (long)((char *)at[i] - (char *)d.dli_saddr));
		else
			printf("nameless\n");
	}
	return n + count;
}
PROBED long walk4(long n) { n = walk5(n); BARRIER(); return n + 1; }
PROBED long walk3(long n) { n = walk4(n); BARRIER(); return n + 1; }
PROBED long walk2(long n) { n = walk3(n); BARRIER(); return n + 1; }
PROBED long walk1(long n) { n = walk2(n); BARRIER(); return n + 1; }

int main(void)
{
	while (next())
		printf("result %ld\n", walk1(1));
	return 0;
}
`

// onWalk puts return probes that swap on the five functions.
func onWalk(t *testing.T, s *kprobe.Session, programs []*kprobe.Program) []*kprobe.Kretprobe {
	return onReturns(t, s, programs, "walk1", "walk2", "walk3", "walk4", "walk5")
}

// onReturns puts one for each program on functions.
func onReturns(t *testing.T, s *kprobe.Session, programs []*kprobe.Program, names ...string) (rps []*kprobe.Kretprobe) {
	t.Helper()
	for _, name := range names {
		for _, p := range programs {
			rps = append(rps, &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}, Engine: kprobe.EngineSwap, Program: p})
		}
	}
	harness.OK(t, s.RegisterKretprobes(rps))
	return rps
}

// eachSwap runs a test with what swaps return addresses: traps, detours, and both at once.
func eachSwap(t *testing.T, test func(t *testing.T, programs ...*kprobe.Program)) {
	t.Run("outside", func(t *testing.T) { test(t, nil) })
	t.Run("inside", func(t *testing.T) { test(t, kprobe.CountOnly) })
	t.Run("both", func(t *testing.T) { test(t, nil, kprobe.CountOnly) })
}

// A program sees its own return addresses when it looks at its stack, also where
// they have been swapped: in the first walk, which loads a library for it, and in those
// after. All returns are reported nevertheless.
func TestBacktraceThroughSwappedFrames(t *testing.T) { eachSwap(t, backtraceThroughSwapped) }

func backtraceThroughSwapped(t *testing.T, programs ...*kprobe.Program) {
	path := harness.Compile(t, "walker", walker, "-O1", "-rdynamic")
	want := testprog.Start(t, path).Round("1")
	if len(want) < 7 || !strings.HasPrefix(want[4], "walk1+") {
		t.Fatalf("without probes: %q", want)
	}
	p := testprog.Start(t, path)
	s := harness.Attach(t, p.Pid, nil)
	listed := len(s.List()) + len(s.Pending())
	rps := onWalk(t, s, programs)
	if now := len(s.List()) + len(s.Pending()); now != listed+len(rps) {
		t.Errorf("%d probes are shown for %d", now-listed, len(rps))
	}
	for range 3 {
		if got := p.Round("1"); !slices.Equal(got, want) {
			t.Errorf("probed:\n%s\nwithout probes:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	harness.Settle(t, s)
	for _, rp := range rps {
		if rp.Hits() != 3 {
			t.Errorf("%s: %d returns, lost %+v", rp.Kp.SymbolName, rp.Hits(), rp.Lost())
		}
	}
	harness.OK(t, s.UnregisterKretprobes(rps))
	if got := p.Round("1"); !slices.Equal(got, want) {
		t.Errorf("without probes once more: %q", got)
	}
}

// An exception passes through C code whose library knows nothing of exceptions, and so does
// the end of a thread.
func TestExceptionThroughSwappedFrames(t *testing.T) {
	dir := t.TempDir()
	lib := harness.Compile(t, "libeach.so", `
PROBED long each_inner(long (*f)(long), long n) { long r = f(n); BARRIER(); return r + 1; }
PROBED long each(long (*f)(long), long n) { long r = each_inner(f, n); BARRIER(); return r + 1; }
`, "-O1", "-shared", "-fPIC")
	main := filepath.Join(dir, "thrower.cc")
	text := `
#include <cstdio>
#include <pthread.h>
extern "C" long each(long (*f)(long), long n);
static long thrower(long n)
{
	if (n % 3 == 0)
		throw n;
	return n;
}
static long sum;
static void throwing()
{
	for (long i = 0; i < 30; i++) {
		try {
			sum += each(thrower, i);
		} catch (long v) {
			sum += 100 * v;
		}
	}
}
struct Guard { ~Guard() { sum += 1000000; } };
static long leaver(long)
{
	Guard g;
	pthread_exit(nullptr);
}
static void *leaving(void *)
{
	throwing();
	Guard g;
	return (void *)each(leaver, 1);
}
int main()
{
	char line[100];
	for (puts("ready"), fflush(stdout); fgets(line, sizeof line, stdin); puts("done"), fflush(stdout)) {
		pthread_t t;
		sum = 0;
		throwing();
		pthread_create(&t, nullptr, leaving, nullptr);
		pthread_join(t, nullptr);
		printf("sum %ld\n", sum);
	}
	return 0;
}
`
	harness.OK(t, os.WriteFile(main, []byte(text), 0o644))
	path := filepath.Join(dir, "thrower")
	if out, err := exec.Command("g++", "-O1", "-o", path, main, lib).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	eachSwap(t, func(t *testing.T, programs ...*kprobe.Program) { exceptionThroughSwapped(t, path, programs...) })
}

func exceptionThroughSwapped(t *testing.T, path string, programs ...*kprobe.Program) {
	p := testprog.Start(t, path)
	want := p.Round("1")
	s := harness.Attach(t, p.Pid, nil)
	rps := onReturns(t, s, programs, "libeach.so:each", "libeach.so:each_inner")
	for range 3 {
		if got := p.Round("1"); !slices.Equal(got, want) {
			t.Errorf("probed: %q, without probes %q", got, want)
		}
	}
	harness.Settle(t, s)
	for _, rp := range rps {
		lost := rp.Lost()
		if rp.Hits() != 120 || lost.Unwound != 63 || rp.Abandoned() != 63 {
			t.Errorf("%s: %d returns, lost %+v", rp.Kp.SymbolName, rp.Hits(), lost)
		}
	}
}
