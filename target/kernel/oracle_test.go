package kernel_test

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/internal/vm"
	"kprobe/internal/vm/vmtest"
	"kprobe/target/gdbremote"
	target "kprobe/target/kernel"
	"kprobe/trace"
)

const tracing = "/sys/kernel/tracing"

// The registers at a function's entry, all of them, and a function's result.
var (
	entryArgs  = allRegisters("ax", "bx", "cx", "dx", "si", "di", "bp", "sp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "flags")
	returnArgs = "ret=$retval:x64 " + allRegisters("bx", "bp", "sp", "r12", "r13", "r14", "r15")
)

func allRegisters(names ...string) string {
	var b strings.Builder
	for _, n := range names {
		fmt.Fprintf(&b, " %s=%%%s:x64", n, n)
	}
	return strings.TrimSpace(b.String())
}

// called tells how often a function was called while the guest did its work once:
// by that, and by all other tasks.
type called struct {
	name        string
	work, other int
}

// lastTraceable is of the guest that was asked last: the list takes it seconds.
var lastTraceable struct {
	of    *vm.VM
	names []string
}

// traceable are the functions that the guest's tracer knows, and so its kprobes
// allow, in its order: it takes their numbers, from 1 on, for their names.
// Modules, which come and go, are at the end.
func traceable(t testing.TB, v *vm.VM) []string {
	t.Helper()
	if lastTraceable.of == v {
		return lastTraceable.names
	}
	list := "cat " + tracing + "/available_filter_functions"
	if testing.Short() {
		list += " | head -n 8000" // a fifth
	}
	var names []string
	for line := range strings.Lines(pack(t, v, list)) {
		name, _, inModule := strings.Cut(strings.TrimSpace(line), " ")
		if inModule {
			name = ""
		}
		names = append(names, name)
	}
	lastTraceable.of, lastTraceable.names = v, names
	return names
}

// calls has the guest's tracer count the calls of some functions while the work is
// done; those of other tasks only if everybody is set.
func calls(t testing.TB, v *vm.VM, names []string, numbers []int, everybody bool) []called {
	t.Helper()
	run(t, v, "cd "+tracing+"; echo function-fork >trace_options; echo >set_ftrace_filter")
	for some := range slices.Chunk(numbers, 1000) {
		run(t, v, "cd "+tracing+"; echo "+strings.Trim(fmt.Sprint(some), "[]")+" >>set_ftrace_filter")
	}
	who := "echo $$ >set_ftrace_pid"
	if everybody {
		who = "echo >set_ftrace_pid"
	}
	run(t, v, "cd "+tracing+"; echo function >current_tracer; sh -c 'cd "+tracing+"; "+who+"; echo >trace; cd /tmp; exec kwork 1' >/dev/null; echo 0 >tracing_on")
	out := pack(t, v, "cd "+tracing+`; awk '/<-/ { f=$(NF-1); n[f]; if ($1 ~ /^kwork-/) w[f]++; else o[f]++ } END { for (f in n) print f, w[f]+0, o[f]+0 }' trace`)
	run(t, v, "cd "+tracing+"; echo nop >current_tracer; echo >set_ftrace_filter; echo >set_ftrace_pid; echo >trace; echo 1 >tracing_on")
	counts := make(map[string]called)
	for line := range strings.Lines(out) {
		var c called
		if _, err := fmt.Sscan(line, &c.name, &c.work, &c.other); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		counts[c.name] = c
	}
	list := make([]called, len(numbers))
	for i, n := range numbers {
		list[i] = counts[names[n-1]]
		list[i].name = names[n-1]
	}
	return list
}

// pack has the guest compress a command's output: its console is slow.
func pack(t testing.TB, v *vm.VM, command string) string {
	t.Helper()
	packed, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(run(t, v, "("+command+") | gzip -1 | base64"), "\n", ""))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Bounds on how often a chosen function is called: a stop costs milliseconds.
const (
	mostByWork  = 5
	mostByOther = 4
)

// choose picks functions at random from those that the guest's kprobes may probe:
// three of four that its work calls, the others from all that there are.
func choose(t testing.TB, v *vm.VM, k *target.Target, n int, rnd *rand.Rand) []string {
	t.Helper()
	list, err := k.Kernel().Blacklist()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	names := traceable(t, v)
	t.Log("traceable:", time.Since(start))
	numbers := rnd.Perm(len(names))
	numbers = slices.DeleteFunc(numbers, func(i int) bool {
		syms := k.Kernel().Lookup(names[i])
		if len(syms) != 1 || !syms[0].Code() || syms[0].Size == 0 {
			return true // a name that others have as well
		}
		_, bad := k.Kernel().Blacklisted(list, syms[0].Addr)
		return bad
	})
	for i := range numbers {
		numbers[i]++
	}
	// Parts of all are asked for, each takes the guest a while, until the work calls enough.
	worked, part := numbers[:0:0], 0
	for part < len(numbers) && len(worked) < n-n/4 {
		some := numbers[part:min(len(numbers), part+40*n)]
		part += len(some)
		for i, c := range calls(t, v, names, some, false) {
			if c.work > 0 && c.work <= mostByWork {
				worked = append(worked, some[i])
			}
		}
	}
	t.Logf("of %d functions the work calls %d, not too often (%v)", part, len(worked), time.Since(start))
	// Some more, for those that others call too often.
	rest := numbers[part:]
	wanted := append(worked[:min(len(worked), n)], rest[:min(len(rest), n/2)]...)
	var chosen []string
	idle := n / 4
	for _, c := range calls(t, v, names, wanted, true) {
		if c.work > mostByWork || c.other > mostByOther || c.work == 0 && idle == 0 || len(chosen) == n {
			continue
		}
		if c.work == 0 {
			idle--
		}
		chosen = append(chosen, c.name)
	}
	t.Log("chosen", time.Since(start))
	if len(chosen) < n-n/4 {
		t.Fatalf("only %d functions: the work is too small", len(chosen))
	}
	return chosen
}

// column finds the parts of a line of the trace file that are compared: not its flags, which we do
// not have, its time, and the task's name, which is that of the task's end.
var column = regexp.MustCompile(`^\s*\S+-(\d+)\s+(\[\d+\]) \S+ +[\d.]+: (\w+): (.*)$`)

// Two return probes on a call: where it goes back to is, for the guest's, where
// ours waits.
var returnPlace = regexp.MustCompile(`\(\S+ <- `)

// stream are the lines of an event by one task, in the order of time.
type stream struct{ event, task string }

// byEvent sorts lines by event and task.
func byEvent(t testing.TB, lines []string) map[stream][]string {
	t.Helper()
	out := make(map[stream][]string)
	for _, line := range lines {
		m := column.FindStringSubmatch(line)
		if m == nil {
			t.Fatalf("a trace line? %q", line)
		}
		key := stream{m[3], m[1]}
		out[key] = append(out[key], m[2]+" "+returnPlace.ReplaceAllString(m[4], "(<- "))
	}
	return out
}

// The guest's own kprobes are the oracle. Of functions chosen at random, entry and return are
// probed by the guest and by us in the same run of the same work, and each line is the same: task,
// CPU, place, every register, return value. At a function's entry our breakpoint comes first, then
// the guest's call.
func TestOracle(t *testing.T) {
	n := 200
	if testing.Short() {
		n = 6
	}
	oracle(t, n, func(t testing.TB, v *vm.VM) *kprobe.Session { return open(t, v, v.RAM()) })
}

// The same where returns are recorded by programs, at the functions' exits. At their entries the
// guest's own probes are in the way of jumps.
func TestOracleInside(t *testing.T) {
	n := 50
	if testing.Short() {
		n = 6
	}
	oracle(t, n, openInside)
}

// openInside opens a session that can have code in the guest, which changes its own text meanwhile.
func openInside(t testing.TB, v *vm.VM) *kprobe.Session {
	t.Helper()
	k, err := target.Dial(v.Stub(), &gdbremote.Options{RAM: v.RAM(), Window: v.Window()})
	if err != nil {
		t.Fatal(err)
	}
	s, err := kprobe.Open(k, &kprobe.Options{Unlisted: true, Report: func(err error) { t.Error(err) }})
	if err != nil {
		k.Close()
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func oracle(t *testing.T, n int, open func(testing.TB, *vm.VM) *kprobe.Session) {
	v := vmtest.Shared(t, "amd64")
	start := time.Now()
	sum := run(t, v, "cd /tmp; kwork 1")
	t.Log("work alone:", time.Since(start))
	s := open(t, v)
	chosen := choose(t, v, s.Target().(*target.Target), n, testprog.Rand(t))
	if err := s.Close(); err != nil { // a stub has one client at a time
		t.Fatal(err)
	}
	const chunk = 50
	events := 0
	for len(chosen) > 0 {
		some := chosen[:min(chunk, len(chosen))]
		chosen = chosen[len(some):]
		events += compare(t, v, some, sum, open)
	}
	t.Logf("%d events, the same on both sides", events)
	// The work calls half of them at least (choose), and a call is an entry and a return.
	if events < n {
		t.Errorf("only %d events of %d functions", events, n)
	}
}

// compare has both probe some functions while the work is done once, and answers
// how many events were the same.
func compare(t *testing.T, v *vm.VM, some []string, sum string, open func(testing.TB, *vm.VM) *kprobe.Session) (same int) {
	t.Helper()
	var defs []string
	for i, name := range some {
		defs = append(defs, fmt.Sprintf("p:e%d %s %s", i, name, entryArgs), fmt.Sprintf("r64:r%d %s %s", i, name, returnArgs))
	}
	start := time.Now()
	run(t, v, fmt.Sprintf("cd %s; i=0; for f in %s; do echo \"p:e$i $f %s\"; echo \"r64:r$i $f %s\"; i=$((i+1)); done >/tmp/defs; cat /tmp/defs >kprobe_events",
		tracing, strings.Join(some, " "), entryArgs, strings.ReplaceAll(returnArgs, "$", `\$`)))
	defer run(t, v, "cd "+tracing+"; echo 0 >events/kprobes/enable; echo >kprobe_events; echo >trace")
	run(t, v, "cd "+tracing+"; echo 'comm == \"kwork\"' >events/kprobes/filter; echo >trace; echo 1 >events/kprobes/enable")
	t.Log("guest's own:", time.Since(start))

	s := open(t, v)
	var mu sync.Mutex
	var lines []string
	tr := trace.New(s, func(e *event.Event) {
		if e.Comm != "kwork" {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		lines = append(lines, string(e.AppendText(nil)))
	})
	tr.Inside = true // as far as the target can
	if err := tr.Add(defs...); err != nil {
		t.Fatal(err)
	}
	s.WaitOptimized()
	start = time.Now()
	if got := run(t, v, "cd /tmp; kwork 1"); got != sum {
		t.Errorf("the work came out as %q, without probes as %q", got, sum)
	}
	t.Log("work:", time.Since(start))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	tr.Flush()
	start = time.Now()
	theirs := byEvent(t, strings.Split(strings.TrimSpace(pack(t, v, "grep -v '^#' "+tracing+"/trace")), "\n"))
	missed := misses(t, run(t, v, "cat "+tracing+"/kprobe_profile"))
	t.Log("read:", time.Since(start), "missed:", missed)
	ours := byEvent(t, lines)
	for key, want := range theirs {
		if ours[key] == nil {
			t.Errorf("%v: we have nothing, the guest has\n%s", key, strings.Join(want, "\n"))
		}
	}
	for key, got := range ours {
		want := theirs[key]
		same += len(want)
		// Its kprobes miss hits in an interrupt while another one is at work; they count them. We
		// miss nothing.
		more := slices.DeleteFunc(slices.Clone(got), func(line string) bool {
			found := len(want) > 0 && want[0] == line
			if found {
				want = want[1:]
			}
			return found
		})
		missed[key.event] -= len(more)
		if len(want) > 0 || missed[key.event] < 0 {
			t.Errorf("%v: we have %d, the guest %d, and it counts %d misses too few\nonly ours:\n%s\nthe guest's, from the first that is not ours:\n%s",
				key, len(got), len(theirs[key]), -missed[key.event], strings.Join(more, "\n"), strings.Join(want, "\n"))
		}
	}
	return same
}

// misses reads how many hits each of the guest's events missed.
func misses(t testing.TB, profile string) map[string]int {
	t.Helper()
	out := make(map[string]int)
	for line := range strings.Lines(profile) {
		var name string
		var hits, missed int
		if _, err := fmt.Sscan(line, &name, &hits, &missed); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if missed > 0 {
			out[name] = missed
		}
	}
	return out
}
