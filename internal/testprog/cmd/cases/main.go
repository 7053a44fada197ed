// Cases runs runtime cases of bpftrace's own form and prints a table: how many pass, file
// by file, and why the others do not. From a checkout of bpftrace, whose test programs are
// built below the folder tests:
//
//	cases -bpftrace BINARY -dir tests tests/runtime
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"kprobe/internal/testprog/cases"
)

func main() {
	program := flag.String("bpftrace", "bpftrace", "the `program`: a name that ends in bpftrace")
	dir := flag.String("dir", ".", "the `folder` that it is run in")
	jobs := flag.Int("j", 1, "run `N` cases at a time")
	verbose := flag.Bool("v", false, "show what each case that fails has printed")
	flag.Parse()
	if err := run(*program, *dir, *jobs, *verbose, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "cases:", err)
		os.Exit(1)
	}
}

func run(program, dir string, jobs int, verbose bool, files []string) error {
	all, err := cases.ReadFiles(files...)
	if err != nil {
		return err
	}
	if abs, err := filepath.Abs(program); err == nil && filepath.Base(program) != program {
		program = abs
	}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	r := &cases.Runner{Bpftrace: program, Dir: dir, Machine: unix.ByteSliceToString(u.Machine[:])}
	results := make([]cases.Result, len(all))
	var wg sync.WaitGroup
	turns := make(chan struct{}, max(jobs, 1))
	for i, c := range all {
		turns <- struct{}{}
		wg.Go(func() {
			results[i] = r.Run(c)
			<-turns
		})
	}
	wg.Wait()
	if verbose {
		for _, res := range results {
			if !res.OK && !res.Absent {
				fmt.Printf("--- %s: %s: %s\n%s%s\n%s\n", res.Case.File, res.Case.Name, res.Why, res.Case.Run, res.Case.Prog, res.Output)
			}
		}
	}
	return cases.Table(os.Stdout, results)
}
