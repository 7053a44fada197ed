package inside

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// conditions has a function for each condition of x86. It ends in a conditional jump, with 1 as its
// result, or in a return with 1,000. A round calls each with all values of the five flags that
// conditions read.
const conditions = `
__asm__(".pushsection .text\n"
	".globl taken\n.type taken, @function\ntaken: ret\n.size taken, .-taken\n"
	".irp cc, o, no, b, ae, e, ne, be, a, s, ns, p, np, l, ge, le, g\n"
	".globl if_\\cc\n.type if_\\cc, @function\n.p2align 4\n"
	"if_\\cc:\n"
#ifdef __i386__
	"pushl 4(%esp)\npopfl\n"
#else
	"pushq %rdi\npopfq\n"
#endif
	"movl $1, %eax\n"
	"j\\cc taken\n"
	"movl $1000, %eax\n"
	"ret\n"
	".size if_\\cc, .-if_\\cc\n.endr\n"
	".popsection");

static const int bits[] = { 0x1, 0x4, 0x40, 0x80, 0x800 }; /* CF, PF, ZF, SF, OF */

#define EACH(F) F(o) F(no) F(b) F(ae) F(e) F(ne) F(be) F(a) F(s) F(ns) F(p) F(np) F(l) F(ge) F(le) F(g)
#define DECLARE(cc) extern int if_##cc(long flags);
#define CALL(cc) { int sum = 0; for (int i = 0; i < 32; i++) sum += if_##cc(flags(i)); printf("if_" #cc " %d\n", sum); }
EACH(DECLARE)

static long flags(int chosen)
{
	long flags = 0x202;

	for (int i = 0; i < 5; i++)
		if (chosen >> i & 1)
			flags |= bits[i];
	return flags;
}

int main(void)
{
	while (next()) {
		EACH(CALL)
		printf("result 0\n");
	}
	return 0;
}
`

// A conditional jump out of a function is its return exactly when it is taken, whatever the flags
// are.
func TestExitsByCondition(t *testing.T) {
	path := harness.Compile(t, "conditions", conditions, "-O2")
	p := testprog.Start(t, path)
	want := p.Round("1")
	names := functionsOf(t, path, "if_")
	if len(names) != 16 {
		t.Fatalf("functions %v", names)
	}
	s := harness.Attach(t, p.Pid, nil)
	for _, jumps := range []bool{false, true} {
		harness.OK(t, s.SetOptimization(jumps))
		in := watchInside(t, s, kprobe.EngineExits, names)
		s.WaitOptimized()
		if n := optimizedReturns(s); jumps && n != len(names) || !jumps && n > 0 {
			t.Errorf("%d of %d probes are optimized", n, len(names))
		}
		harness.SameRound(t, s, p, want, "1")
		harness.OK(t, s.UnregisterKretprobes(in.rps))
		for i, rp := range in.rps {
			row := in.row(t, i)
			told := fmt.Sprintf("%s %d", names[i], row[bookResults])
			if row[bookReturns] != 32 || rp.Lost() != (kprobe.Lost{}) || !slices.Contains(want, told) {
				t.Errorf("jumps %v: %s by %d returns, lost %+v; the program: %s", jumps, told, row[bookReturns], rp.Lost(), strings.Join(want, ", "))
			}
		}
	}
}
