package main

import (
	"fmt"
	"math/big"
	"strings"
	"testing"
)

// TestWideIntegers holds that integers of 16 bytes are those that a program prints, at the entry, behind
// it and at the return. Where debug data tells their halves in the wrong order they are refused.
func TestWideIntegers(t *testing.T) {
	for i, cc := range [][]string{{"gcc", "-O2", "-g"}, {"gcc", "-O0", "-g"}, {"clang", "-O0", "-g"}} {
		path := compiledSource(t, append(cc, "wide.c")...)
		for _, how := range engines(i) {
			r := run(t, append(append([]string{"trace", "--no-summary"}, how...), "p:both both x y", "p:behind behind x", "p:three three x y z",
				"r:gave both got=$retval", "--", path)...)
			want := map[string][]string{}
			for _, line := range r.Lines {
				name, n, ok := printedHalves(line)
				switch {
				case !ok:
				case name == "both":
					want["both"] = append(want["both"], fmt.Sprintf("x=%v y=%v", n[0].signed(), n[1]))
					want["gave"] = append(want["gave"], fmt.Sprintf("got=%v", n[2].signed()))
				case name == "behind":
					want["behind"] = append(want["behind"], fmt.Sprintf("x=%v", n[0].signed()))
				case name == "three":
					minus := new(big.Int).Neg(n[0].signed())
					want["three"] = append(want["three"], fmt.Sprintf("x=%v y=%v z=%v", n[0].signed(), n[1].signed(), minus))
				}
			}
			for _, event := range []string{"both", "gave", "behind", "three"} {
				if got := values(r.Lines, event); fmt.Sprint(got) != fmt.Sprint(want[event]) || len(got) != 4 {
					t.Errorf("%v %v: %s: %q, want %q\n%s", cc, how, event, got, want[event], r.Stderr)
				}
			}
		}
	}
	path := compiledSource(t, "gcc", "-O2", "-g", "wide.c")
	step := 1
	if testing.Short() {
		step = 3 // bytes of GCC's first instructions
	}
	for at := step; at < 12; at += step {
		r := run(t, "trace", "--no-summary", fmt.Sprintf("p:ev both+%d x", at), "--", path)
		var right []string
		for _, line := range r.Lines {
			if name, n, ok := printedHalves(line); ok && name == "both" {
				right = append(right, fmt.Sprintf("x=%v", n[0].signed()))
			}
		}
		if got := values(r.Lines, "ev"); len(got) > 0 && fmt.Sprint(got) != fmt.Sprint(right) {
			t.Errorf("both+%d: %q, want %q", at, got, right)
		}
	}
	refused(t, run(t, "trace", "p both x if x == 5", "--", path), "no condition computes")
}

type unsigned struct{ *big.Int }

func (n unsigned) signed() *big.Int {
	if n.BitLen() < 128 {
		return n.Int
	}
	return new(big.Int).Sub(n.Int, new(big.Int).Lsh(big.NewInt(1), 128))
}

// printedHalves reads a line of the program's: a function, and three numbers as halves.
func printedHalves(line string) (name string, n [3]unsigned, ok bool) {
	words := strings.Fields(line)
	if len(words) != 4 || strings.Count(line, ":") != 3 {
		return "", n, false
	}
	for i, w := range words[1:] {
		high, low, _ := strings.Cut(w, ":")
		n[i].Int, ok = new(big.Int).SetString(high+strings.Repeat("0", 16-len(low))+low, 16)
		if !ok {
			return "", n, false
		}
	}
	return words[0], n, true
}
