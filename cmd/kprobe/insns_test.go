package main

import (
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"kprobe/internal/testprog"
)

// listed is a line of objdump's or of ours.
type listed struct {
	length int
	refers string // the address that it refers to relative to itself; "" for none
}

var (
	objdumpLine = regexp.MustCompile(`^ *([0-9a-f]+):\t((?:[0-9a-f]{2} )+) *\t?(.*)$`)
	ripOperand  = regexp.MustCompile(`\(%[er]ip\).*# ([0-9a-f]+)( <|$)`)
	branch      = regexp.MustCompile(`^(?:(?:bnd|notrack|cs|ds|data16|addr32) )*(?:j\w+|call\w?|loop\w*|xbegin)(?:,p[nt])? +([0-9a-f]+)( <|$)`)
)

// objdump lists .text; what objdump calls bad is left out.
func objdump(t *testing.T, path string) (map[string]listed, []string) {
	t.Helper()
	out, err := exec.Command("objdump", "-d", "-w", "-j", ".text", path).Output()
	if err != nil {
		t.Fatal(err)
	}
	all, order := map[string]listed{}, []string{}
	for line := range strings.Lines(string(out)) {
		m := objdumpLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil || strings.Contains(m[3], "(bad)") {
			continue
		}
		l := listed{length: len(strings.Fields(m[2]))}
		if r := ripOperand.FindStringSubmatch(m[3]); r != nil {
			l.refers = r[1]
		} else if r := branch.FindStringSubmatch(m[3]); r != nil {
			l.refers = r[1]
		}
		all[m[1]] = l
		order = append(order, m[1])
	}
	return all, order
}

// parse reads our own line.
func parse(t *testing.T, line string) (addr string, l listed) {
	t.Helper()
	f := strings.Fields(line)
	if len(f) < 3 || len(f) > 4 {
		t.Fatalf("%q", line)
	}
	if _, err := fmt.Sscan(f[1], &l.length); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	if len(f) == 4 {
		var ok bool
		if l.refers, ok = strings.CutPrefix(f[3], "pc="); !ok {
			t.Fatalf("%q", line)
		}
	}
	return f[0], l
}

func TestInsnsAgreeWithObjdump(t *testing.T) {
	for _, flags := range [][]string{{"-O2"}, {"-O2", "-no-pie", "-static"}, {"-O2", "-m32", "-fno-pic"}} {
		if testing.Short() && len(flags) == 1 {
			continue // TestInsnsAtPoints has it
		}
		path := testprog.Build(t, "threads", flags...)
		want, order := objdump(t, path)
		r := run(t, "insns", path)
		if !r.OK() || len(order) < 100 {
			t.Fatalf("%q: %d of objdump, %s", flags, len(order), r.Stderr)
		}
		got := map[string]listed{}
		for _, line := range r.Lines {
			addr, l := parse(t, line)
			got[addr] = l
		}
		different, referring := 0, 0
		for _, addr := range order {
			if got[addr] != want[addr] {
				t.Errorf("%q, %s: %+v, objdump has %+v", flags, addr, got[addr], want[addr])
				if different++; different > 10 {
					t.FailNow()
				}
			}
			if want[addr].refers != "" {
				referring++
			}
		}
		if len(got) < len(order) || referring < 20 {
			t.Errorf("%q: %d instructions of %d, %d refer to something", flags, len(got), len(order), referring)
		}
	}
}

func TestInsnsAtPoints(t *testing.T) {
	path := testprog.Build(t, "threads", "-O2")
	want, order := objdump(t, path)
	k := testprog.StartCmd(t, tool(t, "insns", "--points", path))
	points := append([]string{"0", "ffffffffffffffff"}, order...)
	for _, addr := range points {
		k.Send("%s", addr)
	}
	k.Send("")
	r := k.Result()
	if !r.OK() || len(r.Lines) != len(points) {
		t.Fatalf("%d lines for %d points, %s", len(r.Lines), len(points), r.Stderr)
	}
	for i, line := range r.Lines {
		addr, l := parse(t, line)
		if addr != points[i] || l != want[addr] { // zero for the two outside
			t.Errorf("%q, want %s %+v", line, points[i], want[points[i]])
		}
	}
}
