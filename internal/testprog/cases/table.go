package cases

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// Table writes how many cases of each file pass, and of those that do not how many for which
// reason, the most frequent first, with one of them by name.
func Table(w io.Writer, all []Result) error {
	type count struct{ passed, failed, absent int }
	files, total := map[string]*count{}, &count{}
	type why struct {
		reason, example string
		n               int
	}
	var names []string
	var whys []*why
	for _, r := range all {
		f := files[r.Case.File]
		if f == nil {
			f = &count{}
			files[r.Case.File] = f
			names = append(names, r.Case.File)
		}
		for _, c := range []*count{f, total} {
			switch {
			case r.OK:
				c.passed++
			case r.Absent:
				c.absent++
			default:
				c.failed++
			}
		}
		if r.OK {
			continue
		}
		i := slices.IndexFunc(whys, func(y *why) bool { return y.reason == r.Why })
		if i < 0 {
			i = len(whys)
			whys = append(whys, &why{reason: r.Why, example: r.Case.File + ": " + r.Case.Name})
		}
		whys[i].n++
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "file\tpass\tfail\tnot for here")
	for _, name := range names {
		f := files[name]
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\n", name, f.passed, f.failed, f.absent)
	}
	fmt.Fprintf(t, "all\t%d\t%d\t%d\n", total.passed, total.failed, total.absent)
	if len(whys) > 0 {
		slices.SortStableFunc(whys, func(a, b *why) int { return cmp.Compare(b.n, a.n) })
		fmt.Fprintln(t, "\ncases\twhy\tone of them")
		for _, y := range whys {
			fmt.Fprintf(t, "%d\t%s\t%s\n", y.n, y.reason, y.example)
		}
	}
	return t.Flush()
}
