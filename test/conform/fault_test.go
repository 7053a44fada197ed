package conform

import (
	"debug/elf"
	"fmt"
	"slices"
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/symbol"
	"kprobe/test/harness"
)

// kprobes.txt 4.1: the fault-handler is asked when the probed instruction
// faults. Where nobody handles it, the program sees what it sees unprobed:
// faults.c prints the address, the PC and the stack that its signal handler is
// told, from every fault in three ways of going on.
func TestConformFaultsAreReported(t *testing.T) {
	path := testprog.Build(t, "faults", "-O2")
	for _, post := range []bool{false, true} {
		t.Run(fmt.Sprintf("post=%v", post), func(t *testing.T) {
			p := testprog.Start(t, path)
			want := p.Round("2")
			s := harness.Attach(t, p.Pid, nil)
			traps := map[string]int{
				"fault_read": 14, "fault_write": 14, "fault_movs": 14, "fault_riprel": 14,
				"fault_sse": 13, "fault_canon": 13, "fault_hlt": 13, "fault_div": 0, "fault_ud2": 6,
			}
			got := make(map[string][]int)
			var ps []*kprobe.Kprobe
			for name := range traps {
				kp := &kprobe.Kprobe{Addr: labelOf(t, p.Pid, path, name+"_at")}
				kp.FaultHandler = func(kp *kprobe.Kprobe, regs *kprobe.Regs, trapnr int) int {
					if regs.PC() != kp.Addr {
						t.Errorf("%s: PC %v, probe %v", name, regs.PC(), kp.Addr)
					}
					got[name] = append(got[name], trapnr)
					return 0
				}
				if post {
					kp.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}
				}
				ps = append(ps, kp)
			}
			// Of a call it is the target that faults, when the call is over.
			ps = append(ps, &kprobe.Kprobe{Addr: labelOf(t, p.Pid, path, "fault_call_at"), PreHandler: harness.Pre(func(*kprobe.Regs) {}),
				FaultHandler: func(*kprobe.Kprobe, *kprobe.Regs, int) int {
					t.Error("the call itself is said to fault")
					return 0
				}})
			harness.Register(t, s, ps...)
			harness.SameRound(t, s, p, want, "2")
			for name, trap := range traps {
				ways := 2 // jump, skip; and mend, where a page is the cause
				if trap == 14 {
					ways = 3
				}
				if slices.ContainsFunc(got[name], func(n int) bool { return n != trap }) || len(got[name]) != 2*ways {
					t.Errorf("%s: traps %v, want %d times %d", name, got[name], 2*ways, trap)
				}
			}
			harness.Ends(t, p)
		})
	}
}

// labelOf is the address of any symbol of a program, a label in a function too.
func labelOf(t testing.TB, pid int, path, label string) arch.Addr {
	t.Helper()
	f, err := elf.Open(path)
	harness.OK(t, err)
	defer f.Close()
	syms, err := f.Symbols()
	harness.OK(t, err)
	at := make(map[string]uint64)
	for _, sym := range syms {
		at[sym.Name] = sym.Value
	}
	if at[label] == 0 {
		t.Fatalf("%s has no label %s", path, label)
	}
	return arch.Addr(funcNamed(t, pid, path, "main").Addr - at["main"] + at[label])
}

const faultProgram = `
static long good = 42;
PROBED long deref(long *p) { return *p + 1; }
PROBED long divide(long a, long b) { return a / b; }
PROBED long through(long (**f)(void)) { return (*f)() + 1; }
static long seven(void) { return 7; }
static long (*volatile sevens)(void) = seven;
int main(void)
{
	while (next()) {
		if (*line == 'd')
			printf("deref %ld\n", deref(NULL));
		else if (*line == 'g')
			printf("deref %ld\n", deref(&good));
		else if (*line == 'c')
			printf("through %ld\n", through((long (**)(void))16));
		else
			printf("divide %ld\n", divide(10, 0));
	}
	return 0;
}
`

// A result of 1: the program is not told, and goes on with what the handler
// left in the registers.
func TestConformFaultHandled(t *testing.T) {
	path := harness.Compile(t, "mends", faultProgram)
	p := testprog.Start(t, path)
	s := harness.Attach(t, p.Pid, nil)
	value := uint64(0)
	for _, c := range []struct {
		name   string
		line   string
		want   string
		handle func(kp *kprobe.Kprobe, regs *kprobe.Regs)
		hits   uint64
	}{
		{"registers mended, the instruction again", "d", "deref 43", func(kp *kprobe.Kprobe, regs *kprobe.Regs) {
			regs.Set(arch.DI, value)
		}, 2},
		{"the instruction skipped", "d", "deref 1000", func(kp *kprobe.Kprobe, regs *kprobe.Regs) {
			regs.SetReturnValue(999)
			regs.SetPC(kp.Addr + arch.Addr(length(t, s, kp.Addr)))
		}, 1},
		{"a division", "/", "divide 5", func(kp *kprobe.Kprobe, regs *kprobe.Regs) {
			regs.SetReturnValue(5)
			regs.SetPC(kp.Addr + arch.Addr(length(t, s, kp.Addr)))
		}, 1},
		{"a call through memory that is not there", "c", "through 8", func(kp *kprobe.Kprobe, regs *kprobe.Regs) {
			regs.SetReturnValue(7)
			regs.SetPC(kp.Addr + arch.Addr(length(t, s, kp.Addr)))
		}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			fn := map[string]string{"d": "deref", "/": "divide", "c": "through"}[c.line]
			kp := &kprobe.Kprobe{Addr: faultingIn(t, s, funcNamed(t, p.Pid, path, fn))}
			if value == 0 {
				value = uint64(labelOf(t, p.Pid, path, "good"))
			}
			faults := 0
			kp.FaultHandler = func(kp *kprobe.Kprobe, regs *kprobe.Regs, trapnr int) int {
				faults++
				c.handle(kp, regs)
				return 1
			}
			harness.Register(t, s, kp)
			if got := harness.Round(t, s, p, "%s", c.line); !slices.Equal(got, []string{c.want}) {
				t.Errorf("%q, want %q", got, c.want)
			}
			if faults != 1 || kp.Hits() != c.hits {
				t.Errorf("%d faults, %d hits, want %d", faults, kp.Hits(), c.hits)
			}
			harness.OK(t, s.UnregisterKprobe(kp))
		})
	}
	if got := p.Round("g"); got[0] != "deref 43" {
		t.Error(got)
	}
}

// A call through memory that is not there, which nobody handles, ends the
// program as it does unprobed; the fault is not met for ever.
func TestConformFaultOfACallUnhandled(t *testing.T) {
	path := harness.Compile(t, "falls", faultProgram)
	for _, line := range []string{"c", "d", "/"} {
		for _, post := range []bool{false, true} {
			unprobed := testprog.Start(t, path)
			unprobed.Send("%s", line)
			want := unprobed.Wait()
			p := testprog.Start(t, path)
			s := harness.Attach(t, p.Pid, nil)
			fn := map[string]string{"d": "deref", "/": "divide", "c": "through"}[line]
			kp := &kprobe.Kprobe{Addr: faultingIn(t, s, funcNamed(t, p.Pid, path, fn)), PreHandler: harness.Pre(func(*kprobe.Regs) {})}
			if post {
				kp.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) { t.Error("post-handler of a faulting instruction") }
			}
			harness.Register(t, s, kp)
			p.Send("%s", line)
			if got := p.Wait(); got != want || !got.Signaled() {
				t.Errorf("%s: ended with %v, unprobed with %v", fn, got, want)
			}
			<-s.Done()
			if kp.Hits() != 1 {
				t.Errorf("%s: %d hits", fn, kp.Hits())
			}
		}
	}
}

// faultingIn is the first instruction of a function that uses memory or
// divides: objdump tells.
func faultingIn(t testing.TB, s *kprobe.Session, fn symbol.Symbol) arch.Addr {
	t.Helper()
	for _, at := range harness.Instructions(t, s, fn) {
		b := make([]byte, 15)
		harness.OK(t, s.ReadMem(at, b))
		text := disassemble(t, b[:length(t, s, at)])
		if strings.Contains(text, "(%rdi)") || strings.Contains(text, "idiv") {
			return at
		}
	}
	t.Fatalf("%s has no such instruction", fn.Name)
	return 0
}
