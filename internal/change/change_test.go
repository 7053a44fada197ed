package change

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"kprobe/arch"
	"kprobe/target"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with a file, or writes it.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

var errFails = errors.New("fails")

// log is a target that is nothing but what was done, in which state of it. fails is the step that does.
type log struct {
	steps  []string
	state  string
	fails  string
	thaw   error // of the next stop
	frozen int
}

func (l *log) step(what string) error {
	l.steps = append(l.steps, fmt.Sprintf("%-7s %s", l.state, what))
	if what == l.fails {
		return errFails
	}
	return nil
}

func (l *log) in(state string, f func() error) error {
	was := l.state
	l.state = state
	defer func() { l.state = was }()
	return f()
}

func (l *log) Frozen(f func() error) error {
	l.frozen++
	if err := l.in("stands", f); err != nil {
		return err
	}
	return l.thaw
}

func (l *log) Insist(try func(last bool) error) (err error) {
	for tries := 1; tries <= 5; tries++ {
		if err = try(tries == 5); err == nil {
			break
		}
	}
	return err
}
func (l *log) Meanwhile(f func() error) error { return l.in("runs", f) }

// part logs every phase. Its value is 1 between Commit and Undo.
type part struct {
	*log
	name  string
	maps  int
	value int
}

func (p *part) Plan() error { return p.step(p.name + " plan") }

func (p *part) Maps() (fs []func() error) {
	for i := range p.maps {
		fs = append(fs, func() error { return p.step(fmt.Sprintf("%s map %d", p.name, i)) })
	}
	return fs
}

func (p *part) Writes() []arch.Range { return []arch.Range{{Start: arch.Addr(len(p.name)), End: 9}} }

func (p *part) Fills() []func() error {
	return []func() error{func() error { return p.step(p.name + " fill") }}
}

func (p *part) Commit() error {
	err := p.step(p.name + " commit")
	if err == nil {
		p.value++
	}
	return err
}

func (p *part) Undo()           { p.value--; p.step(p.name + " undo") }
func (p *part) Adopt()          { p.step(p.name + " adopt") }
func (p *part) Drop()           { p.step(p.name + " drop") }
func (p *part) Lines() []string { return []string{"of " + p.name} }

type script struct{ part }

func (s *script) Ahead(t Target) error {
	return t.Meanwhile(func() error { return s.step(s.name + " ahead") })
}

func example(l *log) (*Change, []*part) {
	a, b := &part{log: l, name: "a", maps: 1}, &part{log: l, name: "b", maps: 2}
	text := &script{part{log: l, name: "text"}}
	return &Change{What: "example", Parts: []Part{a, b}, Text: text}, []*part{a, b, &text.part}
}

// A change goes through its phases in order, and prints itself.
func TestPhases(t *testing.T) {
	l := &log{state: "runs"}
	c, _ := example(l)
	if err := c.Do(l); err != nil {
		t.Fatal(err)
	}
	golden(t, "phases.golden", c.String()+strings.Join(l.steps, "\n")+"\n")
}

// Whichever step fails, the change does nothing: what was committed is undone in reverse order, the text last, and
// every plan that was begun is dropped.
func TestEachStepFails(t *testing.T) {
	done := &log{state: "runs"}
	c, _ := example(done)
	if err := c.Do(done); err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, s := range done.steps {
		what := strings.Join(strings.Fields(s)[1:], " ")
		if strings.HasSuffix(what, "adopt") {
			continue // it cannot
		}
		l := &log{state: "runs", fails: what}
		c, parts := example(l)
		if err := c.Do(l); !errors.Is(err, errFails) {
			t.Errorf("%s fails: error %v", what, err)
		}
		dropped := 0
		for _, p := range parts {
			if p.value != 0 && p.name != "text" {
				t.Errorf("%s fails: %s stays committed", what, p.name)
			}
		}
		for _, s := range l.steps {
			if strings.HasSuffix(s, " drop") {
				dropped++
			}
			if strings.HasSuffix(s, "adopt") {
				t.Errorf("%s fails: %s", what, s)
			}
		}
		if want := min(2, 2-strings.Count(what, "a plan")); dropped != want {
			t.Errorf("%s fails: %d plans dropped, want %d", what, dropped, want)
		}
		fmt.Fprintf(&all, "%s fails\n  %s\n", what, strings.Join(after(l.steps, what), "\n  "))
	}
	golden(t, "failures.golden", all.String())
}

// after are the steps behind one.
func after(steps []string, what string) []string {
	for i, s := range steps {
		if strings.HasSuffix(s, " "+what) {
			return steps[i+1:]
		}
	}
	return nil
}

// A change that was committed stays, whatever the target says of going on.
func TestCommittedStays(t *testing.T) {
	l := &log{state: "runs"}
	c, parts := example(l)
	parts[0].maps, parts[1].maps = 0, 0
	l.thaw = target.ErrGone
	if err := c.Do(l); !errors.Is(err, target.ErrGone) {
		t.Errorf("error %v, want %v", err, target.ErrGone)
	}
	for _, p := range parts {
		if p.value != 1 {
			t.Errorf("%s is not committed", p.name)
		}
	}
	if s := strings.Join(l.steps, "\n"); strings.Contains(s, "drop") {
		t.Errorf("plans that are true were dropped:\n%s", s)
	}
}

// limited is a log that may have only so much memory.
type limited struct {
	*log
	asked []target.Need
}

func (l *limited) Afford(n target.Need) error {
	l.asked = append(l.asked, n)
	return l.step("afford")
}

// What the target has no memory for is dropped before anything is mapped; what gives more than it takes is not asked about.
func TestAfford(t *testing.T) {
	for _, frees := range []bool{false, true} {
		l := &limited{log: &log{state: "runs", fails: "afford"}}
		c, _ := example(l.log)
		c.Frees = frees
		err := c.Do(l)
		steps := strings.Join(l.steps, "\n")
		if frees {
			if err != nil || len(l.asked) > 0 {
				t.Errorf("a change that frees: %v, asked %d times", err, len(l.asked))
			}
			continue
		}
		if !errors.Is(err, errFails) || len(l.asked) != 1 || len(l.asked[0].Written) != 3 || strings.Contains(steps, "map") || strings.Count(steps, "drop") != 2 {
			t.Errorf("%v, asked for %v:\n%s", err, l.asked, steps)
		}
	}
}

// Many mappings are made in few stops, each of which is short.
func TestMapsInFewStops(t *testing.T) {
	l := &log{state: "runs"}
	c, parts := example(l)
	parts[0].maps, parts[1].maps = 20, 20
	if err := c.Do(l); err != nil {
		t.Fatal(err)
	}
	if want := 3 + 1; l.frozen != want {
		t.Errorf("%d stops for 40 mappings and the commit, want %d", l.frozen, want)
	}
}

// A change that is no longer wanted is given up at the next step, and its plans are dropped. When the commit has begun it is
// too late.
func TestOver(t *testing.T) {
	errOver := errors.New("over")
	for at := 1; ; at++ {
		l := &log{state: "runs"}
		asked := 0
		c := &Change{Parts: []Part{&part{log: l, name: "a", maps: 1}, &part{log: l, name: "b"}}, Over: func() error {
			if asked++; asked >= at {
				return errOver
			}
			return nil
		}}
		err := c.Do(l)
		done := strings.Join(l.steps, "; ")
		if asked < at {
			if err != nil || !strings.Contains(done, "b adopt") || at < 6 {
				t.Errorf("asked %d times: %v, %s", asked, err, done)
			}
			return
		}
		if err != errOver || asked != at || strings.Contains(done, "commit") || !strings.HasSuffix(done, "a drop") {
			t.Errorf("over at question %d: %v after %d, %s", at, err, asked, done)
		}
	}
}

// What fails because the target is not ready is tried again, from the plan on.
func TestInsist(t *testing.T) {
	l := &log{state: "runs"}
	c, _ := example(l)
	tries := 0
	c.Parts = append(c.Parts, &busy{tries: &tries})
	if err := c.Insist(l); err != nil {
		t.Fatal(err)
	}
	if tries != 3 {
		t.Errorf("%d tries, want 3", tries)
	}
}

// busy cannot be committed at first.
type busy struct {
	Nothing
	tries *int
}

func (b *busy) Commit() error {
	if *b.tries++; *b.tries < 3 {
		return target.ErrNotNow
	}
	return nil
}

// A commit that had better wait has a stop of its own each time, and does not wait for ever.
func TestCommitWaits(t *testing.T) {
	for _, c := range []struct{ waits, stops int }{{0, 1}, {2, 3}, {1000, stops}} {
		l := &log{state: "runs"}
		change, parts := example(l)
		if err := change.Do(l); err != nil {
			t.Fatal(err)
		}
		mapping := l.frozen - 1
		l.frozen, l.steps, parts[0].value = 0, nil, 0
		asked := 0
		change.Later = func() bool {
			if l.state != "stands" || parts[0].value != 0 {
				t.Errorf("asked while it %s, and the first part is %d", l.state, parts[0].value)
			}
			asked++
			return asked <= c.waits
		}
		if err := change.Do(l); err != nil {
			t.Fatal(err)
		}
		if n := l.frozen - mapping; n != c.stops || parts[0].value != 1 {
			t.Errorf("where %d wait: %d stops for the commit, and the first part is %d", c.waits, n, parts[0].value)
		}
	}
}
