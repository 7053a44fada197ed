package bench

import (
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
)

// The rows that issue trackers and the README speak of, one table behind the
// benchmarks: what ours costs, the floor that was measured in turn with it, the ratio
// and what it shall be at most, and what others take for the same.

// row is one mechanism.
type row struct {
	name, unit         string
	floor, ours        float64 // 0: there is none
	aim                string
	uprobe, gdbTracing string // others' figures, or why there are none
	guest              string // those of the guest's own probes
}

var table []row

// note adds a row, or fills in what is known of one meanwhile: a benchmark runs more than
// once.
func note(name string, fill func(*row)) {
	for i := range table {
		if table[i].name == name {
			fill(&table[i])
			return
		}
	}
	table = append(table, row{name: name, unit: "ns"})
	fill(&table[len(table)-1])
}

// printTable prints what was measured. Figures of hits include the call, as the
// floor's do.
func printTable(out io.Writer) {
	if len(table) == 0 {
		return
	}
	load, _ := os.ReadFile("/proc/loadavg")
	fmt.Fprintf(out, "\nLeast of the rounds; load average %s\n\n", strings.Join(strings.Fields(string(load))[:1], ""))
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "mechanism\tfloor\tours\tratio\taim\tuprobe\tgdb's fast tracepoint\tguest's kprobe")
	number := func(v float64, unit string) string {
		if v == 0 {
			return "-"
		}
		return fmt.Sprintf("%.3g %s", v, unit)
	}
	for _, r := range table {
		ratio := "-"
		if r.floor > 0 && r.ours > 0 {
			ratio = fmt.Sprintf("%.2fx", r.ours/r.floor)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", r.name, number(r.floor, r.unit), number(r.ours, r.unit), ratio, r.aim,
			orDash(r.uprobe), orDash(r.gdbTracing), orDash(r.guest))
	}
	w.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
