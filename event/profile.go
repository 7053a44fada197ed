package event

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"time"
)

// Cause says why a hit has no event, or one with holes.
type Cause uint8

const (
	Recursion  Cause = iota // inside a handler: nmissed (kprobes.txt 5)
	NoInstance              // maxactive calls were under way (kprobes.txt 1.3), or it was no call: nmissed
	Unwound                 // an exception or a panic went through the function
	Longjmp                 // a longjmp did, or the coroutine in it was dropped
	Goexit                  // the goroutine ended in the function
	Exited                  // the thread did
	Lost                    // the ring was full: handlers ran, the event is gone
	Fault                   // an argument could not be read: the event has "(fault)"

	Causes // how many there are
)

var causeNames = [Causes]string{"recursion", "no instance", "unwound", "longjmp", "goexit", "exited", "lost", "fault"}

func (c Cause) String() string { return causeNames[c] }

// Count is the numbers of one probe's hits: served, and missed by cause.
type Count struct {
	Name, Place string
	Hits        uint64 // handlers ran
	Missed      [Causes]uint64
}

// NMissed is the kernel's nmissed: hits whose handlers did not run.
func (c *Count) NMissed() uint64 { return c.Missed[Recursion] + c.Missed[NoInstance] }

// WriteProfile writes the kernel's kprobe_profile: name, hits, nmissed.
func WriteProfile(w io.Writer, counts []Count) error {
	out := bufio.NewWriter(w)
	for i := range counts {
		c := &counts[i]
		fmt.Fprintf(out, "  %-44s %15d %15d\n", appendText(nil, c.Name), c.Hits, c.NMissed())
	}
	return out.Flush()
}

// WriteSummary writes a table for people: for every probe what d brought, and
// in a column each the causes for which hits are missing or incomplete; none
// for a cause that did not occur. A total follows where there is more than one
// probe. A pattern may have placed thousands of probes: of many, those that nothing came of are a
// number below the table.
func WriteSummary(w io.Writer, counts []Count, d time.Duration) error {
	counts, silent := heard(counts)
	total := Count{Name: "total"}
	for _, c := range counts {
		total.Hits += c.Hits
		for i, n := range c.Missed {
			total.Missed[i] += n
		}
	}
	if len(counts) == 0 && silent > 0 {
		_, err := fmt.Fprintf(w, "%d probes were not hit\n", silent)
		return err
	}
	rows := [][]string{{"probe", "place", "hits", "hits/s"}}
	var causes []Cause
	for c := range Causes {
		if total.Missed[c] > 0 {
			causes = append(causes, c)
			rows[0] = append(rows[0], c.String())
		}
	}
	for _, c := range counts {
		rows = append(rows, c.row(d, causes))
	}
	if len(counts) > 1 {
		rows = append(rows, total.row(d, causes))
	}
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len([]rune(cell)))
		}
	}
	out := bufio.NewWriter(w)
	for _, row := range rows {
		fmt.Fprintf(out, "%-*s  %-*s", width[0], row[0], width[1], row[1])
		for i, cell := range row[2:] {
			fmt.Fprintf(out, "  %*s", width[i+2], cell)
		}
		fmt.Fprintln(out)
	}
	if silent > 0 {
		fmt.Fprintf(out, "%d probes were not hit\n", silent)
	}
	return out.Flush()
}

// Few probes are all shown in a table, whatever came of them.
const Few = 20

// heard leaves out the probes without a hit or a miss, where there are many probes.
func heard(counts []Count) (rest []Count, silent int) {
	if len(counts) <= Few {
		return counts, 0
	}
	for _, c := range counts {
		if c.Hits == 0 && c.Missed == [Causes]uint64{} {
			silent++
			continue
		}
		rest = append(rest, c)
	}
	return rest, silent
}

func (c *Count) row(d time.Duration, causes []Cause) []string {
	rate := "-"
	if d > 0 {
		rate = strconv.FormatFloat(float64(c.Hits)/d.Seconds(), 'f', 1, 64)
	}
	row := []string{
		string(appendText(nil, c.Name)), string(appendText(nil, c.Place)),
		strconv.FormatUint(c.Hits, 10), rate,
	}
	for _, cause := range causes {
		row = append(row, strconv.FormatUint(c.Missed[cause], 10))
	}
	return row
}
