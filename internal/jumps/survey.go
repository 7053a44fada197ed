package jumps

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"kprobe/arch"
	"kprobe/internal/patch"
)

// Tally counts what becomes of sites.
type Tally struct {
	Sites int
	By    map[patch.Tactic]int
	Trap  map[string]int // that keep the trap, by reason
}

// Jumps is the number of sites that can have a jump.
func (t *Tally) Jumps() int { return t.Sites - t.Traps() }

// Traps is the number of sites that cannot.
func (t *Tally) Traps() (n int) {
	for _, k := range t.Trap {
		n += k
	}
	return n
}

var numbers = regexp.MustCompile(`[+-]?(0x[0-9a-f]+|[0-9]+)`)

func (t *Tally) add(j *patch.Jump, p patch.Place, ok bool) {
	if t.By == nil {
		t.By, t.Trap = make(map[patch.Tactic]int), make(map[string]int)
	}
	t.Sites++
	switch {
	case ok:
		t.By[p.Way.Tactic]++
	case len(j.Ways) > 0:
		t.Trap[numbers.ReplaceAllString(j.Reason, "N")+"; no memory is free where its own bytes can lead"]++
	default:
		t.Trap[numbers.ReplaceAllString(j.Reason, "N")]++
	}
}

// Survey counts the places of a file that can have jumps.
type Survey struct {
	Entries Tally // function entries, all probed at once
	Sites   Tally // all instructions of functions, each probed alone
	Memory  arch.Addr
	Stubs   int // pages of Memory that hold stubs only
}

// Survey plans jumps for all of the code, with detours of size bytes. The model is a process in
// which the module is alone but for other, the rest that is mapped.
func (c *Code) Survey(module arch.Range, other []arch.Range, size int) *Survey {
	const floor, limit, page = 0x10000, 0x7fff_ffff_f000, 4096
	taken := append(slices.Clone(other), module)
	together := patch.NewDetours(c.isa, taken, floor, limit, page)
	alone := patch.NewDetours(c.isa, taken, floor, limit, page)
	s := new(Survey)
	pages := make(map[arch.Addr]bool)
	for _, fn := range c.Functions() {
		b := c.Body(fn)
		for i, in := range b.Insns {
			j := b.PlanJump(b.Addr + arch.Addr(in.Off))
			if i == 0 {
				p, ok := together.Put(j, module, size)
				s.Entries.add(j, p, ok)
				for a := p.Detour &^ (page - 1); ok && a < p.Detour+arch.Addr(size); a += page {
					pages[a] = true
				}
			}
			p, ok := alone.Put(j, module, size)
			s.Sites.add(j, p, ok)
			if ok {
				alone.Release(p)
			}
		}
	}
	s.Stubs = together.StubPages()
	s.Memory = arch.Addr(len(pages)+s.Stubs) * page
	return s
}

// String is a table.
func (s *Survey) String() string {
	var b strings.Builder
	row := func(name string, entries, sites int) {
		fmt.Fprintf(&b, "%-10s %8d %7.2f %%  %9d %7.2f %%\n", name,
			entries, percent(entries, s.Entries.Sites), sites, percent(sites, s.Sites.Sites))
	}
	fmt.Fprintf(&b, "%-10s %8s %9s  %9s\n", "", "entries", "", "sites")
	for _, t := range []patch.Tactic{patch.Whole, patch.Behind, patch.Guarded, patch.Pun} {
		row(t.String(), s.Entries.By[t], s.Sites.By[t])
	}
	row("trap", s.Entries.Traps(), s.Sites.Traps())
	row("all", s.Entries.Sites, s.Sites.Sites)
	fmt.Fprintf(&b, "memory for all entries: %d bytes each, %d pages of stubs among it\n",
		int(s.Memory)/max(1, s.Entries.Jumps()), s.Stubs)
	why := slices.SortedFunc(maps.Keys(s.Sites.Trap), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.Sites.Trap[b], s.Sites.Trap[a]), cmp.Compare(a, b))
	})
	for _, w := range why {
		fmt.Fprintf(&b, "%10d traps: %s\n", s.Sites.Trap[w], w)
	}
	return b.String()
}

func percent(n, of int) float64 { return 100 * float64(n) / float64(max(1, of)) }
