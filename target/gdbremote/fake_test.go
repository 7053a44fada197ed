package gdbremote

import (
	"bufio"
	"errors"
	"io/fs"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"kprobe/arch"
	"kprobe/target"
)

// fakeStub answers requests by their beginnings; nil is no answer at all. A request that is not in
// the table gets the empty answer: "I do not know that".
func fakeStub(t *testing.T, answers map[string]string, heard ...func(request string, answers map[string]string)) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	answers = maps.Clone(answers) // the caller may change its own for the next one
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		r := bufio.NewReader(c)
		for {
			var kind token
			data := "\x03" // an interrupt is no packet
			first, err := r.Peek(1)
			if err == nil && first[0] == 3 {
				r.Discard(1)
			} else {
				kind, data, err = next(r)
			}
			if err != nil {
				return
			}
			if kind != tokenPacket {
				continue
			}
			for _, f := range heard {
				f(data, answers)
			}
			answer, longest := "", -1
			for prefix, a := range answers {
				if strings.HasPrefix(data, prefix) && len(prefix) > longest {
					answer, longest = a, len(prefix)
				}
			}
			switch answer {
			case "hang":
				continue
			case "close":
				return
			}
			c.Write(frame([]byte("+"), answer))
		}
	}()
	return "unix:" + path
}

// complete is a stub with all that is needed.
func complete() map[string]string {
	return map[string]string{
		"qSupported": "PacketSize=400;qXfer:features:read+",
		"?":          "S05",
		"qXfer":      `l<target><architecture>i386:x86-64</architecture><reg name="rsp" bitsize="64"/><reg name="rip" bitsize="64"/></target>`,
		"vCont?":     "vCont;c;C;s;S", "qfThreadInfo": "m1", "qsThreadInfo": "l",
		"Hg": "OK", "Hc": "OK", "g": zeros(32), "z0": "OK", "D": "OK", "m": zeros(8),
	}
}

// A stub that lacks something says so at Dial, by name.
func TestWhatStubsLack(t *testing.T) {
	g, err := Dial(fakeStub(t, complete()), nil)
	if err != nil {
		t.Fatal("a stub that lacks nothing: ", err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	for _, tt := range []struct{ request, answer, want string }{
		{"qSupported", "PacketSize=zz", `packets of "zz" bytes`},
		{"qSupported", "PacketSize=400", "does not describe its machine"},
		{"qSupported", "", "as kgdb does not"},
		{"qXfer", "l<target></target>", `not known here ("")`},
		{"qSupported", "QStartNoAckMode+;PacketSize=400", "QStartNoAckMode: the stub does not know it"},
		{"?", "W00", "nothing runs there"},
		{"?", "", "?: the stub does not know it"},
		{"qXfer", "", "target.xml: the stub does not know it"},
		{"qXfer", "m", "target.xml has no end"},
		{"qXfer", "l<target><architecture>pdp11</architecture></target>", `not known here ("pdp11")`},
		{"qXfer", `l<target><architecture>i386:x86-64</architecture><reg name="rip" bitsize="64"/></target>`, "does not show the register rsp"},
		{"vCont?", "", "no vCont"},
		{"qfThreadInfo", "", "qfThreadInfo: the stub does not know it"},
		{"qfThreadInfo", "l", "no threads"},
		{"qfThreadInfo", "mxyz", `thread "xyz"`},
		{"Hg", "E01", `Hg1: the stub answers "E01"`},
		{"g", "", "g: the stub does not know it"},
		{"z0", "", "no breakpoints (no Z0)"},
	} {
		answers := complete()
		answers[tt.request] = tt.answer
		goodbyes := 0
		g, err := Dial(fakeStub(t, answers, func(request string, _ map[string]string) {
			if request == "D" {
				goodbyes++ // before Dial hears the answer
			}
		}), nil)
		if err == nil {
			g.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s answered %q: %v, want %q", tt.request, tt.answer, err, tt.want)
		}
		want := 1 // for the call has stopped it
		if tt.want == "as kgdb does not" || tt.want == "nothing runs there" {
			want = 0 // kgdb listens while the machine stands only
		}
		if goodbyes != want || errors.Is(err, ErrStands) {
			t.Errorf("%s answered %q: %d goodbyes, want %d; %v", tt.request, tt.answer, goodbyes, want, err)
		}
	}
}

// A target that is not taken is let go by its number, where it has one; that it stands is said
// where it may, and is so where that is asked for.
func TestGoodbyeOfOneThatIsRefused(t *testing.T) {
	for _, tt := range []struct {
		report, goodbye, answer string
		hold                    bool
		heard                   []string
		stands                  bool
	}{
		{"S05", "D", "OK", false, []string{"D"}, false},
		{"T05thread:p07.01;", "D;7", "OK", false, []string{"D;7"}, false},
		{"S05", "D", "E22", false, []string{"D"}, true},
		{"S05", "D", "hang", false, []string{"D"}, true},
		{"S05", "D", "close", false, []string{"D"}, false},
		{"S05", "D", "OK", true, nil, true},
	} {
		answers := complete()
		answers["?"], answers["vCont?"] = tt.report, ""
		delete(answers, "D")
		answers[tt.goodbye] = tt.answer
		var mu sync.Mutex
		var heard []string
		g, err := Dial(fakeStub(t, answers, func(request string, _ map[string]string) {
			mu.Lock()
			defer mu.Unlock()
			if request[0] == 'D' {
				heard = append(heard, request)
			}
		}), &Options{Hold: tt.hold, Patience: 300 * time.Millisecond})
		if err == nil {
			g.Close()
		}
		mu.Lock()
		if err == nil || !strings.Contains(err.Error(), "no vCont") || errors.Is(err, ErrStands) != tt.stands || !slices.Equal(heard, tt.heard) {
			t.Errorf("%+v: %v, heard %q", tt, err, heard)
		}
		mu.Unlock()
	}
	// A file that is named is opened before the call.
	var call *net.OpError
	if _, err := Dial("unix:/nowhere", &Options{RAM: "/none"}); !errors.Is(err, fs.ErrNotExist) || errors.As(err, &call) {
		t.Errorf("neither memory nor stub: %v", err)
	}
}

// A stub that stops answering, or goes, is an error and no hang, at any request.
func TestStubsThatVanish(t *testing.T) {
	for _, how := range []string{"hang", "close"} {
		for request := range complete() {
			answers := complete()
			answers[request] = how
			g, err := Dial(fakeStub(t, answers), &Options{Patience: 300 * time.Millisecond})
			if err != nil {
				if !errors.Is(err, target.ErrGone) {
					t.Errorf("%s at %s: %v", how, request, err)
				}
				continue
			}
			if err := g.ReadAt(0, make([]byte, 4)); request == "m" && !errors.Is(err, target.ErrGone) {
				t.Errorf("%s at %s: ReadAt: %v", how, request, err)
			}
			g.Close()
		}
	}
	// Silence while the target runs is as it should be; the end of the line is not.
	answers := complete()
	answers["vCont;c"] = "close"
	g, err := Dial(fakeStub(t, answers), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.Wait(); !errors.Is(err, target.ErrGone) {
		t.Errorf("Wait: %v", err)
	}
	// So it is while a thread is owed a Resume.
	answers["vCont;c"], answers["Z0"], answers["g"] = "T05", "OK", zeros(32)
	if g, err = Dial(fakeStub(t, answers), nil); err != nil {
		t.Fatal(err)
	}
	if err := g.SetBreak(0); err != nil {
		t.Fatal(err)
	}
	if st, err := g.Wait(); err != nil || st.Kind != target.StopTrap {
		t.Fatalf("%+v, %v", st, err)
	}
	g.c.line.Close()
	if _, err := g.Wait(); !errors.Is(err, target.ErrGone) {
		t.Errorf("Wait, while a thread stands: %v", err)
	}
	// Steps that it does not know, after all.
	answers = complete()
	answers["vCont;s"] = ""
	if g, err = Dial(fakeStub(t, answers), nil); err != nil {
		t.Fatal(err)
	}
	if err := g.Step(1); !errors.Is(err, target.ErrGone) {
		t.Errorf("Step: %v", err)
	}
	// A request to go on that is refused, or not known.
	answers = complete()
	for _, answer := range []string{"E22", ""} {
		answers["vCont;c"] = answer
		if g, err = Dial(fakeStub(t, answers), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := g.Wait(); !errors.Is(err, target.ErrGone) || !strings.Contains(err.Error(), "go on") {
			t.Errorf("Wait, after %q: %v", answer, err)
		}
	}
}

// A machine that is known by its memory is looked at while it runs: one that does not
// stop for that, or is another by then, is an error.
func TestMachineIsLookedAt(t *testing.T) {
	for _, tt := range []struct{ interrupt, memory, want string }{
		{"hang", zeros(8), `no answer to "an interrupt"`},
		{"S02", zeros(8) + "11223344", "the machine was reset"},
		{"S02", "close", "its stub has ended"},
		{"W00", zeros(8), "the machine has ended"},
	} {
		answers := complete()
		answers["vCont;c"], answers["\x03"], answers["m"] = "hang", tt.interrupt, tt.memory
		g, err := Dial(fakeStub(t, answers), &Options{Patience: 300 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		g.Identify([]Fact{{0xffff_ffff_8000_0000, make([]byte, 8)}})
		for range 2 {
			if _, err := g.Wait(); !errors.Is(err, target.ErrGone) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Wait: %v, want %s", err, tt.want)
			}
		}
		if err := g.WriteAt(0, make([]byte, 8)); !errors.Is(err, target.ErrGone) {
			t.Errorf("WriteAt: %v", err)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	// A stub that sees no more of it than the program which a CPU runs has not said that.
	answers := complete()
	answers["m"], answers["M"] = "E14", "OK"
	g, err := Dial(fakeStub(t, answers), nil)
	if err != nil {
		t.Fatal(err)
	}
	g.Identify([]Fact{{0xffff_ffff_8000_0000, make([]byte, 8)}})
	if err := g.WriteAt(0, make([]byte, 8)); err != nil {
		t.Errorf("WriteAt: %v", err)
	}
	g.Close()
	// Nor is one written to that is another by then.
	answers = complete()
	g, err = Dial(fakeStub(t, answers), nil)
	if err != nil {
		t.Fatal(err)
	}
	g.Identify([]Fact{{0xffff_ffff_8000_0000, []byte("else")}})
	for name, err := range map[string]error{
		"WriteAt": g.WriteAt(0, make([]byte, 8)), "SetRegs": g.SetRegs(1, &arch.Regs{1}), "Step": g.Step(1),
	} {
		if !errors.Is(err, target.ErrGone) || !strings.Contains(err.Error(), "reset") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A hit takes the fewest requests with which it is still noticed that the machine was reset
// meanwhile: before anything is written.
func TestRequestsOfAHit(t *testing.T) {
	answers := complete()
	answers["qqemu.PhyMemMode"], answers["Z0"], answers["P"], answers["vCont;c"] = "0", "OK", "OK", "T05thread:1;"
	answers["qfThreadInfo"] = "m1,2"
	var mu sync.Mutex
	var heard []string
	since := func() []string {
		mu.Lock()
		defer mu.Unlock()
		all := heard
		heard = nil
		return all
	}
	reset := make(chan bool, 1)
	g, err := Dial(fakeStub(t, answers, func(request string, answers map[string]string) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, request)
		select {
		case <-reset:
			answers["g"], answers["m"] = strings.Repeat("1", 32), "E14"
		default:
		}
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	g.Identify([]Fact{{Addr: 0x1000, Bytes: make([]byte, 4)}})
	if err := g.SetBreak(0); err != nil {
		t.Fatal(err)
	}
	for _, isReset := range []bool{false, true} {
		since()
		st, err := g.Wait()
		if err != nil || st.Kind != target.StopTrap || st.Thread != 1 {
			t.Fatalf("%+v, %v", st, err)
		}
		want := []string{"vCont;c", "Hg2", "g", "Hg1", "g", "m1000,4"}
		if got := since(); !slices.Equal(got, want) {
			t.Errorf("the stop: %q, want %q", got, want)
		}
		var r arch.Regs
		if err := g.Regs(1, &r); err != nil {
			t.Fatal(err)
		}
		r[arch.AMD64.PC] = 5
		if isReset {
			reset <- true
			if err := g.SetRegs(1, &r); !errors.Is(err, target.ErrGone) {
				t.Errorf("SetRegs after a reset: %v", err)
			}
			if got := since(); slices.ContainsFunc(got, func(s string) bool { return s[0] == 'P' || s[0] == 'G' }) {
				t.Errorf("written after a reset: %q", got)
			}
			continue
		}
		if err := g.SetRegs(1, &r); err != nil {
			t.Fatal(err)
		}
		if got, want := since(), []string{"g", "P1=0500000000000000"}; !slices.Equal(got, want) {
			t.Errorf("going on: %q, want %q", got, want)
		}
		if err := g.Resume(1, 0); err != nil {
			t.Fatal(err)
		}
		// CPU 2 is reported next, and that it stood at the breakpoint before is no hit more.
		if st, err := g.Wait(); err != nil || st.Thread != 2 {
			t.Fatalf("%+v, %v", st, err)
		}
		if err := g.Resume(2, 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}
