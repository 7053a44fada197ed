package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"syscall"

	"github.com/spf13/cobra"

	"kprobe/arch"
	"kprobe/event"
	"kprobe/recording"
)

// reportRequest is what the verb report is asked to do.
type reportRequest struct {
	json      bool
	file      string
	noSummary bool
	pictures
}

func reportCommand() *cobra.Command {
	var r reportRequest
	c := &cobra.Command{
		Use:   "report FILE",
		Short: "Print what kprobe record has recorded",
		Long: `Print the events of a recording as kprobe trace prints them, and the table of hits
and misses on standard error. Nothing but the file is needed: the processes may have
ended, and their programs be gone. - is standard input. Where pictures are asked for, events
are printed only with --json or -o.`,
		Example: `  kprobe report hits.rec | less
  kprobe report --json hits.rec
  kprobe report --flame calls.html --perfetto calls.pftrace hits.rec`,
		Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return r.report(args[0]) },
	}
	f := c.Flags()
	f.BoolVar(&r.json, "json", false, "print events as JSON, one object a line")
	f.StringVarP(&r.file, "output", "o", "", "write events to `FILE` instead of standard output")
	f.BoolVar(&r.noSummary, "no-summary", false, "print no table at the end")
	r.pictureFlags(c)
	return c
}

func (r *reportRequest) report(name string) (err error) {
	in := os.Stdin
	if name != "-" {
		if in, err = os.Open(name); err != nil {
			return err
		}
		defer in.Close()
	}
	to, end, err := create(r.file)
	if err != nil {
		return err
	}
	defer end(&err)
	format := (*event.Event).AppendText
	if r.json {
		format = (*event.Event).AppendJSON
	}
	catchPipe()
	var drawn *drawing
	if r.any() {
		var returning []arch.Addr
		if returning, err = returningIn(in); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if drawn, err = r.begin(returning...); err != nil {
			return err
		}
	}
	print := !r.any() || r.json || r.file != ""
	out := bufio.NewWriterSize(to, 1<<20)
	src := &untilFailed{in: in}
	var line []byte
	account, err := recording.Read(src, func(e *event.Event) {
		if drawn != nil {
			drawn.take(e)
		}
		if print && src.err == nil {
			line = append(format(e, line[:0]), '\n')
			_, src.err = out.Write(line)
		}
	})
	if err == nil && src.err == nil {
		src.err = out.Flush()
	}
	switch {
	case errors.Is(src.err, syscall.EPIPE):
		return nil // who closes the pipe has seen enough
	case src.err != nil:
		return src.err
	case err != nil:
		return errors.Join(out.Flush(), fmt.Errorf("%s: %w", name, err))
	}
	if drawn != nil {
		if err := drawn.close(account.Head.Definitions, account.Head.Began, countsOf(account), false); err != nil {
			return err
		}
	}
	if r.noSummary {
		return nil
	}
	return writeAccount(os.Stderr, name, account)
}

// returningIn are the functions whose returns are in a recording, which is read from its
// beginning again afterwards. Of what cannot be, they are not known before.
func returningIn(in *os.File) ([]arch.Addr, error) {
	if _, err := in.Seek(0, io.SeekCurrent); err != nil {
		return nil, nil // a pipe
	}
	seen := make(map[arch.Addr]bool)
	if _, err := recording.Read(in, func(e *event.Event) {
		if e.Return {
			seen[e.Addr] = true
		}
	}); err != nil {
		return nil, err
	}
	_, err := in.Seek(0, io.SeekStart)
	return slices.Collect(maps.Keys(seen)), err
}

// countsOf are the counts of a recording: of one that breaks off, as far as its losses tell.
func countsOf(a *recording.Account) (counts []event.Count) {
	if a.End != nil {
		return a.End.Counts
	}
	for _, l := range a.Losses {
		c := event.Count{Name: l.Name}
		c.Missed[event.Lost] = l.N
		counts = append(counts, c)
	}
	return counts
}

// writeAccount prints what was counted while it was recorded.
func writeAccount(w io.Writer, name string, a *recording.Account) error {
	if a.End == nil {
		_, err := fmt.Fprintf(w, "kprobe: %s breaks off: it was not finished, and has no table of hits\n", name)
		return errors.Join(err, writeLosses(w, a.Losses))
	}
	for i := range a.End.Counts {
		c := &a.End.Counts[i]
		c.Missed[event.Fault] += a.Faults[c.Name]
		delete(a.Faults, c.Name) // of several places the first has all
	}
	return errors.Join(event.WriteSummary(w, a.End.Counts, a.End.Took), writeLosses(w, a.Losses))
}

// untilFailed is a reader that ends when what is read cannot be written.
type untilFailed struct {
	in  io.Reader
	err error // of the writer
}

func (u *untilFailed) Read(p []byte) (int, error) {
	if u.err != nil {
		return 0, io.EOF
	}
	return u.in.Read(p)
}
