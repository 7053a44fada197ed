package sacred_test

import (
	"os"
	"strings"
	"testing"

	"kprobe"
	"kprobe/event"
	"kprobe/internal/testprog"
	"kprobe/target"
	"kprobe/target/ptrace"
	"kprobe/trace"
)

// A program that was made with a sanitizer takes most of its addresses for that before it begins, and ends if anything of
// ours is there.
func TestSanitized(t *testing.T) {
	for _, sanitizer := range []string{"address", "thread", "undefined", "address -m32"} {
		for _, kind := range []string{"-pie", "-no-pie"} {
			t.Run(sanitizer+kind, func(t *testing.T) {
				flags := strings.Fields("-O1 -pthread -f" + kind[1:] + " " + kind + " -fsanitize=" + sanitizer)
				path := testprog.Build(t, "sanitized", flags...)
				first := "%di"
				if strings.Contains(sanitizer, "-m32") {
					testprog.Programs32.Need(t)
					first = "+4(%sp)"
				}
				out, err := os.CreateTemp(t.TempDir(), "")
				if err != nil {
					t.Fatal(err)
				}
				defer out.Close()
				p, err := ptrace.Start([]string{path}, &os.ProcAttr{
					// To look for leaks it would trace itself, and it has a tracer.
					Env:   append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0"),
					Files: []*os.File{nil, out, out},
				})
				if err != nil {
					t.Fatal(err)
				}
				s, err := kprobe.Open(p, nil)
				if err != nil {
					t.Fatal(err)
				}
				tr := trace.New(s, func(*event.Event) {})
				tr.Inside = true
				if err := tr.Add("p:work work "+first, "r:worked work $retval"); err != nil {
					t.Fatal(err)
				}
				if err := s.Continue(); err != nil {
					t.Fatal(err)
				}
				<-s.Done()
				exit, _ := s.Exited()
				if err := s.Close(); err != nil {
					t.Error(err)
				}
				said, err := os.ReadFile(out.Name())
				if err != nil {
					t.Fatal(err)
				}
				if exit != (target.Exit{Code: 4}) || strings.TrimSpace(string(said)) != "1330" {
					t.Errorf("it %v and said\n%s", exit, said)
				}
			})
		}
	}
}
