package conform

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"kprobe"
	"kprobe/arch"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// kprobes.txt 1.2, 4.2: the handler has the function's parameters. Each case
// says what the handler saw in the words in which the function prints it.
func TestConformJprobeArguments(t *testing.T) {
	type pair struct{ A, B int32 }
	type mixed struct {
		D float64
		N int64
	}
	type large struct{ V [6]int64 }
	type node struct {
		Next  arch.Addr
		Value int32
		Name  [12]byte
	}
	p := testprog.Start(t, testprog.Build(t, "args", "-O2"))
	want := p.Round("1")
	s := harness.Attach(t, p.Pid, nil)
	var saw []string
	say := func(format string, args ...any) { saw = append(saw, fmt.Sprintf(format, args...)) }
	entries := map[string]any{
		"args_ints": func(a int32, b uint32, c int64, d uint8, e int16, f int64) {
			say("args_ints %d %d %d %d %d %d", a, b, c, d, e, f)
		},
		"args_many": func(regs *kprobe.Regs, a, b, c, d, e, f, g int32, h int64, i int8) {
			if n, err := regs.Arg(6); err != nil || int32(n) != g {
				t.Errorf("Arg(6) is %d, %v", n, err)
			}
			say("args_many %d %d %d %d %d %d %d %d %d", a, b, c, d, e, f, g, h, i)
		},
		"args_string": func(text kprobe.CString, n uint64) {
			if short, err := text.Read(3); err != nil || short != text.String()[:min(3, n)] {
				t.Errorf("three bytes of it: %q, %v", short, err)
			}
			say("args_string %s", text.String()[:n])
		},
		"args_float": func(a float64, b float32, c int32, d float64) { say("args_float %g %g %d %g", a, b, c, d) },
		"args_struct": func(p pair, m mixed, l large, last int32) {
			say("args_struct %d %d %g %d %d %d", p.A, p.B, m.D, m.N, l.V[5], last)
		},
		"args_pointer": func(n kprobe.Ptr[node], pp kprobe.Ptr[arch.Addr]) {
			first, err := n.Load()
			if err != nil {
				t.Error(err)
			}
			second, err := kprobe.At[node](s, first.Next).Load()
			if err != nil {
				t.Error(err)
			}
			to, err := pp.Load()
			if err != nil {
				t.Error(err)
			}
			value, err := kprobe.At[int32](s, to).Load()
			if err != nil {
				t.Error(err)
			}
			say("args_pointer %d %s %d", second.Value, strings.TrimRight(string(second.Name[:]), "\x00"), value)
		},
		"args_none": func() { say("args_none") },
		"args_kept": func(a int64) {
			a += 100 // a copy: the function sees its own
			runtime.KeepAlive(a)
		},
	}
	var js []*kprobe.Jprobe
	for name, entry := range entries {
		js = append(js, &kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: name}, Entry: entry})
	}
	harness.OK(t, s.RegisterJprobes(js))
	harness.SameRound(t, s, p, want, "1")
	if !slices.Equal(saw, want) {
		t.Errorf("handlers saw\n%s\nthe functions\n%s", strings.Join(saw, "\n"), strings.Join(want, "\n"))
	}
	for _, j := range js {
		if j.Kp.SymbolName == "args_string" && j.Kp.Hits() != 2 || j.Kp.Hits() == 0 {
			t.Errorf("%s: %d hits", j.Kp.SymbolName, j.Kp.Hits())
		}
	}
	harness.OK(t, s.UnregisterJprobes(js))
	saw = nil
	harness.SameRound(t, s, p, want, "1")
	if len(saw) != 0 {
		t.Errorf("unregistered, and saw %q", saw)
	}
	// And once more.
	harness.OK(t, s.RegisterJprobes(js))
	harness.SameRound(t, s, p, want, "1")
	if !slices.Equal(saw, want) {
		t.Errorf("the second time handlers saw\n%s", strings.Join(saw, "\n"))
	}
}

// The corners of the System V ABI: more floats than registers, structs of
// floats, of both in one eightbyte, of two classes, and one for which too few
// registers are left while a later scalar still gets one.
func TestConformJprobeABI(t *testing.T) {
	path := harness.Compile(t, "abi", `
#include <stdbool.h>
#include <stdint.h>
struct xy { float x, y; };
struct xyz { float x, y, z; };
struct fi { float f; int i; };
struct id { long i; double d; };
struct chars { char c[11]; };
struct dd { double a, b; };
struct one { signed char c; };
struct big { long v[3]; };
PROBED void floats(double a, float b, double c, double d, double e, double f, double g, double h, double i, float j)
{ printf("floats %g %g %g %g %g %g %g %g %g %g\n", a, b, c, d, e, f, g, h, i, j); }
PROBED void structs(struct xy a, struct xyz b, struct fi c, struct id d, struct chars e, struct one f)
{ printf("structs %g %g %g %g %g %g %d %ld %g %.11s %d\n", a.x, a.y, b.x, b.y, b.z, c.f, c.i, d.i, d.d, e.c, f.c); }
PROBED void tight(long a, long b, long c, long d, long e, struct chars f, long g, struct big h, long i)
{ printf("tight %ld %ld %ld %ld %ld %.11s %ld %ld %ld\n", a, b, c, d, e, f.c, g, h.v[2], i); }
PROBED void bools(bool a, bool b, uint8_t c, int8_t d, uint16_t e, int16_t f, bool g, uint8_t h)
{ printf("bools %d %d %d %d %d %d %d %d\n", a, b, c, d, e, f, g, h); }
PROBED void tightf(double a, double b, double c, double d, double e, double f, double g, struct dd h, double i, double j)
{ printf("tightf %g %g %g %g\n", g, h.b, i, j); }
int main(void)
{
	while (next()) {
		floats(1, 2, 3, 4, 5, 6, 7, 8, 9.5, 10.25f);
		structs((struct xy){1.5f, -2.5f}, (struct xyz){3, 4, 5.5f}, (struct fi){6.5f, -7}, (struct id){-8, 9.5},
			(struct chars){"hello world"}, (struct one){-3});
		tight(1, 2, 3, 4, 5, (struct chars){"on a stack!"}, 6, (struct big){{7, 8, 9}}, 10);
		bools(true, false, 255, -128, 65535, -32768, true, 200);
		tightf(1, 2, 3, 4, 5, 6, 7, (struct dd){8, 9.5}, 10.5, 11.5);
	}
	return 0;
}
`)
	type xy struct{ X, Y float32 }
	type xyz struct{ X, Y, Z float32 }
	type fi struct {
		F float32
		I int32
	}
	type id struct {
		I int64
		D float64
	}
	type chars struct{ C [11]byte }
	type dd struct{ A, B float64 }
	type one struct{ C int8 }
	type big struct{ V [3]int64 }
	p := testprog.Start(t, path)
	want := p.Round("")
	s := harness.Attach(t, p.Pid, nil)
	var saw []string
	say := func(format string, args ...any) { saw = append(saw, fmt.Sprintf(format, args...)) }
	bit := func(b bool) int {
		if b {
			return 1
		}
		return 0
	}
	entries := map[string]any{
		"floats": func(a float64, b float32, c, d, e, f, g, h, i float64, j float32) {
			say("floats %g %g %g %g %g %g %g %g %g %g", a, b, c, d, e, f, g, h, i, j)
		},
		"structs": func(a xy, b xyz, c fi, d id, e chars, f one) {
			say("structs %g %g %g %g %g %g %d %d %g %s %d", a.X, a.Y, b.X, b.Y, b.Z, c.F, c.I, d.I, d.D, e.C[:], f.C)
		},
		"tight": func(a, b, c, d, e int64, f chars, g int64, h big, i int64) {
			say("tight %d %d %d %d %d %s %d %d %d", a, b, c, d, e, f.C[:], g, h.V[2], i)
		},
		"bools": func(a, b bool, c uint8, d int8, e uint16, f int16, g bool, h uint8) {
			say("bools %d %d %d %d %d %d %d %d", bit(a), bit(b), c, d, e, f, bit(g), h)
		},
		"tightf": func(a, b, c, d, e, f, g float64, h dd, i, j float64) { say("tightf %g %g %g %g", g, h.B, i, j) },
	}
	for name, entry := range entries {
		harness.OK(t, s.RegisterJprobe(&kprobe.Jprobe{Kp: kprobe.Kprobe{SymbolName: name}, Entry: entry}))
	}
	harness.SameRound(t, s, p, want, "")
	if !slices.Equal(saw, want) {
		t.Errorf("handlers saw\n%s\nthe functions\n%s", strings.Join(saw, "\n"), strings.Join(want, "\n"))
	}
}
