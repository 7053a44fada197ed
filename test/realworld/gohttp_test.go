package realworld

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"kprobe/internal/testprog"
	"kprobe/test/harness"
)

// A live server, every function of which is counted by a jump: net/http, the runtime with
// its scheduler, its collector and its network poller. Under load it answers what it answered
// before, and the count of a function is the server's own.
func TestGoServerUnderJumps(t *testing.T) {
	testprog.ReadsFSBase.Need(t)
	p := testprog.StartCmd(t, exec.Command(testprog.Build(t, "gohttp")))
	_, address, _ := strings.Cut(p.Expect("ready"), " ")
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4, MaxConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	var background sync.WaitGroup
	defer background.Wait() // should the test end early
	get := func(question string) string {
		r, err := client.Get("http://" + address + question)
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		b, err := io.ReadAll(r.Body)
		return fmt.Sprintf("%d %s %v", r.StatusCode, b, err)
	}
	served := func() uint64 {
		t.Helper()
		n, err := strconv.ParseUint(strings.Fields(get("/served"))[1], 10, 64)
		harness.OK(t, err)
		return n
	}
	want := make(map[string]string)
	for n := range 10 {
		for _, what := range []string{"hashes", "packed", "fails"} {
			q := fmt.Sprintf("/%s?n=%d", what, n*n)
			want[q] = get(q)
		}
	}
	if got := want["/fails?n=81"]; !strings.HasPrefix(got, "418 the bottom") {
		t.Fatalf("%q", got)
	}
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	load := func() {
		t.Helper()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range rounds {
					for q, a := range want {
						if got := get(q); got != a {
							t.Errorf("%s: %.300q, want %.300q", q, got, a)
							return
						}
					}
				}
			})
		}
		wg.Wait()
	}
	before := harness.RemainsOf(t, p.Pid)
	s := harness.Attach(t, p.Pid, nil)
	background.Go(load) // while traps come, and become jumps
	ps := harness.CountEverything(t, s, harness.ProgramOf(t, p.Pid))
	background.Wait()

	note := harness.ProbeOf(t, s, ps, "main.note")
	served0, hits0 := served(), note.Hits()
	load()
	if n, hits := served()-served0, note.Hits()-hits0; n != hits || n != uint64(8*rounds*len(want)) {
		t.Errorf("the server has answered %d, we counted %d, and asked %d", n, hits, 8*rounds*len(want))
	}
	n, hits := harness.Reached(ps)
	t.Logf("%d of %d functions were reached, %d hits", n, len(ps), hits)
	if n < 500 {
		t.Errorf("only %d reached", n)
	}
	// Jumps go and come back: goroutines return to runtime.goexit's second instruction, under
	// the jump to its entry's detour, and some have just got there.
	background.Go(load)
	for range 5 {
		harness.OK(t, s.SetOptimization(false))
		harness.OK(t, s.SetOptimization(true))
		s.WaitOptimized()
	}
	background.Wait()
	background.Go(load)
	harness.OK(t, s.Close())
	background.Wait()
	before.Check(t)
	load()
}
