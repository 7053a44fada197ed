package conform

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/target/ptrace"
	"kprobe/test/harness"
)

// i386 programs, on the same kernel.

// unlike are the tests of kprobes.txt that are about x86-64 in particular, its
// registers and its ABI, or have a program that is written for it. What they test
// has a test of its own below.
var unlike = []string{
	"TestConformBatchIsOneStop", // 10,000 functions in assembly
	"TestConformFault.*",        // instructions in assembly
	"TestConformVectorChanges",  // a vector register that holds an argument
	"TestConformJprobeArguments", "TestConformJprobeABI",
	"TestConformReturnRefused", // C++
	"TestConformPlaceRefused",  // names of the vDSO
}

var unlikeAnywhere = elsewhere(
	"PreHandlerMovesThePC",   // changes a register that holds an argument
	"RegistersAreTheThreads", // reads them
	"JprobeArguments",        // of 64 bits
)

// The tests of kprobes.txt once more, on the same programs built for i386.
func TestI386Conforms(t *testing.T) {
	harness.I386(t, 40, "TestConform.*", strings.Join(unlike, "|"), unlikeAnywhere)
}

// Its calling convention, cdecl: all arguments are on the stack, in words of 4 bytes.
// Results of up to 4 bytes are in eax, of 8 in edx too; structs are where the caller
// has said, and functions take that address off the stack when they return.
func TestI386Arguments(t *testing.T) {
	path := harness.Compile(t, "args32", `
struct pair { int a; long long b; char c; };
struct node { struct node *next; double weight; char name[6]; };
PROBED int ints(char a, unsigned short b, int c, long long d, long e, unsigned char *p) { BARRIER(); return a + b + c + (int)d + e + *p; }
PROBED double floats(float a, double b, int c) { BARRIER(); return a + b + c; }
PROBED struct pair swap(struct pair p, struct node *n) { BARRIER(); return (struct pair){p.b, p.a, n->name[0]}; }
PROBED long long wide(unsigned a) { BARRIER(); return (long long)a << 32 | 0x89abcdef; }
PROBED void __attribute__((stdcall)) pops(int a, int b) { BARRIER(); printf("pops %d %d\n", a, b); }
PROBED __attribute__((regparm(3))) int quick(int a, int b) { BARRIER(); return a * b; }
int main(void)
{
	while (next()) {
		unsigned char byte = 200;
		struct node n = {&n, 2.5, "node"};
		struct pair p = swap((struct pair){-7, -1234567890123LL, 'c'}, &n);
		printf("%d %g\n", ints(-1, 65535, -300, 0x123456789abcLL, -5, &byte), floats(1.5, -2.25, 3));
		printf("%d %lld %d %llx\n", p.a, p.b, p.c, wide(0x01234567));
		pops(11, 22);
		printf("%d\n", quick(6, 7));
	}
	return 0;
}
`, "-m32", "-msse2")
	p := testprog.Start(t, path)
	want := p.Round("")
	s := harness.Attach(t, p.Pid, nil)
	if a := s.Arch(); a != arch.I386 {
		t.Fatalf("the program is for %s", a.Name)
	}
	type pair struct {
		A int32
		B int64
		C int8
	}
	type node struct {
		Next   arch.Addr
		Weight float64
		Name   [6]byte
	}
	var saw []string
	say := func(format string, args ...any) { saw = append(saw, fmt.Sprintf(format, args...)) }
	harness.OK(t, s.RegisterJprobes([]*kprobe.Jprobe{
		{Kp: kprobe.Kprobe{SymbolName: "swap"}, Entry: func(result arch.Addr, p pair, n kprobe.Ptr[node]) {
			v, err := n.Load()
			harness.OK(t, err)
			say("swap %v %+v %v %g %.4s", result != 0, p, v.Next == n.Addr, v.Weight, v.Name)
		}},
		{Kp: kprobe.Kprobe{SymbolName: "ints"}, Entry: func(regs *kprobe.Regs, a int8, b uint16, c int32, d int64, e int, p kprobe.Ptr[uint8]) {
			v, err := p.Load()
			harness.OK(t, err)
			first, err := regs.Arg(0)
			harness.OK(t, err)
			sixth, err := regs.Arg(6) // the fourth takes two
			harness.OK(t, err)
			say("ints %d %d %d %#x %d %d, %d, %v", a, b, c, d, e, v, int8(first), arch.Addr(sixth) == p.Addr)
		}},
		{Kp: kprobe.Kprobe{SymbolName: "floats"}, Entry: func(regs *kprobe.Regs, a float32, b float64, c int32) {
			_, err := regs.FloatArg(0)
			say("floats %g %g %d %v", a, b, c, errors.Is(err, syscall.ENOTSUP))
		}},
		{Kp: kprobe.Kprobe{SymbolName: "quick"}, Entry: func(regs *kprobe.Regs) {
			eax, err := regs.Reg("eax")
			harness.OK(t, err)
			dx, err := regs.Reg("dx")
			harness.OK(t, err)
			_, err = regs.Reg("r8")
			say("quick %d %d %v", eax, dx, errors.Is(err, syscall.EINVAL))
			regs.Set(arch.AX, uint64(^uint32(0)-8)) // -9
		}},
	}))
	returned := func(f func(regs *kprobe.Regs)) func(*kprobe.KretprobeInstance, *kprobe.Regs) int {
		return func(_ *kprobe.KretprobeInstance, regs *kprobe.Regs) int { f(regs); return 0 }
	}
	rps := []*kprobe.Kretprobe{
		{Kp: kprobe.Kprobe{SymbolName: "wide"}, Handler: returned(func(regs *kprobe.Regs) {
			say("wide %#x %#x", regs.Get(arch.I386.Ret2), regs.ReturnValue())
		})},
		{Kp: kprobe.Kprobe{SymbolName: "swap"}, Handler: returned(func(regs *kprobe.Regs) {
			b := make([]byte, 4)
			harness.OK(t, regs.ReadMem(arch.Addr(regs.ReturnValue()), b))
			say("swapped % x", b)
		})},
		{Kp: kprobe.Kprobe{SymbolName: "pops"}, Handler: returned(func(regs *kprobe.Regs) { say("popped") })},
		{Kp: kprobe.Kprobe{SymbolName: "ints"}, Handler: returned(func(regs *kprobe.Regs) {
			say("sum %d", int32(regs.ReturnValue()))
			regs.SetReturnValue(uint64(^uint32(0))) // -1
		})},
	}
	harness.OK(t, s.RegisterKretprobes(rps))
	got := harness.Round(t, s, p, "")
	changed := slices.Clone(want)
	changed[0] = "-1 2.25"
	changed[len(changed)-1] = "-63"
	if !slices.Equal(got, changed) {
		t.Errorf("the program says %q, want %q", got, changed)
	}
	expect := []string{
		"swap true {A:-7 B:-1234567890123 C:99} true 2.5 node", "swapped 35 fb 04 8e",
		"floats 1.5 -2.25 3 true", "ints -1 65535 -300 0x123456789abc -5 200, -1, true", "sum 1450809937",
		"wide 0x1234567 0x89abcdef", "popped", "quick 6 7 true",
	}
	slices.Sort(expect) // the order of evaluation is the compiler's
	slices.Sort(saw)
	if !slices.Equal(saw, expect) {
		t.Errorf("handlers saw\n%s\nwant\n%s", strings.Join(saw, "\n"), strings.Join(expect, "\n"))
	}
	for _, rp := range rps {
		if plan := s.Plan(&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: rp.Kp.SymbolName}}); rp.Hits() != 1 ||
			strings.Contains(plan.Engine, "takes arguments off the stack") != (rp.Kp.SymbolName == "swap" || rp.Kp.SymbolName == "pops") {
			t.Errorf("%s: %d returns, %s", rp.Kp.SymbolName, rp.Hits(), plan)
		}
	}
	// What position-independent code learns its own address by must see that.
	if plan := s.Plan(&kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "args32:__x86.get_pc_thunk.bx"}}); !strings.Contains(plan.Engine, "exits probed") {
		t.Error(plan)
	}
}

// An exec of a program of the other machine, and back: probes are placed anew as that
// machine has it.
func TestI386Exec(t *testing.T) {
	testprog.Programs32.Need(t)
	const source = `
PROBED int work(int a) { BARRIER(); return a + (int)sizeof(void *); }
int main(void)
{
	while (next()) {
		if (line[0] == '/')
			execl(line, line, NULL);
		printf("%d\n", work(7));
	}
	return 0;
}
`
	wide, narrow := harness.Compile(t, "wide", source), harness.Compile(t, "narrow", source, "-m32")
	p := testprog.Start(t, wide)
	s := harness.Attach(t, p.Pid, nil)
	var saw []string
	say := func(format string, args ...any) { saw = append(saw, fmt.Sprintf(format, args...)) }
	jp := &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: "work"}, Entry: func(a int32) { say("called with %d", a) }}
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: "work"}, Handler: func(_ *kprobe.KretprobeInstance, regs *kprobe.Regs) int {
		say("returned %d", regs.ReturnValue())
		return 0
	}}
	inside := &kprobe.Kprobe{SymbolName: "work", Offset: 0, Program: kprobe.CountOnly}
	harness.OK(t, s.Register(jp, rp, inside))
	for i, path := range []string{"", narrow, wide, narrow, wide} {
		machine, size := arch.AMD64, 8
		if path == narrow {
			machine, size = arch.I386, 4
		}
		if path != "" {
			p.Send("%s", path)
			p.Expect("ready")
		}
		saw = nil
		if got := harness.Round(t, s, p, "")[0]; got != fmt.Sprint(7+size) {
			t.Errorf("%d: the program says %s", i, got)
		}
		if want := []string{"called with 7", fmt.Sprintf("returned %d", 7+size)}; !slices.Equal(saw, want) {
			t.Errorf("%d: handlers saw %q, want %q", i, saw, want)
		}
		if s.Arch() != machine {
			t.Errorf("%d: the machine is %s", i, s.Arch().Name)
		}
	}
	if inside.Hits() != 5 { // on both machines
		t.Errorf("%d hits counted inside", inside.Hits())
	}
}

func TestI386EveryInstruction(t *testing.T) {
	for _, flags := range [][]string{{"-O0", "-m32"}, {"-O2", "-m32", "-static", "-no-pie"}} {
		path := testprog.Build(t, "rets", flags...)
		p := testprog.Start(t, path)
		want := p.Round("1")
		s := harness.Attach(t, p.Pid, nil)
		for _, post := range []bool{false, true} {
			funcs := slices.DeleteFunc(harness.FuncsOf(t, p.Pid, path), func(fn symbol.Symbol) bool { return !strings.HasPrefix(fn.Name, "ret_") })
			ps := harness.RegisterAll(t, s, harness.EveryInstruction(t, s, funcs, func(string) bool { return true }, post))
			harness.SameRound(t, s, p, want, "1")
			n, hits := harness.Reached(ps)
			t.Logf("%q: %d instructions, %d of them executed, %d hits", flags, len(ps), n, hits)
			if len(ps) < 200 || n < len(ps)*8/10 {
				t.Errorf("only %d of %d instructions were executed", n, len(ps))
			}
			harness.OK(t, s.UnregisterKprobes(ps))
		}
		harness.SameRound(t, s, p, want, "1")
	}
}

func TestI386EveryInstructionOfWhatLibcRuns(t *testing.T) {
	harness.EveryInstructionOfLibc(t, testprog.Start(t, testprog.Build(t, "rets", "-O2", "-m32")))
}

func TestI386KilledControllerLeavesAHealthyTarget(t *testing.T) {
	harness.KilledControllers(t, testprog.Start(t, testprog.Build(t, "rets", "-O2", "-m32")), 10, harness.Handled...)
}

// With the guardian dead too, nobody serves a trap: the handler in the target does,
// with threads in slots and on their way back through the trampoline.
func TestI386LivesOnAlone(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "rets", "-O2", "-m32"))
	want := p.Round("5")
	c := harness.Controller(t, p.Pid, "ret_fib", "post!ret_ackermann", "ret_deep", "ret_nested", "ret_two", "ret_even")
	guardian := harness.GuardianOf(t, c.Process.Pid)
	p.Send("5")
	harness.OK(t, syscall.Kill(guardian, syscall.SIGKILL))
	c.Process.Kill()
	c.Wait()
	for i := range 3 {
		if i > 0 {
			p.Send("5")
		}
		var got []string
		for line := p.Line(); line != "done"; line = p.Line() {
			got = append(got, line)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("round %d: results differ:\n%s\nwithout probes:\n%s", i, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	if diffs, err := testprog.TextDiff(p.Pid); err != nil || len(diffs) == 0 {
		t.Fatalf("there are no probes in it: %v", err)
	}
	done, err := ptrace.Recover(p.Pid)
	if err != nil || len(done) != 1 || done[0].Err != nil {
		t.Fatalf("recovery: %v, %v", done, err)
	}
	if got := p.Round("5"); !slices.Equal(got, want) {
		t.Errorf("results differ after the recovery:\n%s", strings.Join(got, "\n"))
	}
	if diffs, err := testprog.TextDiff(p.Pid); err != nil || len(diffs) != 0 {
		t.Errorf("not restored: %v, %v", diffs, err)
	}
}

// Faults of instructions that run in slots are told as the program knows them, and
// debug registers see its data.
func TestI386FaultsAndWatchpoints(t *testing.T) {
	path := harness.Compile(t, "faults32", `
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>
static sigjmp_buf out;
static char *at;
int counter;
PROBED int load(volatile int *p) { return *p; }
PROBED int through(int (*f)(void)) { int r = f(); BARRIER(); return r + 1; }
PROBED void count(int n) { counter = n; }
static void handler(int sig, siginfo_t *info, void *context)
{
	greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
	printf("signal %d address %p instruction %ld\n", sig, info->si_addr, (long)((char *)r[REG_EIP] - at));
	siglongjmp(out, 1);
}
int main(void)
{
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &sa, NULL);
	while (next()) {
		at = (char *)load;
		if (!sigsetjmp(out, 1))
			load((int *)0x10);
		at = 0;
		if (!sigsetjmp(out, 1))
			through((int (*)(void))0x20);
		count(17);
	}
	return 0;
}
`, "-m32", "-fno-pie", "-no-pie")
	p := testprog.Start(t, path)
	want := p.Round("")
	s := harness.Attach(t, p.Pid, nil)
	for _, post := range []bool{false, true} {
		var ps []*kprobe.Kprobe
		for _, name := range []string{"load", "through"} {
			for _, a := range harness.Instructions(t, s, funcNamed(t, p.Pid, path, name)) {
				kp := &kprobe.Kprobe{Addr: a}
				if post {
					kp.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}
				}
				ps = append(ps, kp)
			}
		}
		harness.Register(t, s, ps...)
		harness.SameRound(t, s, p, want, "")
		harness.OK(t, s.UnregisterKprobes(ps))
	}
	if !testprog.Watches.On(t) {
		return
	}
	var saw []string
	harness.OK(t, s.RegisterWatchpoint(&kprobe.Watchpoint{
		Kp: kprobe.Kprobe{SymbolName: "counter"}, Len: 4,
		Handler: func(w *kprobe.Watchpoint, regs *kprobe.Regs) {
			b := make([]byte, 4)
			harness.OK(t, regs.ReadMem(w.Kp.Addr, b))
			saw = append(saw, fmt.Sprint(b))
		},
	}))
	harness.SameRound(t, s, p, want, "")
	if !slices.Equal(saw, []string{"[17 0 0 0]"}) {
		t.Errorf("the watchpoint saw %q", saw)
	}
}
