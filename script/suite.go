package script

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"kprobe/bpf"
	"kprobe/script/output"
)

// Test and bench probes: run one after the other by the interpreter, between begin and end.

// one is a test or bench.
type one struct {
	name   string
	vm     *bpf.VM
	cookie uint64
}

// suite runs them. A test that fails makes the script's code 1.
func (r *Run) suite() error {
	var all []one
	for _, p := range r.s.plan.Probes {
		for _, pt := range p.Points {
			if pt.Provider != string(r.s.opts.Suite) || !r.runs(pt) {
				continue
			}
			vm, err := r.vm(p)
			if err != nil {
				return err
			}
			name := pt.Text
			if r.s.opts.Suite == Benches {
				name = pt.Function
			}
			all = append(all, one{name, vm, r.cookie(pt.Text)})
		}
	}
	if r.s.opts.Suite == Tests {
		return r.tests(all)
	}
	return r.benches(all)
}

// tests runs each once. It has passed where it returns 0, and neither says exit with a code nor complains.
func (r *Run) tests(all []one) error {
	var failed []string
	for i, t := range all {
		began := time.Now()
		out, ok, err := r.test(t)
		if err != nil {
			return err
		}
		if !ok {
			failed = append(failed, t.name)
		}
		if err := r.write(r.testResult(t.name, len(all), i == 0, ok, out, time.Since(began))); err != nil {
			return err
		}
	}
	if len(failed) > 0 {
		r.code = 1
	}
	if len(all) == 0 || r.s.opts.JSON {
		return nil
	}
	return r.write(output.Tests(len(all), failed))
}

// testResult is what is said of one.
func (r *Run) testResult(name string, n int, first, ok bool, out string, took time.Duration) string {
	if r.s.opts.JSON {
		return output.Event("test_result", fmt.Sprintf(`{%s: {"duration": %d, "passed": %t, "output": %s}}`, output.Quote(name), took.Nanoseconds(), ok, output.Quote(out)))
	}
	text := output.Test(name, ok, out, took)
	if first {
		text = output.TestsHead(n) + text
	}
	return text
}

// test runs one with its output kept back.
func (r *Run) test(t one) (out string, ok bool, err error) {
	var kept bytes.Buffer
	complaints, restore := r.redirect(&kept)
	result, err := r.once(t.vm, t.cookie)
	if err == nil {
		err = r.drain()
	}
	restore()
	ok = err == nil && result == 0 && r.code == 0 && complaints.n == 0
	r.exiting, r.code = false, 0 // for the next
	return kept.String(), ok, err
}

// counted counts what is written through it.
type counted struct {
	io.Writer
	n int
}

func (c *counted) Write(b []byte) (int, error) {
	c.n++
	return c.Writer.Write(b)
}

// redirect sends what the script says elsewhere, in text, and counts what it complains of.
func (r *Run) redirect(to io.Writer) (complaints *counted, restore func()) {
	before := r.s.opts
	complaints = &counted{Writer: to}
	r.s.opts.Output, r.s.opts.Errors, r.s.opts.JSON = to, complaints, false
	return complaints, func() { r.s.opts = before }
}

// benchTime is how long a bench runs at least before its average is told.
const benchTime = time.Millisecond

// benches runs each twice as often until that takes long enough.
func (r *Run) benches(all []one) error {
	_, restore := r.redirect(io.Discard)
	defer restore()
	type result struct {
		average time.Duration
		rounds  int
	}
	results := make([]result, len(all))
	for i, b := range all {
		for n := 1; ; n *= 2 {
			began := time.Now()
			for range n {
				if _, err := r.once(b.vm, b.cookie); err != nil {
					return err
				}
			}
			took := time.Since(began)
			if err := r.drain(); err != nil {
				return err
			}
			r.exiting, r.code = false, 0
			if took >= benchTime {
				results[i] = result{took / time.Duration(n), n}
				break
			}
		}
	}
	restore()
	width := 40
	for _, b := range all {
		width = max(width, len(b.name))
	}
	for i, b := range all {
		average, n := results[i].average.Nanoseconds(), results[i].rounds
		text := fmt.Sprintf("%-*s %-15d%d\n", width, b.name, average, n)
		switch {
		case r.s.opts.JSON:
			text = output.Event("benchmark_result", fmt.Sprintf(`{%s: {"average": %d, "iters": %d}}`, output.Quote(b.name), average, n))
		case i == 0:
			const times, rounds = "Time(ns)", "Iterations"
			text = fmt.Sprintf("%-*s %-15s%s\n%s\n", width, "Benchmark", times, rounds, strings.Repeat("-", width+1+15+len(rounds))) + text
		}
		if err := r.write(text); err != nil {
			return err
		}
	}
	return nil
}
