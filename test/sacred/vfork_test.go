package sacred_test

import (
	"testing"
	"time"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/trace"
)

// A child of vfork has the thread pointer of the thread that waits for it. What is known by that stays
// the waiting thread's when the child ends.
func TestVforkBorrows(t *testing.T) {
	for _, b := range builds {
		t.Run(b.name, func(t *testing.T) {
			p := testprog.Start(t, testprog.Build(t, "vforked", b.flags...))
			first := "%di"
			if b.name == "i386" {
				first = "+4(%sp)"
			}
			leave := probed(t, p, placing(func(t *testing.T, s *kprobe.Session) {
				tr := trace.New(s, func(*event.Event) {})
				tr.Inside = true
				if err := tr.Add("p:work work "+first, "r:worked work $retval", "r:outer outer $retval"); err != nil {
					t.Fatal(err)
				}
				s.WaitOptimized()
			}))
			for range 2 {
				p.Send("5")
				p.Expect("child")
				time.Sleep(time.Second) // for detours to be trusted again meanwhile
				p.Send("go")
				p.Expect("outer 17")
				p.Expect("done")
			}
			leave()
			p.CloseStdin()
			if r := p.Result(); !r.OK() {
				t.Errorf("it ended with %v", r.Status)
			}
		})
	}
}
