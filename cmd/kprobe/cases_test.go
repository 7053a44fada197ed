package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"kprobe/internal/testprog"
	"kprobe/internal/testprog/cases"
)

// Cases in the form of bpftrace's own pass under the name bpftrace.
func TestCases(t *testing.T) {
	dir := t.TempDir()
	data, err := filepath.Abs("testdata/cases")
	if err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"bpftrace": tool(t).Path, "map.json": filepath.Join(data, "map.json")} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	copyJumpers(t, dir)
	all, err := cases.ReadFiles(data)
	if err != nil || len(all) < 13 {
		t.Fatalf("%d cases, %v", len(all), err)
	}
	r := &cases.Runner{Bpftrace: filepath.Join(dir, "bpftrace"), Dir: dir, Machine: "x86_64"}
	var results []cases.Result
	for _, c := range all {
		c.Timeout *= 6 // of a busy machine
		res := r.Run(c)
		if !res.OK {
			t.Errorf("%s: %s: %s\n%s", c.File, c.Name, res.Why, res.Output)
		}
		results = append(results, res)
	}
	var table strings.Builder
	if err := cases.Table(&table, results); err != nil {
		t.Fatal(err)
	}
	t.Log("\n" + table.String())
}

// copyJumpers puts a copy of the program jumpers into a folder: other tests run the program, too.
func copyJumpers(t *testing.T, dir string) {
	program, err := os.ReadFile(testprog.Build(t, "jumpers", "-O2"))
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "jumpers"), program, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Programs that end as soon as they have begun are seen from their first instruction on, where one may be asked before they are
// executed.
func TestShortPrograms(t *testing.T) {
	testprog.HoldsPrograms.Need(t)
	dir := t.TempDir()
	copyJumpers(t, dir)
	if err := os.Symlink(tool(t).Path, filepath.Join(dir, "bpftrace")); err != nil {
		t.Fatal(err)
	}
	programs := 20
	if testing.Short() {
		programs = 8
	}
	r := &cases.Runner{Bpftrace: filepath.Join(dir, "bpftrace"), Dir: dir, Machine: "x86_64"}
	res := r.Run(&cases.Case{
		Prog:  fmt.Sprintf(`uprobe:./jumpers:jumper /arg1 == 0/ { @seen[pid, tid, comm] = count(); if (len(@seen) == %d) { print("all"); exit(); } } end { for ($kv : @seen) { if ($kv.0.2 != "jumpers" || $kv.0.0 != $kv.0.1) { print($kv); } } clear(@seen); }`, programs),
		After: fmt.Sprintf("for i in $(seq %d); do echo 1 | ./jumpers > /dev/null; done", programs), Timeout: time.Minute, Status: -1,
		Expect: []cases.Expect{{Kind: cases.Part, Text: "Attached 2 probes\nall\n\n\n"}},
	})
	if !res.OK {
		t.Errorf("%s\n%s", res.Why, res.Output)
	}
}
