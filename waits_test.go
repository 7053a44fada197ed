package kprobe_test

import (
	"fmt"
	"go/ast"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

// clocked are the only places of tests that wait for the clock, and why no event can take its place: so many calls a
// file. Everything else waits by testprog.Until. The list only shrinks.
var clocked = map[string]struct {
	calls int
	why   string
}{
	"internal/testprog/until.go":             {1, "the wait itself"},
	"internal/testprog/proc.go":              {1, "the wait itself"},
	"internal/testprog/leftovers.go":         {1, "the wait itself"},
	"internal/testprog/soak.go":              {1, "a soak lasts so long"},
	"test/conform/handler_test.go":           {3, "handlers that take their time"},
	"test/life/life_test.go":                 {6, "handlers that take their time; a moment to be killed in; what is stopped does nothing"},
	"internal/conform/handlers.go":           {1, "handlers that take their time"},
	"test/torture/controller_test.go":        {3, "a moment to be killed in"},
	"test/torture/calls_test.go":             {2, "a moment to be killed in; signals that do not come all at once"},
	"test/torture/alone_test.go":             {1, "a moment to be killed in"},
	"test/torture/torture_test.go":           {1, "a moment to be killed in"},
	"test/harness/controller.go":             {1, "a moment to be killed in"},
	"test/inside/ahead_test.go":              {1, "a moment to be killed in"},
	"test/conform/watch_test.go":             {1, "a moment to be killed in"},
	"test/life/attach_test.go":               {1, "a moment to attach in"},
	"test/torture/churn_test.go":             {2, "a rate"},
	"target/kernel/guardian_test.go":         {1, "a moment to be killed in"},
	"target/kernel/reset_test.go":            {1, "a rate"},
	"cmd/kprobe/symbols_test.go":             {1, "a rate"},
	"bench/hundred_test.go":                  {1, "a rate"},
	"test/sacred/stressors_test.go":          {1, "a program of somebody else's that hangs is killed"},
	"test/harness/redis.go":                  {1, "a server that hangs is given up"},
	"bench/script_test.go":                   {2, "a peer that attaches nothing is given up"},
	"target/ptrace/gadgets_test.go":          {2, "a target that hangs is killed, for it holds the test's thread"},
	"test/conform/update_test.go":            {1, "a deadline is what is tested"},
	"internal/futex/futex_test.go":           {1, "a moment to be woken in"},
	"internal/owner/insist_test.go":          {1, "the clock of testing/synctest"},
	"target/ptrace/clock_amd64_test.go":      {1, "clocks are what is tested"},
	"target/ptrace/volunteer_amd64_test.go":  {1, "a wait that begins late is what is tested"},
	"target/ptrace/guarded_test.go":          {1, "a timer that must not run out is what is tested"},
	"target/kernel/displaced_test.go":        {1, "the engine tries again after a second"},
	"test/sacred/vfork_test.go":              {1, "the engine trusts detours again after a second"},
	"internal/lifeline/list_test.go":         {1, "no wait: a time that is long ago"},
	"internal/debuginfod/debuginfod_test.go": {1, "no wait: a time that is long ago"},
	"example_test.go":                        {1, "an example for readers, which does not run"},
}

// onlyForTests are the packages that only tests import.
var onlyForTests = []string{"internal/testprog", "internal/conform", "internal/vm/vmtest", "target/targettest", "bpf/bpftest", "test/harness"}

func TestNoTestWaitsForTheClock(t *testing.T) {
	found := map[string][]string{}
	for _, s := range read(t, os.DirFS(".")) {
		of := func(dir string) bool { return strings.HasPrefix(s.path, dir+"/") }
		if !s.test() && !slices.ContainsFunc(onlyForTests, of) {
			continue
		}
		if lines := clockCalls(s); len(lines) > 0 {
			found[s.path] = lines
		}
	}
	for name, lines := range found {
		if may := clocked[name].calls; len(lines) > may {
			t.Errorf("%s waits for the clock at lines %s, where %d calls may: testprog.Until waits for what the subject does", name, strings.Join(lines, ", "), may)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(clocked)) {
		if n := len(found[name]); n < clocked[name].calls {
			t.Errorf("%s has %d of %d calls left: the list of exceptions shrinks", name, n, clocked[name].calls)
		}
	}
}

// clockCalls lists the lines that wait for the clock.
func clockCalls(s source) (lines []string) {
	ast.Inspect(s.ast, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && waitsForClock(sel) {
			lines = append(lines, fmt.Sprint(s.set.Position(sel.Pos()).Line))
		}
		return true
	})
	return lines
}

// waitsForClock tells of a name whether a call of it waits for the clock, or makes the end of a wait.
func waitsForClock(s *ast.SelectorExpr) bool {
	if call, ok := s.X.(*ast.CallExpr); ok { // time.Now().Add
		inner, ok := call.Fun.(*ast.SelectorExpr)
		return ok && isName(inner, "time", "Now") && s.Sel.Name == "Add"
	}
	return isName(s, "time", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick") ||
		isName(s, "context", "WithTimeout", "WithTimeoutCause", "WithDeadline", "WithDeadlineCause")
}

func isName(s *ast.SelectorExpr, pkg string, names ...string) bool {
	x, ok := s.X.(*ast.Ident)
	return ok && x.Name == pkg && slices.Contains(names, s.Sel.Name)
}

// A check that finds nothing proves nothing.
func TestWaitsForTheClockAreFound(t *testing.T) {
	const text = `package x
import "time"
func f(c <-chan int) {
	time.Sleep(1)
	select { case <-c: case <-time.After(1): }
	for end := time.Now().Add(1); time.Now().Before(end); {}
	ctx, cancel := context.WithTimeout(nil, 1)
	wait := time.Sleep
}`
	found := clockCalls(read(t, fstest.MapFS{"x_test.go": {Data: []byte(text)}})[0])
	if got := strings.Join(found, " "); got != "4 5 6 7 8" {
		t.Errorf("found at lines %s", got)
	}
}
