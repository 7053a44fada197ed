package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"kprobe/source"
	"kprobe/source/bind"
	"kprobe/symbol"
)

// What definitions may name: lists from a file's debug data, as perf probe's -F, -V and -L have them.

func funcsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "funcs FILE [PATTERN]",
		Short: "List the functions of a program's source that have code, inlined ones included",
		Example: `  kprobe funcs /usr/sbin/nginx 'ngx_http_*'
  kprobe funcs ./server`,
		Args: between(1, 2), ValidArgsFunction: completeSource,
		RunE: func(c *cobra.Command, args []string) error {
			d, err := openSource(args[0])
			if err != nil {
				return err
			}
			out := bufio.NewWriter(c.OutOrStdout())
			for _, name := range d.Functions() {
				if len(args) == 1 || symbol.Glob(args[1], name) {
					fmt.Fprintln(out, name)
				}
			}
			return out.Flush()
		},
	}
}

func varsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "vars FILE PLACE",
		Short: "List the variables that a definition can name at a place of a program's source",
		Long: `List the parameters and the local variables in scope at a place, a line each: its type and
name, and "optimized out" where it has no value there. PLACE is FUNC, FUNC@SOURCE, FUNC:LINE or
SOURCE:LINE. A place that is in several inlined copies has a list for each.`,
		Example: `  kprobe vars /usr/sbin/nginx ngx_http_process_request
  kprobe vars ./server server.c:120`,
		Args: between(2, 2), ValidArgsFunction: completeSource,
		RunE: func(c *cobra.Command, args []string) error {
			d, err := openSource(args[0])
			if err != nil {
				return err
			}
			return writeVariables(c.OutOrStdout(), d, args[1])
		},
	}
}

func linesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lines FILE FUNC[@SOURCE]",
		Short: "Show the lines of a function that can be probed",
		Long: `Show the source of a function, as far as it is to be found: with the number, counted from where
the function begins, before each line that a probe can be on (FUNC:LINE). Where the source is not there,
only those lines' numbers are listed.`,
		Example: `  kprobe lines ./server handle_request`,
		Args:    between(2, 2), ValidArgsFunction: completeSource,
		RunE: func(c *cobra.Command, args []string) error {
			d, err := openSource(args[0])
			if err != nil {
				return err
			}
			return writeLines(c.OutOrStdout(), d, args[1])
		},
	}
}

func between(least, most int) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return fmt.Errorf("what is wanted is: kprobe %s", c.Use)
		}
		return nil
	}
}

// openSource opens the debug data of a file.
func openSource(path string) (*source.File, error) {
	r, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	whole, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	f, err := symbol.Open(r, &symbol.Options{Path: whole, Debug: symbol.DebugFinder("/")})
	if err != nil {
		return nil, err
	}
	d, err := bind.Of(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return d, nil
}

// spot is a place, with what is told of it.
type spot struct {
	at    source.Point
	title string
}

func spots(d *source.File, place string) (out []spot, err error) {
	name, number, isLine := strings.Cut(place, ":")
	if i := strings.LastIndexByte(place, ':'); i >= 0 {
		name, number = place[:i], place[i+1:]
	}
	line, nerr := strconv.Atoi(number)
	if !isLine || nerr != nil {
		fn, file, _ := strings.Cut(place, "@")
		fns, err := d.Function(fn, file)
		for _, f := range fns {
			for _, c := range f.Copies {
				out = append(out, spot{c.Point(), title(c.Body, f.Name, c.Inlined, c.In)})
			}
		}
		return out, err
	}
	var sites []source.Site
	if fn, file, ok := strings.Cut(name, "@"); ok || !d.HasFile(name) {
		sites, err = d.FunctionLine(fn, file, line)
	} else {
		sites, err = d.Line(name, line)
	}
	for _, s := range sites {
		if s.Doubtful {
			continue
		}
		out = append(out, spot{s.Point(), title(s.Addr, s.Func, s.Inlined, s.In)})
	}
	return out, err
}

func title(addr uint64, name string, inlined bool, in string) string {
	if inlined {
		return fmt.Sprintf("%#x, %s inlined in %s", addr, name, in)
	}
	return fmt.Sprintf("%#x, %s", addr, name)
}

func writeVariables(w io.Writer, d *source.File, place string) error {
	all, err := spots(d, place)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	for _, s := range all {
		fmt.Fprintf(out, "@ %s\n", s.title)
		for _, v := range d.Variables(s.at) {
			note := ""
			if _, err := v.Where(); errors.Is(err, source.ErrOptimized) {
				note = "  (optimized out)"
			} else if err != nil {
				note = "  (" + err.Error() + ")"
			}
			fmt.Fprintf(out, "  %s %s%s\n", bind.TypeName(v.Type), v.Name, note)
		}
	}
	return out.Flush()
}

func writeLines(w io.Writer, d *source.File, place string) error {
	name, file, _ := strings.Cut(place, "@")
	fns, err := d.Function(name, file)
	if err != nil {
		return err
	}
	out := bufio.NewWriter(w)
	for _, fn := range fns {
		lines := d.Lines(fn)
		fmt.Fprintf(out, "<%s@%s:0>\n", fn.Name, fn.File)
		text, err := os.ReadFile(fn.File)
		if err != nil || len(lines) == 0 {
			for _, n := range lines {
				fmt.Fprintf(out, "%7d  line %d\n", n-fn.Line, n)
			}
			continue
		}
		rows := bytes.Split(text, []byte("\n"))
		for n := fn.Line; n <= lines[len(lines)-1] && n <= len(rows); n++ {
			number := ""
			if slices.Contains(lines, n) {
				number = strconv.Itoa(n - fn.Line)
			}
			fmt.Fprintf(out, "%7s  %s\n", number, rows[n-1])
		}
	}
	return out.Flush()
}
