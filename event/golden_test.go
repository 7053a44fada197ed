package event

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/spec"
)

// The files in testdata are what a Debian kernel (6.1.192, x86-64) printed for
// these definitions.
var definitions = []string{
	`p:myp vfs_read`,
	`p:myoff vfs_read+0x5`,
	`p:mid vfs_read+0x9`,
	`r:myr vfs_read $retval`,
	`r8:myr8 vfs_write ret=$retval:s64`,
	`p:mygrp/args do_sys_openat2 dfd=%di:s32 file=+0($arg2):ustring how=+0(%dx):x64`,
	`p:many vfs_write file=$arg1 buf=$arg2:x64 count=$arg3:u64 stack0=$stack0 stk=$stack ` +
		`comm=$comm sym=$arg1:symbol imm=\42 ip=@vfs_read:x64 b=%cx:b4@0/32 arr=+0($arg1):x8[4]`,
}

func parse(t testing.TB, line string) *spec.Spec {
	t.Helper()
	s, err := spec.Parse(line, spec.Kprobes)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// defined is the definition of that event.
func defined(t testing.TB, event string) *spec.Spec {
	t.Helper()
	for _, line := range definitions {
		if s := parse(t, line); s.Event == event {
			return s
		}
	}
	t.Fatalf("no event %q is defined", event)
	return nil
}

func golden(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var traceLine = regexp.MustCompile(`^ *(.+)-(\d+) +\[(\d+)\] (.....) +(\d+)\.(\d{6}): (\w+): ` +
	`\((\w+)(?:\+0x(\w+)/0x(\w+))?(?: <- (\w+))?\)(.*)$`)

// Every line that the kernel printed is taken apart into values and must come
// out again. Only the flags column is not ours.
func TestTraceLines(t *testing.T) {
	header, lines := "", 0
	for _, want := range strings.Split(strings.TrimSuffix(golden(t, "trace.txt"), "\n"), "\n") {
		if strings.HasPrefix(want, "#") {
			header += want + "\n"
			continue
		}
		m := traceLine.FindStringSubmatch(want)
		if m == nil {
			t.Fatalf("the test does not understand %q", want)
		}
		e := Event{
			TID: int(number(t, m[2], 10)), CPU: int(number(t, m[3], 10)), Comm: m[1],
			Time: time.Duration(number(t, m[5], 10))*time.Second + time.Duration(number(t, m[6], 10))*time.Microsecond,
			Name: m[7], Args: parseArgs(t, defined(t, m[7]).Args, m[12]),
		}
		if e.Return = m[11] != ""; e.Return {
			e.Func, e.RetSym = m[11], m[8]+"+0x"+m[9]+"/0x"+m[10]
		} else {
			e.Func, e.Off, e.Size = m[8], number(t, m[9], 16), number(t, m[10], 16)
		}
		want = strings.Replace(want, "] "+m[4], "] .....", 1)
		if got := string(e.AppendText(nil)); got != want {
			t.Errorf("\n got %s\nwant %s", got, want)
		}
		lines++
	}
	if lines != 47 {
		t.Errorf("%d lines checked, testdata has 47", lines)
	}
	if got := TextHeader(36, 36, 1); got != header {
		t.Errorf("header\n%s\nwant\n%s", got, header)
	}
}

func number(t *testing.T, s string, base int) uint64 {
	t.Helper()
	n, err := strconv.ParseUint(s, base, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// parseArgs makes values of " name=value ..." by the types of the definition.
func parseArgs(t *testing.T, args []spec.Arg, s string) (vs []Value) {
	t.Helper()
	for i := range args {
		_, rest, ok := strings.Cut(s, " "+args[i].Name+"=")
		if !ok {
			t.Fatalf("no argument %s in %q", args[i].Name, s)
		}
		typ, err := typeOf(&args[i], arch.AMD64)
		if err != nil {
			t.Fatal(err)
		}
		v := Value{Name: args[i].Name, Base: typ.Base, Size: uint8(typ.Size)}
		word, _, _ := strings.Cut(rest, " ")
		switch {
		case typ.Array != 0:
			v.Array = true
			for e := range strings.SplitSeq(strings.Trim(word, "{}"), ",") {
				v.Elems = append(v.Elems, Value{Base: typ.Base, Size: v.Size, Bits: number(t, e[2:], 16)})
			}
		case isText(typ.Base):
			v.Text = strings.Trim(word, `"`)
		case strings.HasPrefix(word, "0x"):
			v.Bits = number(t, word[2:], 16)
		default:
			n, err := strconv.ParseInt(word, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			v.Bits = uint64(n)
		}
		vs = append(vs, v)
	}
	return vs
}

// A hit of "many", captured from registers and memory, gives the kernel's line.
func TestCaptureToLine(t *testing.T) {
	const line = `             cat-143     [000] .....     3.742851: many: (vfs_write+0x0/0x3f0) ` +
		`file=0xff110000053d6a00 buf=0x7ffc2a607bc8 count=58 stack0=0xffffffff8134d95b stk=0xffa00000005b3c28 ` +
		`comm="cat" sym=0xff110000053d6a00 imm=0x2a ip=0x4157cc3eeb83abe8 b=0 arr={0x0,0x0,0x0,0x0}`
	if !strings.Contains(golden(t, "trace.txt"), line+"\n") {
		t.Fatal("the line is not the kernel's")
	}
	mem := pages{}
	mem.put(0xffa00000005b3c28, 0x5b, 0xd9, 0x34, 0x81, 0xff, 0xff, 0xff, 0xff)
	mem.put(0xffffffff8134cc50, 0xe8, 0xab, 0x83, 0xeb, 0x3e, 0xcc, 0x57, 0x41)
	mem.put(0xff110000053d6a00, 0, 0, 0, 0)
	c, err := Compile(defined(t, "many").Args, arch.AMD64, names{"vfs_read": 0xffffffff8134cc50})
	if err != nil {
		t.Fatal(err)
	}
	var regs arch.Regs
	regs[arch.DI], regs[arch.SI], regs[arch.DX] = 0xff110000053d6a00, 0x7ffc2a607bc8, 58
	regs[arch.SP], regs[arch.CX] = 0xffa00000005b3c28, 0x1230
	e := Event{
		Time: 3742851 * time.Microsecond, TID: 143, Comm: "cat", Name: "many", Func: "vfs_write", Size: 0x3f0,
		Args: c.Run(&Context{Regs: &regs, Mem: mem, Comm: "cat"}),
	}
	if got := string(e.AppendText(nil)); got != line {
		t.Errorf("\n got %s\nwant %s", got, line)
	}
}

// Forms of text that the captured lines do not show.
func TestTextForms(t *testing.T) {
	for _, c := range []struct {
		e    Event
		want string
	}{
		{ // no symbols, as uprobes print; name not known; a long uptime
			Event{Time: 1234567*time.Second + 999999500, TID: 12345678, CPU: 127, Name: "p", Addr: 0x401000},
			"           <...>-12345678 [127] ..... 1234568.000000: p: (0x401000)",
		},
		{
			Event{Time: 1499, TID: 1, Comm: "averyveryverylongname", Name: "r", Return: true, Addr: 0x401000, RetAddr: 0x402004},
			"averyveryverylongname-1       [000] .....     0.000001: r: (0x402004 <- 0x401000)",
		},
		{
			Event{Comm: "é\x1b[31m", Name: "p", Func: "main.(*T).f", Off: 1, Size: 16, Args: []Value{
				{Name: "s", Base: spec.String, Text: "a\n\"b\\\u202e\xff\\x41"},
				{Name: "c", Base: spec.Char, Size: 1, Bits: 'a'},
				{Name: "z", Base: spec.Char, Size: 1, Bits: 0},
				{Name: "f", Base: spec.String, Fault: true},
				{Name: "n", Base: spec.Signed, Size: 2, Fault: true},
				{Name: "y", Base: spec.Symbol, Size: 8, Bits: 1, Text: "malloc+0x0/0x10"},
				{Name: "t", Base: spec.SymStr, Size: 8, Bits: 1, Text: "malloc+0x0/0x10"},
				{Name: "i", Base: spec.Signed, Size: 1, Bits: 0x80},
				{Name: "l", Base: spec.String, Array: true, Elems: []Value{{Base: spec.String, Text: "x"}, {Base: spec.String, Fault: true}}},
			}},
			`      é\x1b[31m-0       [000] .....     0.000000: p: (main.(*T).f+0x1/0x10) ` +
				`s="a\x0a"b\\xe2\x80\xae\xff\x5cx41" c='a' z='\x00' f=(fault) n=(fault) y=malloc+0x0/0x10 ` +
				`t="malloc+0x0/0x10" i=-128 l={"x",(fault)}`,
		},
	} {
		if got := string(c.e.AppendText(nil)); got != c.want {
			t.Errorf("\n got %s\nwant %s", got, c.want)
		}
	}
}

func TestProfile(t *testing.T) {
	want := golden(t, "kprobe_profile.txt")
	var counts []Count
	for line := range strings.Lines(want) {
		f := strings.Fields(line)
		counts = append(counts, Count{Name: f[0], Hits: number(t, f[1], 10), Missed: [Causes]uint64{NoInstance: number(t, f[2], 10)}})
	}
	var out strings.Builder
	if err := WriteProfile(&out, counts); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
}

func TestSummary(t *testing.T) {
	counts := []Count{
		{Name: "myp", Place: "vfs_read+0x0", Hits: 10},
		{Name: "ré", Place: "libc.so.6:malloc+0x0", Hits: 12345, Missed: [Causes]uint64{Recursion: 3, NoInstance: 40, Longjmp: 5, Fault: 7000}},
	}
	const want = `` +
		"probe  place                  hits  hits/s  recursion  no instance  longjmp  fault\n" +
		"myp    vfs_read+0x0             10     4.0          0            0        0      0\n" +
		"ré     libc.so.6:malloc+0x0  12345  4938.0          3           40        5   7000\n" +
		"total                        12355  4942.0          3           40        5   7000\n"
	var out strings.Builder
	if err := WriteSummary(&out, counts, 2500*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", &out, want)
	}
	many := slices.Concat(counts, make([]Count, 340))
	out.Reset()
	if err := WriteSummary(&out, many, 2500*time.Millisecond); err != nil || out.String() != want+"340 probes were not hit\n" {
		t.Errorf("with silent ones %v:\n%s", err, &out)
	}
	out.Reset()
	if err := WriteSummary(&out, many[2:], time.Second); err != nil || out.String() != "340 probes were not hit\n" {
		t.Errorf("of silent ones alone %v:\n%s", err, &out)
	}
	out.Reset()
	if err := WriteSummary(&out, many[2:2+Few], time.Second); err != nil || strings.Count(out.String(), "\n") != 1+Few+1 {
		t.Errorf("of few %v:\n%s", err, &out)
	}
	if n := counts[1].NMissed(); n != 43 {
		t.Errorf("NMissed = %d, want recursion and no instance: 43", n)
	}
	if err := WriteSummary(full{}, counts, 0); err == nil {
		t.Error("no error from a full disk")
	}
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, fmt.Errorf("no space left") }

func TestFormatFile(t *testing.T) {
	for event, id := range map[string]int{"myp": 1392, "myr": 1395, "many": 1398} {
		got, err := FormatFile(defined(t, event), id, arch.AMD64)
		if err != nil {
			t.Fatal(err)
		}
		if want := golden(t, event+".format"); string(got) != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

// Forms that the three captured files lack.
func TestFormatFields(t *testing.T) {
	s := parse(t, `p:e vfs_read l=+0(%di):string[2] c=%di:char n=%di:s64 t=%di:symstr`)
	got, err := FormatFile(s, 7, arch.AMD64)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\tfield:__data_loc char[][2] l;\toffset:16;\tsize:8;\tsigned:1;\n",
		"\tfield:u8 c;\toffset:24;\tsize:1;\tsigned:0;\n",
		"\tfield:s64 n;\toffset:25;\tsize:8;\tsigned:1;\n",
		`"(%lx) l={\"%s\",\"%s\"} c='%c' n=%Ld t=\"%s\"", REC->__probe_ip, __get_str(l[0]), __get_str(l[1]), REC->c, REC->n, __get_str(t)` + "\n",
	} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
