package spec

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestNames(t *testing.T) {
	for _, c := range []struct{ in, group, event string }{
		{"p f", "kprobes", "p_f_0"},
		{"r f", "kprobes", "r_f_0"},
		{"p f%return", "kprobes", "r_f_0"},
		{"p f.isra.0+0x13", "kprobes", "p_f_isra_0_19"},
		{"p mod:f", "kprobes", "p_mod_f_0"},
		{"p 0xABC", "kprobes", "p_0xabc"},
		{"p:g/ f", "g", "p_f_0"},
		{"p:e f", "kprobes", "e"},
		{"w w@counter+8:4", "wprobes", "counter"},
		{"w w@libfoo.so:ns::counter", "wprobes", "ns__counter"},
		{"w:g/ @0x401000:4", "g", "wprobe"},
		{"w:e @0x401000:4", "wprobes", "e"},
		{"p:g/e f", "g", "e"},
		{"p:g.e f", "g", "e"},
		{"p /usr/bin/my-prog.x:0x1f", "uprobes", "p_my_0x1f"},
		{"r /usr/lib/libc.so.6:31", "uprobes", "p_libc_0x1f"},
		{"p /usr/lib/libc.so.6:getenv", "kprobes", "p_libc_so_6_getenv_0"},
		{"p libc.so.6:memcpy@GLIBC_2.14+4", "kprobes", "p_libc_so_6_memcpy_GLIBC_2_14_4"},
		{"p main.(*T).Method", "kprobes", "p_main___T__Method_0"},
		{`p "f(int, char)"`, "kprobes", "p_f_int__char__0"},
		{"p " + long(59), "kprobes", "p_" + long(59) + "_0"},
	} {
		s, err := Parse(c.in, Process)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if g, e := s.Names(); g != c.group || e != c.event {
			t.Errorf("%s: %s/%s, want %s/%s", c.in, g, e, c.group, c.event)
		}
	}
	// Names that have to be cut fit, and stay apart.
	seen := map[string]bool{}
	for _, symbol := range []string{long(60), long(61), long(300), long(300) + "b"} {
		_, e := (&Spec{Kind: Probe, Place: Place{Symbol: symbol}}).Names()
		if len(e) != maxName || !isIdent(e) || !strings.HasPrefix(e, "p_aaa") || seen[e] {
			t.Errorf("%d bytes of symbol: %s", len(symbol), e)
		}
		seen[e] = true
	}
}

func TestSiblings(t *testing.T) {
	parse := func(line string) *Spec {
		t.Helper()
		s, err := Parse(line, Process)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	have := []*Spec{
		parse("p:g/e f a=%ax b=+0(%bx):x8[4] c=%cx:b4@0/32"),
		parse("p:g/e f+4 a=%ax b=+0(%bx):x8[4] c=%cx:b4@0/32"),
		parse("r:g/r f"),
	}
	for _, c := range []struct {
		line string
		code Code // "" where it is accepted
		at   int
	}{
		{"p:g/e h a=%ax b=+0(%bx):x8[4] c=%cx:b4@0/32", "", 0},
		{"p:g/e f a=%si b=+8(%di):x8[4] c=%cx:b1@3/32", "", 0}, // other registers, same record
		{"p:g/other f a=%ax", "", 0},
		{"p:other/e f a=%ax", "", 0},
		{"r:g/other f", "", 0},
		{"p:g/e f a=%ax b=+0(%bx):x8[4] c=%cx:b4@0/32", SameProbe, 0},
		{"p:g/e f+0x4 a=%ax b=+0x0(%bx):x8[4] c=%cx:b4@0/32", SameProbe, 0}, // spelled otherwise
		{"r:g/r f", SameProbe, 0},
		{"p:g/r f%return", SameProbe, 0},
		{"r:g/e f a=%ax b=+0(%bx):x8[4] c=%cx:b4@0/32", DiffProbeType, 0},
		{"p:g/r f", DiffProbeType, 0},
		{"p:g/e h z=%ax b=+0(%bx):x8[4] c=%cx:b4@0/32", DiffArgType, 8},
		{"p:g/e h a=%ax:u64 b=+0(%bx):x8[4] c=%cx:b4@0/32", DiffArgType, 8},
		{"p:g/e h a=%ax b=+0(%bx):x8[5] c=%cx:b4@0/32", DiffArgType, 14},
		{"p:g/e h a=%ax b=+0(%bx):x8[4] c=%cx:b4@0/16", DiffArgType, 30},
		{"p:g/e h a=%ax", DiffArgType, 14},
		{"r:g/r f a=%ax", DiffArgType, 8},
	} {
		s := parse(c.line)
		err := Append(have, s)
		if c.code == "" {
			if err != nil {
				t.Errorf("%v", err)
			}
			continue
		}
		var e *SyntaxError
		if !errors.As(err, &e) || e.Code != c.code || e.Offset != c.at || !errors.Is(err, syscall.EEXIST) {
			t.Errorf("%s: %v; want %s at %d", c.line, err, c.code, c.at)
		}
	}

	// A removal with a place and arguments takes the probes that begin so.
	for line, left := range map[string]int{
		"-:g/e":           1,
		"-:e":             1,
		"-:g/":            0,
		"-:g/e f":         2,
		"-:g/e f+4 a=%ax": 2,
		"-:g/e f+4 a=%ax b=+0(%bx):x8[4] c=%cx:b4@0/32": 2,
		"-:g/e f a=%bx": 3,
		"-:g/e f a=%ax b=+0(%bx):x8[4] c=%cx:b4@0/32 d=%r": 3,
	} {
		d, err := Options{IsReg: func(string) bool { return true }}.Parse(line)
		if err != nil {
			t.Fatal(err)
		}
		rest, err := Remove(have, d)
		if len(rest) != left || errors.Is(err, syscall.ENOENT) != (left == 3) {
			t.Errorf("%s: %d left, %v; want %d", line, len(rest), err, left)
		}
		roundTrip(t, d, Options{IsReg: func(string) bool { return true }})
	}
	if len(have) != 3 {
		t.Error("the list that was given has changed")
	}
}

func TestParseAll(t *testing.T) {
	text := "# two probes\n\np:a f\n  \t\nr:b  f \t$retval # after it\r\n-:c\n"
	all, err := ParseAll(text, Process)
	if err != nil || len(all) != 3 || all[0].Event != "a" || all[1].Args[0].Fetch.Op != Retval || all[2].Kind != Delete {
		t.Fatalf("%v, %v", all, err)
	}
	all, err = ParseAll(text+"p:d f %zz\np:e f", Kprobes)
	var e *SyntaxError
	if len(all) != 3 || !errors.As(err, &e) || e.Code != BadRegName || !strings.HasPrefix(err.Error(), "line 7: ") {
		t.Fatalf("%v, %v", all, err)
	}
	// In the kernel "#" ends a line wherever it stands.
	if s, err := Parse("p f%return#x", Kprobes); err != nil || !s.Place.PctReturn {
		t.Errorf("%v, %v", s, err)
	}
}

func TestNumbers(t *testing.T) {
	for in, want := range map[string]uint64{
		"0": 0, "10": 10, "010": 8, "0x10": 16, "0X1f": 31, "+7": 7, "18446744073709551615": 1<<64 - 1, "00": 0,
	} {
		if n, ok := parseUint(in, 64); !ok || n != want {
			t.Errorf("%s: %d, %t", in, n, ok)
		}
	}
	for _, in := range []string{"", "+", "-1", "0x", "0x+1", "09", "0b1", "0o7", "1_0", "1 ", "++1", "18446744073709551616", "x1"} {
		if n, ok := parseUint(in, 64); ok {
			t.Errorf("%q: %d", in, n)
		}
	}
	for in, want := range map[string]int64{
		"-1": -1, "-0x10": -16, "+5": 5, "-9223372036854775808": -1 << 63, "9223372036854775807": 1<<63 - 1,
	} {
		if n, ok := parseInt(in); !ok || n != want {
			t.Errorf("%s: %d, %t", in, n, ok)
		}
	}
	for _, in := range []string{"", "-", "--1", "-+1", "+-1", "9223372036854775808", "-9223372036854775809"} {
		if n, ok := parseInt(in); ok {
			t.Errorf("%q: %d", in, n)
		}
	}
}
