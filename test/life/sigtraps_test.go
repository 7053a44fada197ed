package life

import (
	"fmt"
	"strings"
	"testing"

	"kprobe"
	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// trapCase is a state of a program's trap signal, and what happens to it in which phases.
type trapCase struct {
	action string // default, ignore or handle
	waits  string // what was sent to it while it blocks the signal, in words of sigtraps.c; "-": it does not block it
	event  string // raise, kill or break; "" for none
	from   int    // the first phase in which that happens
}

func (c trapCase) String() string {
	s := c.action
	if c.waits != "-" {
		s += " blocked " + c.waits
	}
	if c.event != "" {
		s += fmt.Sprintf(" then %s from %d", c.event, c.from)
	}
	return strings.ReplaceAll(s, "  ", " ")
}

// A program goes through these phases.
const (
	trapBefore = iota // no session has been there
	trapAttached
	trapArmed
	trapLeft
	trapPhases
)

// course has a program go through all phases. begin is called before each but the first, and told whether the program has ended. It
// answers all that the program left.
func (c trapCase) course(p *testprog.Proc, begin func(phase int, alive bool)) string {
	line := func(words ...string) (alive bool) {
		p.Send("%s", strings.Join(words, " "))
		return p.Until("done")
	}
	first := []string{c.action}
	if c.waits != "-" {
		first = append(first, "block", c.waits)
	}
	alive := line(append(first, "state")...)
	for phase := range trapPhases {
		if phase > trapBefore {
			begin(phase, alive)
		}
		if phase == trapLeft && c.action == "ignore" && alive {
			// To ignore a signal makes the kernel forget one that waits (docs/LIMITS.md).
			alive = line("ignore")
		}
		alive = alive && line("work short state")
		if phase >= c.from && c.event != "" {
			alive = alive && line(c.event, "state") && line("work short state")
		}
	}
	if alive {
		line("unblock state")
	}
	return p.Result().String()
}

// probed is course under probes. kill tells that the controller is killed, instead of leaving.
func (c trapCase) probed(t *testing.T, p *testprog.Proc, kill bool) string {
	var s *kprobe.Session
	leave := func() {}
	return c.course(p, func(phase int, alive bool) {
		switch {
		case phase == trapLeft:
			leave()
		case !alive || kill && phase == trapAttached:
		case kill:
			cmd := harness.Controller(t, p.Pid, "traps_work", "traps_short")
			leave = func() {
				cmd.Process.Kill()
				cmd.Wait()
				if p.Alive() {
					harness.Restored(t, p.Pid)
				}
			}
		case phase == trapAttached:
			s = harness.Attach(t, p.Pid, nil)
			leave = func() { harness.OK(t, s.Close()) }
		default:
			trapProbe(t, s, "traps_work", 0)
			trapProbe(t, s, "traps_short", 0)
		}
	})
}

// trapCases calls f with all of them, and what the unprobed program leaves. Where that ends at the first event, there is one for each
// phase.
func trapCases(t *testing.T, path string, f func(c trapCase, unprobed string)) {
	for i, action := range []string{"default", "ignore", "handle"} {
		for j, waits := range []string{"-", "", "raise", "kill", "raise kill"} {
			for k, event := range []string{"", "raise", "kill", "break"} {
				if testing.Short() && (i+j+k)%3 != 0 {
					continue // any two of the three are together in one
				}
				for from := trapAttached; from < trapPhases; from++ {
					c := trapCase{action, waits, event, from}
					unprobed := c.course(testprog.Start(t, path), func(int, bool) {})
					f(c, unprobed)
					if event == "" || !strings.HasPrefix(unprobed, "killed") {
						break
					}
				}
			}
		}
	}
}

// Whatever a program does with the trap signal, it sees of that, and ends by that, what it would without probes: whether it is attached to,
// probed, left, or its controller is killed.
func TestTrapSignalIsThePrograms(t *testing.T) {
	path := testprog.Build(t, "sigtraps", "-O2", "-pthread")
	rounds := 10
	if testing.Short() {
		rounds = 1
	}
	cases := 0
	trapCases(t, path, func(c trapCase, unprobed string) {
		cases++
		ends := []bool{false, true}
		if testing.Short() {
			ends = ends[cases%2:][:1]
		}
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			for i := range rounds {
				for _, kill := range ends {
					args := []string{"1"}[:i%2] // every other round with a second thread
					if got := c.probed(t, testprog.Start(t, path, args...), kill); got != unprobed {
						t.Errorf("unprobed:\n%s\nprobed (killed: %v):\n%s", unprobed, kill, got)
					}
				}
			}
		})
	})
}

// A program that uses the signal all the time loses none while sessions come and go, of handlers, of returns and of
// programs inside. Other signals come in between, so that one may find a thread in a handler of ours.
func TestTrapSignalsWhileSessionsComeAndGo(t *testing.T) {
	rounds := 24
	if testing.Short() {
		rounds = 1
	}
	path := testprog.Build(t, "sigtraps", "-O2", "-pthread")
	cases := 0
	for _, action := range []string{"ignore", "handle"} {
		for _, word := range []string{"raise", "kill", "pester", "break"} {
			if action == "ignore" && word == "break" {
				continue // it ends the program
			}
			cases++
			t.Run(action+" "+word, func(t *testing.T) {
				p := testprog.Start(t, path)
				t.Cleanup(func() {
					if t.Failed() && !p.Alive() {
						t.Log(p.Result())
					}
				})
				p.Round("%s alarm", action)
				p.Round("storm %s 0", word)
				for sort := range rounds {
					if testing.Short() {
						sort = cases % 4 // the seven cases have all four
					}
					s := harness.Attach(t, p.Pid, nil)
					trapProbe(t, s, "traps_work", sort)
					trapProbe(t, s, "traps_short", sort)
					p.Round("spin")
					harness.OK(t, s.Close())
				}
				stormed(t, action, word, p.Round("calm")[0])
				harness.Ends(t, p)
			})
		}
	}
}

// A thread for which the signal waits, and that stands where it would behind a trap, has met none: it is not waited for to say so.
func TestTrapSignalThatWaitsIsNotWaitedFor(t *testing.T) {
	p := testprog.Start(t, testprog.Build(t, "sigtraps", "-O2", "-pthread"))
	p.Round("storm spot 0")
	sessions := 20
	if testing.Short() {
		sessions = 5
	}
	for range sessions {
		s := harness.Attach(t, p.Pid, nil)
		trapProbe(t, s, "traps_short", 0)
		p.Round("short")
		harness.OK(t, s.Close())
	}
	p.Round("calm")
	harness.Ends(t, p)
}

// trapProbe registers a probe of one sort or another.
func trapProbe(t *testing.T, s *kprobe.Session, name string, sort int) {
	t.Helper()
	rp := &kprobe.Kretprobe{Kp: kprobe.Kprobe{SymbolName: name}}
	kp := &rp.Kp
	switch sort % 4 {
	case 0:
		kp.PreHandler = func(*kprobe.Kprobe, *kprobe.Regs) int { return 0 }
	case 1:
		kp.PostHandler = func(*kprobe.Kprobe, *kprobe.Regs, uint64) {}
	case 2:
		harness.OK(t, s.RegisterKretprobe(rp))
		return
	case 3:
		kp.Program = kprobe.CountOnly
	}
	harness.Register(t, s, kp)
}

// stormed holds what a storm says of itself to what an unprobed program would.
func stormed(t *testing.T, action, word, line string) {
	t.Helper()
	var did, sent, broken, others int
	if _, err := fmt.Sscanf(line, "did %d, delivered %d %d %d", &did, &sent, &broken, &others); err != nil {
		t.Fatal(line)
	}
	want := 0
	switch {
	case action == "ignore":
	case word == "raise":
		want = did
	case word == "break":
		sent, want = broken, did
	case sent > 0: // of those that wait for a thread all become one
		want = min(sent, did)
	}
	if did == 0 || others != 0 || sent != want {
		t.Error(line)
	}
}

// blocking has threads that call a probed function all the time, and block SIGTRAP; or, of argv[1], every so manieth does not. Those of a
// program in which all do have one that waits for them. In a round the first thread sends the signal to the process, and takes it again.
// All hold that their masks stay as they are.
const blocking = `
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#define THREADS 4
PROBED long works(long n) { BARRIER(); return n * 3 + 1; }
static _Atomic long wrong;
static _Atomic int over;
static int some;
static sigset_t trap;

static int blocks(void)
{
	sigset_t now;
	pthread_sigmask(SIG_SETMASK, NULL, &now);
	return sigismember(&now, SIGTRAP);
}

static void *calls(void *p)
{
	long i = (long)p, does = !some || (i + 1) % some;
	pthread_sigmask(does ? SIG_BLOCK : SIG_UNBLOCK, &trap, NULL);
	if (!some)
		raise(SIGTRAP);
	while (!over) {
		wrong += works(i) != i * 3 + 1;
		wrong += blocks() != does;
		usleep(2000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[THREADS];
	some = argc > 1 ? atoi(argv[1]) : 0;
	sigemptyset(&trap);
	sigaddset(&trap, SIGTRAP);
	pthread_sigmask(SIG_BLOCK, &trap, NULL);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, calls, (void *)i);
	while (next()) {
		for (long i = 0, n = atol(line); i < n; i++) {
			siginfo_t info;
			union sigval v = {.sival_int = (int)i};
			wrong += works(i) != i * 3 + 1;
			wrong += !blocks();
			if (!some)
				wrong += sigqueue(getpid(), SIGTRAP, v) || sigwaitinfo(&trap, &info) != SIGTRAP || info.si_value.sival_int != i;
		}
		printf("%ld wrong\n", (long)wrong);
	}
	over = 1;
	for (long i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	return wrong != 0;
}
`

// Threads that block the signal meet traps at the same time. The kernel unblocks it for each of them, and takes the action away once: each
// blocks it again, none of the others does, and no signal comes to one of them, whenever probes come and go.
func TestTrapSignalOfThreadsThatBlockIt(t *testing.T) {
	path := harness.Compile(t, "blocking", blocking)
	sessions := 20
	if testing.Short() {
		sessions = 4 // one of each sort
	}
	for _, args := range [][]string{nil, {"2"}} {
		t.Run(fmt.Sprint("every so manieth does not ", args), func(t *testing.T) {
			p := testprog.Start(t, path, args...)
			for i := range sessions {
				s := harness.Attach(t, p.Pid, nil)
				trapProbe(t, s, "works", i)
				if got := p.Round("20"); len(got) != 1 || got[0] != "0 wrong" {
					t.Fatalf("session %d: %q", i, got)
				}
				harness.OK(t, s.Close())
			}
			harness.Ends(t, p)
		})
	}
}
